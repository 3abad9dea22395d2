"""Whole evaluations as real detached processes, outside the repository."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dflash_tui.harness import process, rundir
from dflash_tui.harness.cache import write_features
from dflash_tui.harness.draft import draft
from dflash_tui.measure.anchors import spaced
from dflash_tui.measure.summary import summarise
from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.codec import loads
from dflash_tui.records.facts import Fact
from dflash_tui.records.process import ExitRecord, ProcessRecord, ProgressRecord
from dflash_tui.records.result import Results
from tests.harness.test_drafting import drafter_of
from tests.harness.world import World, harness, metadata, near, read_blocks, with_checkpoint, world

PATIENCE = 90.0


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)


def ended(run_dir: Path) -> ExitRecord:
    until(lambda: process.state(run_dir) not in ("starting", "running"), "the run ended")
    assert (run_dir / rundir.EXIT).exists(), (run_dir / rundir.LOG).read_text()
    return rundir.read(run_dir / rundir.EXIT, ExitRecord)


def facts(run_dir: Path, kind: str) -> list[Fact]:
    path = run_dir / rundir.FACTS
    found = [loads(Fact, line, str(path)) for line in rundir.lines(path)] if path.exists() else []
    return [fact for fact in found if fact.kind == kind]


@pytest.fixture
def tiny(tmp_path: Path) -> World:
    return world(tmp_path)


def test_a_detached_evaluation_leaves_blocks_and_the_results_that_follow_from_them(tiny: World) -> None:
    run_dir = tiny.write()
    started = harness("evaluate", run_dir)
    assert started.returncode == 0, started.stderr
    record = rundir.read(run_dir / rundir.PROCESS, ProcessRecord)
    assert json.loads(started.stdout)["pid"] == record.pid
    assert ended(run_dir) == replace(ended(run_dir), state="finished", code=0, error=None)
    blocks = tiny.blocks()
    horizon = tiny.manifest.block_size - 1
    assert {block.prompt for block in blocks} == {"p0", "p1", "p2"}
    assert [block.anchor for block in blocks if block.prompt == "p1"] == list(spaced(10, 46, horizon, 30))
    assert rundir.read(run_dir / rundir.RESULTS, Results) == summarise(tiny.manifest.run_id, horizon, blocks)
    progress = [json.loads(line) for line in rundir.lines(run_dir / rundir.PROGRESS)]
    assert progress[-1] == {**progress[-1], "phase": "done", "done": len(blocks), "total": len(blocks)}
    assert ProgressRecord(**progress[-2]).prompt == "p2"


def test_the_blocks_are_those_of_the_drafter_on_the_stored_features(tiny: World) -> None:
    run_dir = tiny.write()
    assert harness("evaluate", run_dir, "--foreground").returncode == 0
    inputs = tiny.case.tensors("inputs")
    features = inputs["context_features"].repeat(2, 1)[:55].bfloat16()
    groups = draft(
        drafter_of(tiny.case), tiny.case.vocabulary, "p0", inputs["token_ids"], features,
        spaced(10, 46, tiny.manifest.block_size - 1, 30), tiny.manifest.block_size,
    )  # fmt: skip
    assert near([b for b in tiny.blocks() if b.prompt == "p0"], [b for group in groups for b in group])


def test_a_quick_evaluation_is_part_of_the_full_one(tmp_path: Path) -> None:
    quick, full = world(tmp_path / "quick", blocks=15), world(tmp_path / "full")
    for one in (quick, full):
        assert harness("evaluate", one.write(), "--foreground").returncode == 0
    everything = {(block.prompt, block.anchor): block for block in full.blocks()}
    assert near(quick.blocks(), [everything[block.prompt, block.anchor] for block in quick.blocks()])


def test_the_audit_says_whose_embedding_and_head_were_used(tiny: World) -> None:
    run_dir = tiny.write()
    assert harness("evaluate", run_dir, "--foreground").returncode == 0
    audit = rundir.read(run_dir / rundir.AUDIT, Audit)
    assert (audit.family, audit.missing, audit.nonfinite) == ("dflash", (), ())
    assert (audit.embedding, audit.head) == ("target", "target")


def test_other_weights_than_the_manifest_asks_for_are_not_evaluated(tiny: World) -> None:
    first = tiny.write()
    assert harness("evaluate", first, "--foreground").returncode == 0
    identity = facts(first, "weights.id")[0].value
    shutil.rmtree(first)
    right = tiny.write(with_checkpoint(tiny.manifest, weights_id=identity))
    assert harness("evaluate", right, "--foreground").returncode == 0
    shutil.rmtree(right)
    wrong = tiny.write(with_checkpoint(tiny.manifest, weights_id="0" * 64))
    assert harness("evaluate", wrong, "--foreground").returncode == 1
    assert "WRONG_MODEL" in str(ended(wrong).error)
    assert not (wrong / rundir.RESULTS).exists()


def test_a_refused_prompt_is_left_out_and_said(tiny: World) -> None:
    prompts = tuple(replace(prompt, features_id=None) for prompt in tiny.manifest.prompts)
    run_dir = tiny.write(replace(tiny.manifest, prompts=prompts))
    (tiny.hidden_states / "p1.safetensors").unlink()
    hidden = torch.ones(55, 192, dtype=torch.bfloat16)
    hidden[7, 64:128] = 0
    write_features(tiny.hidden_states, "p1", hidden, list(range(56)), metadata(tiny.target, "p1", 10, (1, 3, 5)))
    assert harness("evaluate", run_dir, "--foreground").returncode == 0
    assert {block.prompt for block in tiny.blocks()} == {"p0", "p2"}
    assert set(rundir.read(run_dir / rundir.RESULTS, Results).per_prompt) == {"p0", "p2"}
    (refusal,) = facts(run_dir, "cache.refused")
    assert refusal.value["prompt"] == "p1"
    assert "all zero at token 7, layer 3" in refusal.value["reason"]
    assert "p1: left out" in (run_dir / rundir.LOG).read_text()


def test_a_completion_without_room_for_a_block_is_left_out_and_its_hidden_states_are_not_blamed(tiny: World) -> None:
    prompts = tuple(replace(prompt, features_id=None) for prompt in tiny.manifest.prompts)
    run_dir = tiny.write(replace(tiny.manifest, prompts=prompts))
    (tiny.hidden_states / "p1.safetensors").unlink()
    horizon = tiny.manifest.block_size - 1
    hidden, tokens = torch.ones(9 + horizon, 192, dtype=torch.bfloat16), list(range(10 + horizon))
    write_features(tiny.hidden_states, "p1", hidden, tokens, metadata(tiny.target, "p1", 10, (1, 3, 5)))
    assert harness("evaluate", run_dir, "--foreground").returncode == 0
    assert {block.prompt for block in tiny.blocks()} == {"p0", "p2"}
    (short,) = facts(run_dir, "prompts.short")
    assert short.value == {"prompt": "p1", "tokens": horizon, "horizon": horizon}
    assert facts(run_dir, "cache.refused") == []


def test_hidden_states_that_were_replaced_since_the_plan_are_left_out(tiny: World) -> None:
    run_dir = tiny.write()
    (tiny.hidden_states / "p1.safetensors").unlink()
    hidden, tokens = torch.ones(50, 192, dtype=torch.bfloat16), list(range(51))
    write_features(tiny.hidden_states, "p1", hidden, tokens, metadata(tiny.target, "p1", 10, (1, 3, 5)))
    assert harness("evaluate", run_dir, "--foreground").returncode == 0
    (refusal,) = facts(run_dir, "cache.refused")
    assert "not the file that was there when this run was planned" in refusal.value["reason"]


def test_without_usable_hidden_states_there_is_no_result(tiny: World) -> None:
    run_dir = tiny.write(
        replace(tiny.manifest, prompts=tuple(replace(p, features=None) for p in tiny.manifest.prompts))
    )
    assert harness("evaluate", run_dir, "--foreground").returncode == 1
    assert "no prompt has usable hidden states" in str(ended(run_dir).error)


def test_a_target_that_changed_since_the_plan_is_not_used(tiny: World) -> None:
    run_dir = tiny.write()
    config = tiny.target.folder / "config.json"
    config.write_text(config.read_text().replace("qwen3", "qwen4"))
    assert harness("evaluate", run_dir, "--foreground").returncode == 1
    assert "changed since this run was planned" in str(ended(run_dir).error)


def test_drafting_from_the_anchor_is_refused_for_now(tiny: World) -> None:
    drafter = replace(tiny.manifest.settings, sample_from_anchor=True)
    run_dir = tiny.write(replace(tiny.manifest, drafter=drafter))
    assert harness("evaluate", run_dir, "--foreground").returncode == 1
    assert "sample_from_anchor" in str(ended(run_dir).error)


def test_a_broken_manifest_is_one_sentence_in_exit_json(tiny: World) -> None:
    run_dir = tiny.write()
    (run_dir / rundir.MANIFEST).write_text('{"version": 1}')
    assert harness("evaluate", run_dir).returncode == 0
    exit_record = ended(run_dir)
    assert (exit_record.state, exit_record.code) == ("failed", 1)
    assert f"{run_dir / rundir.MANIFEST}: Manifest lacks run_id" in str(exit_record.error)


def test_a_run_directory_is_used_once(tiny: World) -> None:
    run_dir = tiny.write()
    assert harness("evaluate", run_dir, "--foreground").returncode == 0
    before = {path.name: path.read_bytes() for path in run_dir.iterdir()}
    again = harness("evaluate", run_dir, "--foreground")
    assert again.returncode == 1
    assert "used once" in again.stderr
    assert {path.name: path.read_bytes() for path in run_dir.iterdir()} == before


def test_a_folder_without_a_request_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    refused = harness("evaluate", tmp_path)
    assert (refused.returncode, list(tmp_path.iterdir())) == (1, [])
    assert f"{tmp_path / rundir.MANIFEST}: not there" in refused.stderr


def test_sigterm_while_torch_is_still_loading_ends_as_stopped(tiny: World) -> None:
    run_dir = tiny.write()
    assert harness("evaluate", run_dir).returncode == 0
    # On a busy machine all of it may have been done before the other command has begun.
    pid = rundir.read(run_dir / rundir.PROCESS, ProcessRecord).pid
    os.kill(pid, signal.SIGSTOP)
    assert harness("stop", run_dir).stdout == "stopping\n"
    os.kill(pid, signal.SIGCONT)
    assert ended(run_dir).state == "stopped"
    assert not (run_dir / rundir.RESULTS).exists()


def test_sigterm_in_the_middle_keeps_whole_blocks_and_no_results(tmp_path: Path) -> None:
    lasting = world(tmp_path, prompts=40, repeat=20)
    run_dir = lasting.write()
    assert harness("evaluate", run_dir).returncode == 0
    until(lambda: (run_dir / rundir.BLOCKS).exists(), "the first block was written")
    assert harness("state", run_dir).stdout == "running\n"
    process.stop(run_dir)
    assert ended(run_dir) == replace(ended(run_dir), state="stopped", code=130)
    assert not (run_dir / rundir.RESULTS).exists()
    assert (run_dir / rundir.BLOCKS).read_text().endswith("\n")
    assert 0 < len(read_blocks(run_dir)) < 1200
    assert harness("stop", run_dir).stdout == "not running\n"


def test_a_hangup_ends_as_stopped(tiny: World) -> None:
    run_dir = tiny.write()
    assert harness("evaluate", run_dir).returncode == 0
    os.kill(rundir.read(run_dir / rundir.PROCESS, ProcessRecord).pid, signal.SIGHUP)
    assert ended(run_dir) == replace(ended(run_dir), state="stopped", code=130, error="stopped by SIGHUP")


def test_sigkill_is_seen_as_lost(tiny: World) -> None:
    run_dir = tiny.write()
    assert harness("evaluate", run_dir).returncode == 0
    os.kill(rundir.read(run_dir / rundir.PROCESS, ProcessRecord).pid, signal.SIGKILL)
    until(lambda: process.state(run_dir) != "running", "the process was gone")
    assert harness("state", run_dir).stdout == "lost\n"
    assert not (run_dir / rundir.EXIT).exists()


def test_the_process_is_detached_niced_and_keeps_to_its_threads(tmp_path: Path) -> None:
    lasting = world(tmp_path, prompts=40, repeat=20)
    run_dir = lasting.write()
    assert harness("evaluate", run_dir).returncode == 0
    pid = rundir.read(run_dir / rundir.PROCESS, ProcessRecord).pid
    until(lambda: (run_dir / rundir.BLOCKS).exists(), "the first block was written")
    assert os.getsid(pid) not in (os.getsid(0), pid)  # own session, and not its leader: it can never get a terminal
    assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    assert os.readlink(f"/proc/{pid}/fd/1") == os.readlink(f"/proc/{pid}/fd/2") == os.fspath(run_dir / rundir.LOG)
    environment = Path(f"/proc/{pid}/task").iterdir()
    assert len(list(environment)) <= 3  # main, heartbeat, and at most one of torch's own
    process.stop(run_dir)
    assert ended(run_dir).state == "stopped"


def test_the_heartbeat_moves_while_nothing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "HEARTBEAT_SECONDS", 0.01)
    with rundir.Progress(tmp_path, 1):
        path = tmp_path / rundir.PROGRESS
        os.utime(path, (0, 0))
        until(lambda: path.stat().st_mtime > 0, "the file was touched")
    os.utime(path, (0, 0))
    assert path.stat().st_mtime == 0


def test_without_torch_it_says_what_to_run(tiny: World) -> None:
    run_dir = tiny.write()
    refused = harness("evaluate", run_dir, python=["-S"])
    assert refused.returncode == 1
    assert "has no torch" in refused.stderr
    assert "-m pip install torch" in refused.stderr
    assert process.state(run_dir) == "failed"
    assert "has no torch" in str(ended(run_dir).error)


@pytest.mark.parametrize("argv", [[], ["evaluate"], ["dance"], ["survey", "x"], ["evaluate", "a", "--now"]])
def test_what_is_no_command_is_answered_with_the_commands(argv: list[str]) -> None:
    refused = harness(*argv)
    assert refused.returncode == 2
    assert "evaluate RUN_DIR" in refused.stderr
