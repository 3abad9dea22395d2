"""Several evaluations by one process: each is a run of its own, and what they have in common is read once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.harness import process, rundir
from dflash_tui.records.process import ExitRecord, ProcessRecord
from dflash_tui.records.result import Results
from tests.harness.test_evaluate import ended, until
from tests.harness.world import REPOSITORY, World, harness, near, read_blocks, with_checkpoint, world


def beside(main: World, name: str, **changes: Any) -> Path:
    """A run directory of a baseline beside the main one, with the same weights."""
    run_dir = main.root / "runs" / name
    run_dir.mkdir(parents=True)
    shutil.copy(main.case.folder / "model.safetensors", run_dir / "model.safetensors")
    rundir.write(run_dir / rundir.MANIFEST, replace(main.manifest, run_id=name, baseline=name, **changes))
    return run_dir


def exit_of(run_dir: Path) -> ExitRecord:
    return rundir.read(run_dir / rundir.EXIT, ExitRecord)


@pytest.fixture
def tiny(tmp_path: Path) -> World:
    return world(tmp_path)


def test_each_is_a_whole_run_of_one_process(tiny: World) -> None:
    main, other = tiny.write(), beside(tiny, "published")
    started = harness("evaluate", main, other)
    assert started.returncode == 0, started.stderr
    records = [rundir.read(run_dir / rundir.PROCESS, ProcessRecord) for run_dir in (main, other)]
    assert len({(record.pid, record.start_ticks) for record in records}) == 1
    assert json.loads(started.stdout)["pid"] == records[0].pid
    for run_dir in (main, other):
        assert ended(run_dir).state == "finished"
        assert rundir.read(run_dir / rundir.RESULTS, Results).run_id == run_dir.name
    assert near(read_blocks(main), read_blocks(other))
    assert "finished: 90 blocks" in (other / rundir.LOG).read_text()


def test_one_that_waits_is_running_and_says_behind_which(tmp_path: Path) -> None:
    lasting = world(tmp_path, prompts=40, repeat=20)
    main, other = lasting.write(), beside(lasting, "published")
    assert harness("evaluate", main, other).returncode == 0
    until(lambda: (main / rundir.BLOCKS).exists(), "the first block was written")
    assert harness("state", other).stdout == "running\n"
    line = json.loads((other / rundir.PROGRESS).read_text().splitlines()[-1])
    assert (line["phase"], line["behind"]) == ("queued", main.name)
    assert harness("stop", other).stdout == "stopping\n"
    until((other / rundir.EXIT).exists, "the waiting one was ended")
    assert (exit_of(other).state, exit_of(other).error) == ("stopped", "stopped before its turn came")
    assert harness("state", main).stdout == "running\n"
    process.stop(main)
    assert ended(main).state == "stopped"


def test_a_baseline_that_fails_costs_neither_the_main_run_nor_the_next(tiny: World) -> None:
    checkpoint = replace(tiny.manifest.checkpoint, weights_id="0" * 64)
    main, bad, good = tiny.write(), beside(tiny, "bad", checkpoint=checkpoint), beside(tiny, "good")
    assert harness("evaluate", main, bad, good, "--foreground").returncode == 0
    assert [exit_of(run_dir).state for run_dir in (main, bad, good)] == ["finished", "failed", "finished"]
    assert "WRONG_MODEL" in str(exit_of(bad).error)
    assert "WRONG_MODEL" not in (main / rundir.LOG).read_text()


def test_without_the_main_run_there_is_nothing_to_stand_beside(tiny: World) -> None:
    main, other = tiny.write(with_checkpoint(tiny.manifest, weights_id="0" * 64)), beside(tiny, "published")
    assert harness("evaluate", main, other, "--foreground").returncode == 1
    assert [exit_of(run_dir).state for run_dir in (main, other)] == ["failed", "stopped"]
    assert f"{main.name} has not finished" in str(exit_of(other).error)


def test_baselines_alone_do_not_depend_on_each_other(tiny: World) -> None:
    checkpoint = replace(tiny.manifest.checkpoint, weights_id="0" * 64)
    bad, good = beside(tiny, "bad", checkpoint=checkpoint), beside(tiny, "good")
    assert harness("evaluate", bad, good, "--foreground").returncode == 1
    assert [exit_of(run_dir).state for run_dir in (bad, good)] == ["failed", "finished"]


def test_stopping_the_main_run_ends_what_waits_for_it(tmp_path: Path) -> None:
    lasting = world(tmp_path, prompts=40, repeat=20)
    main, other = lasting.write(), beside(lasting, "published")
    assert harness("evaluate", main, other).returncode == 0
    until(lambda: (main / rundir.BLOCKS).exists(), "the first block was written")
    process.stop(main)
    assert ended(main).state == "stopped"
    assert ended(other).state == "stopped"


def test_a_signal_that_names_no_run_ends_the_process(tmp_path: Path) -> None:
    lasting = world(tmp_path, prompts=40, repeat=20)
    runs = [beside(lasting, name) for name in ("one", "two")]
    assert harness("evaluate", *runs).returncode == 0
    until(lambda: (runs[0] / rundir.BLOCKS).exists(), "the first block was written")
    os.kill(rundir.read(runs[0] / rundir.PROCESS, ProcessRecord).pid, 15)
    assert [ended(run_dir).state for run_dir in runs] == ["stopped", "stopped"]


def test_a_killed_process_loses_all_of_its_runs(tmp_path: Path) -> None:
    lasting = world(tmp_path, prompts=40, repeat=20)
    main, other = lasting.write(), beside(lasting, "published")
    assert harness("evaluate", main, other).returncode == 0
    os.kill(rundir.read(main / rundir.PROCESS, ProcessRecord).pid, 9)
    until(lambda: process.state(main) != "running", "the process was gone")
    assert [harness("state", run_dir).stdout for run_dir in (main, other)] == ["lost\n", "lost\n"]


def test_one_that_was_used_refuses_all_before_anything_is_written(tiny: World) -> None:
    main, other = tiny.write(), beside(tiny, "published")
    (other / rundir.EXIT).write_text("{}")
    refused = harness("evaluate", main, other)
    assert refused.returncode == 1
    assert "used once" in refused.stderr
    assert not (main / rundir.PROCESS).exists()


def test_with_once_a_request_that_is_answered_leaves_the_baselines_to_be_evaluated(tiny: World) -> None:
    first = tiny.write()
    assert harness("evaluate", first, "--foreground").returncode == 0
    again = tiny.root / "runs" / "again"
    again.mkdir()
    rundir.write(again / rundir.MANIFEST, replace(tiny.manifest, run_id="again"))
    other = beside(tiny, "published")
    answer = harness("evaluate", again, other, "--once")
    assert json.loads(answer.stdout) == {"answered_by": first.name}
    assert not again.exists()
    assert ended(other).state == "finished"


def test_with_once_a_baseline_that_another_has_answered_is_not_evaluated_again(tiny: World) -> None:
    first, known = tiny.write(), beside(tiny, "published")
    assert harness("evaluate", first, known, "--foreground").returncode == 0

    def asked(name: str, baseline: str = "", request: str = tiny.manifest.request_id) -> Path:
        run_dir = tiny.root / "runs" / name
        (run_dir / "checkpoint").mkdir(parents=True)
        shutil.copy(tiny.case.folder / "model.safetensors", run_dir / "checkpoint" / "model.safetensors")
        linked = replace(tiny.manifest.checkpoint, linked="checkpoint/model.safetensors")
        changed = replace(tiny.manifest, run_id=name, baseline=baseline, request_id=request, checkpoint=linked)
        rundir.write(run_dir / rundir.MANIFEST, changed)
        return run_dir

    answer = harness("evaluate", asked("again"), asked("published-2", "published"), "--once")
    assert json.loads(answer.stdout) == {"answered_by": first.name, "beside": {"published-2": "published"}}
    assert not (tiny.root / "runs" / "published-2").exists()
    other, named = asked("other", request="other"), asked("otherwise", "otherwise")
    answer = harness("evaluate", other, asked("published-3", "published"), named, "--once")
    told = json.loads(answer.stdout)
    assert told["beside"] == {"published-3": "published"}  # of another name it is another baseline's
    assert told["pid"] == rundir.read(other / rundir.PROCESS, ProcessRecord).pid
    assert (ended(other).state, ended(named).state) == ("finished", "finished")


MAPPED = """
import json, os, sys
opened = []
sys.addaudithook(lambda event, values: opened.append(os.readlink(f"/proc/self/fd/{values[0]}"))
                 if event == "mmap.__new__" and values[0] >= 0 else None)
from dflash_tui.harness.__main__ import main
status = main(["evaluate", *sys.argv[1:], "--foreground"])
print(json.dumps(opened))
sys.exit(status)
"""


def test_target_and_hidden_states_are_mapped_once_for_all(tiny: World) -> None:
    runs = [tiny.write(), beside(tiny, "one"), beside(tiny, "two")]
    done = subprocess.run(
        [sys.executable, "-c", MAPPED, *map(os.fspath, runs)],
        capture_output=True, text=True, check=True, cwd=REPOSITORY, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    mapped = json.loads(done.stdout)
    shared = [tiny.target.folder / "model.safetensors", *(tiny.hidden_states / f"p{i}.safetensors" for i in range(3))]
    own = [run_dir / "model.safetensors" for run_dir in runs]
    assert sorted(mapped) == sorted(map(os.fspath, [*shared, *own]))
    said = [(run_dir / rundir.LOG).read_text().count("has opened: 3 of 3") for run_dir in runs]
    assert said == [0, 1, 1]


def test_a_drafter_of_fewer_taps_uses_its_columns_of_the_same_cache(tiny: World) -> None:
    """Hidden states of one layer more than the drafter taps give the same blocks as those of its taps alone."""
    main = tiny.write()
    assert harness("evaluate", main, "--foreground").returncode == 0
    wide = world(tiny.root / "wide")
    for index in range(3):
        widen(wide.hidden_states / f"p{index}.safetensors")
    prompts = tuple(replace(prompt, features_id=None) for prompt in wide.manifest.prompts)
    run_dir = wide.write(replace(wide.manifest, prompts=prompts))
    assert harness("evaluate", run_dir, "--foreground").returncode == 0
    assert near(read_blocks(main), read_blocks(run_dir))


def widen(path: Path) -> None:
    """Put a layer of noise between the first and the second of a hidden-state file's layers."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        hidden, tokens = file.get_tensor("hidden"), file.get_tensor("tokens")
    first, second, third = hidden.chunk(3, dim=1)
    noise = torch.randn(first.shape).bfloat16()
    path.unlink()
    save_file(
        {"hidden": torch.cat((first, noise, second, third), dim=1), "tokens": tokens},
        path,
        metadata={**metadata, "layer_ids": "1,2,3,5"},
    )
