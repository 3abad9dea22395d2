"""A checkpoint evaluated by a script of the user's own: planned, run, brought home, compared."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.config import HarnessConfig
from dflash_tui.console import events as happened
from dflash_tui.console.acts import kept, reattach
from dflash_tui.console.acts.external import evaluate_external
from dflash_tui.console.acts.shown import pin_shown
from dflash_tui.console.acts.stop import stop_run
from dflash_tui.console.console import Console
from dflash_tui.console.errors import ConsoleError
from dflash_tui.evals import attach
from dflash_tui.evals.errors import EvaluationError, EvaluationRefused, RunEnded
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.codec import loads
from dflash_tui.records.manifest import Manifest
from dflash_tui.records.process import ProcessRecord
from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.compare import compare
from dflash_tui.results.errors import ResultError
from dflash_tui.results.importers import import_file
from dflash_tui.results.store import Store
from tests.cases import known
from tests.console.world import Bench, bench
from tests.harness.external_world import OLD, SCRIPT


@dataclass
class Own:
    """A bench whose user has a script in `folder` with old results beside it."""

    bench: Bench
    folder: Path

    @property
    def fixed(self) -> Path:
        return self.folder / "eval_results.json"

    @property
    def runs(self) -> Path:
        return self.bench.root / "lab" / "eval" / "runs"

    def uses(self, *words: str, **changes: Any) -> Console:
        """The console of a user whose [harness] has these words."""
        harness = HarnessConfig((sys.executable, os.fspath(self.folder / "run_eval.py"), *words), **changes)
        console = self.bench.console
        console.config = replace(console.config, harness=harness)
        return console

    def manifest(self, run_id: str) -> Manifest:
        path = self.runs / run_id / "manifest.json"
        return loads(Manifest, path.read_bytes(), str(path))

    def notices(self) -> list[str]:
        return [event.sentence for event in self.bench.told if isinstance(event, happened.Noticed)]


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Own]:
    made = bench(tmp_path)
    made.save(4000)
    folder = tmp_path / "scripts"
    folder.mkdir()
    shutil.copyfile(SCRIPT, folder / "run_eval.py")
    (folder / "eval_results.json").write_bytes(OLD)
    yield Own(made, folder)
    await made.console.close()
    for path in (tmp_path / "lab" / "eval").glob("runs/*/process.json"):
        with suppress(ProcessLookupError):
            os.kill(loads(ProcessRecord, path.read_bytes(), str(path)).pid, signal.SIGKILL)


async def until(true: Any, what: str) -> None:
    try:
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what}") from None


async def test_its_result_comes_home_with_what_is_known_of_the_checkpoint(own: Own) -> None:
    done = await evaluate_external(own.uses("say:hello", "bar:45/45", "write:"))
    result = done.evaluation
    assert not done.existing
    assert (result.training, result.step, result.preset, result.origin) == ("slammed5", 4000, "quick", "run")
    assert result.pooled.streak["top1"] == pytest.approx(143 / 45)
    assert (result.pooled.blocks, result.block_size, result.anchors) == (45, 16, None)
    assert (result.harness or "").startswith("external:")
    home = own.bench.console.store.run_folder(done.run_id)
    for name in ("manifest.json", "external.json", "log.txt", "progress.jsonl", "facts.jsonl", "exit.json"):
        assert (home / name).read_bytes() == (own.runs / done.run_id / name).read_bytes(), name
    assert own.fixed.read_bytes() == OLD
    pane = own.bench.console.state.evaluation
    assert "hello" in pane.log
    assert pane.progress is not None
    assert (pane.progress.done, pane.progress.total) == (45, 45)
    assert pane.state == "done"
    assert own.bench.console.state.results.current == result


async def test_caveats_are_those_of_an_import_and_of_the_evidence(own: Own) -> None:
    done = await evaluate_external(own.uses("write:"))
    found = {finding.code: finding for finding in caveats_of(done.evaluation)}
    assert found["BLOCK_SIZE_MISMATCH"].values == (16, 32)
    assert found["STEP_BEHIND_LIVE"].values == (4000, 5329, 1329)
    assert found["SMALL_N"].values == (3,)
    assert not {"ENGINE_PROXY", "LINKED_FILE_CHANGED", "STALE_CACHE", "WRONG_MODEL"} & found.keys()


async def test_it_stands_beside_a_baseline_as_an_import_does(own: Own) -> None:
    done = await evaluate_external(own.uses("write:"))
    previous = import_file(known("cases/story") / "eval_results.json", "previous")
    comparison = compare(done.evaluation, previous)
    assert comparison.verdict == "untestable"
    assert comparison.delta["top1"] == pytest.approx(2.4)


async def test_placeholders_are_filled_and_the_checkpoint_is_a_hard_link(own: Own) -> None:
    words = (
        "say:{checkpoint} {run_dir} {prompts} {blocks} {prompts_file} {block_size} {target} {hidden_states} {threads} "
        "{step} {{braces}}",
        "write:{run_dir}/results.json",
    )
    console = own.uses(*words, results=("{run_dir}/results.json",), environment={"WHERE": "{run_dir}"})
    done = await evaluate_external(console, preset="full")
    run_dir, lab = own.runs / done.run_id, own.bench.lab
    manifest = own.manifest(done.run_id)
    linked = run_dir / manifest.checkpoint.linked
    said = (
        f"{linked} {run_dir}/work 10 30 {lab.root}/prompts.jsonl 8 {lab.target.folder} {lab.hidden_states} 1 4000 "
        "{braces}"
    )
    assert said in (run_dir / "log.txt").read_text().splitlines()
    fetched = own.bench.root / "lab" / "eval" / "checkpoints" / "slammed5"
    assert linked.samefile(fetched / "step_4000-full" / "checkpoint.pt")  # what a script reads of it is not known
    assert manifest.external is not None
    assert manifest.external.environment == {"WHERE": f"{run_dir}/work"}
    assert done.evaluation.prompts_asked == ("p0", "p1", "p2", "p3")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("{checkpont}", r"found \{checkpont\} in '\{checkpont\}', which is .*; did you mean \{checkpoint\}\?"),
        ("{zz}", r"found \{zz\} .* known: checkpoint, run_dir"),
        ("a{b", r"found a lone '\{' in 'a\{b'; write '\{\{' for the character"),
    ],
)
async def test_an_unknown_placeholder_names_the_nearest_and_starts_nothing(own: Own, word: str, said: str) -> None:
    with pytest.raises(EvaluationError, match=said):
        await evaluate_external(own.uses(word))
    assert not own.runs.exists()
    assert not (own.bench.root / "lab" / "eval" / "checkpoints").exists()


async def test_a_program_that_is_not_there_costs_no_transfer(own: Own) -> None:
    console = own.uses()
    console.config = replace(console.config, harness=HarnessConfig(("/no/such/python", "x.py")))
    with pytest.raises(EvaluationRefused, match="lab: /no/such/python: no such program that can be run"):
        await evaluate_external(console)
    assert not (own.bench.root / "lab" / "eval" / "checkpoints").exists()


async def test_without_a_harness_in_the_config_it_says_where_one_is_shown(own: Own) -> None:
    with pytest.raises(ConsoleError, match=r"no \[harness\], which names your own evaluation script; the README"):
        await evaluate_external(own.bench.console)


async def test_an_importer_that_does_not_exist_is_named_first(own: Own) -> None:
    with pytest.raises(ResultError, match="found 'storey', which is no importer; did you mean 'story'"):
        await evaluate_external(own.uses("write:", import_as="storey"))


async def test_the_same_request_is_answered_once_and_a_changed_script_is_another_request(own: Own) -> None:
    console = own.uses("write:")
    first = await evaluate_external(console)
    again = await evaluate_external(console)
    assert (again.run_id, again.existing) == (first.run_id, True)
    assert again.evaluation == first.evaluation
    with (own.folder / "run_eval.py").open("a") as script:
        script.write("# another version\n")
    other = await evaluate_external(console)
    assert not other.existing
    assert other.evaluation.harness != first.evaluation.harness
    assert not (await evaluate_external(console, again=True)).existing


async def test_what_another_workstation_has_asked_is_answered_by_its_run(own: Own) -> None:
    console = own.uses("write:")
    first = await evaluate_external(console)
    other = Console(console.config, Store(own.bench.root / "other"), console.hosts)
    again = await evaluate_external(other)
    assert (again.run_id, again.existing) == (first.run_id, True)
    assert again.evaluation.pooled == first.evaluation.pooled
    assert len(list(own.runs.iterdir())) == 1


async def test_a_failed_script_is_told_with_its_last_line(own: Own) -> None:
    with pytest.raises(RunEnded, match=r"failed: .*run_eval.py ended with status 3: out of memory"):
        await evaluate_external(own.uses("half:", "err:out of memory", "end:3"))
    assert own.fixed.read_bytes() == OLD
    assert own.bench.console.state.evaluation.state == "failed"
    listed = kept.runs(own.bench.console.store, argparse.Namespace())
    assert [(line.state, line.blocks) for line in listed.runs] == [("failed", 0)]
    assert listed.problems == ()


async def test_a_result_of_no_known_shape_is_told_and_kept(own: Own) -> None:
    (own.folder / "other.py").write_text("open('out.json', 'w').write('{\"score\": 1}')")
    console = own.uses()
    script = os.fspath(own.folder / "other.py")
    console.config = replace(console.config, harness=HarnessConfig((sys.executable, script)))
    with pytest.raises(ResultError, match="not a result that can be read: found keys 'score'"):
        await evaluate_external(console)
    (run,) = own.bench.console.store.runs()
    assert json.loads((run.folder / "work" / "out.json").read_text()) == {"score": 1}


async def test_a_checkpoint_of_a_family_that_we_cannot_evaluate_is_the_scripts_matter(own: Own) -> None:
    folder = own.bench.workspace / "checkpoints" / "checkpoint-5000"
    shutil.copytree(known("cases/checkpoints/speculators-dflash2") / "0", folder)
    done = await evaluate_external(own.uses("write:"))
    manifest = own.manifest(done.run_id)
    assert manifest.drafter is None
    assert done.evaluation.step == 5000
    assert "SKIPPED_WEIGHTS" not in {finding.code for finding in caveats_of(done.evaluation)}


async def test_a_checkpoint_that_the_script_writes_into_voids_the_result(own: Own) -> None:
    done = await evaluate_external(own.uses("spoil:{checkpoint}", "write:"))
    found = {finding.code: finding for finding in caveats_of(done.evaluation)}
    assert found["LINKED_FILE_CHANGED"].severity == "void"
    assert found["LINKED_FILE_CHANGED"].values == ("checkpoint/checkpoint.pt", "header_sha256", "mtime")


async def test_it_goes_on_without_its_console_and_is_found_again(own: Own) -> None:
    gate = own.folder / "gate"
    os.mkfifo(gate)
    console = own.uses("say:begun", f"wait:{gate}", "write:")
    job = asyncio.create_task(evaluate_external(console))
    await until(lambda: "begun" in console.state.evaluation.log, "the script")
    run_id = console.state.evaluation.run_id
    job.cancel()
    await asyncio.wait({job})
    told: list[happened.Event] = []
    other = Console(console.config, Store(own.bench.root / "state"), {"lab": LocalHost("lab")}, told=told.append)
    assert reattach.left_running(other.store, "lab") == (run_id,)
    followed = asyncio.create_task(reattach.reattach(other, run_id))
    await until(lambda: "begun" in other.state.evaluation.log, "the log")
    await asyncio.to_thread(gate.write_text, "")
    await followed
    assert other.state.evaluation.state == "done"
    assert other.state.results.current is not None
    assert other.state.results.current.pooled.blocks == 45
    await other.close()


@pytest.mark.parametrize("state", ["state", "other"])
async def test_the_same_request_follows_one_that_was_left(own: Own, state: str) -> None:
    gate = own.folder / "gate"
    os.mkfifo(gate)
    console = own.uses("half:", "say:begun", f"wait:{gate}", "write:")
    job = asyncio.create_task(evaluate_external(console))
    await until(lambda: "begun" in console.state.evaluation.log, "the script")
    run_id = console.state.evaluation.run_id
    job.cancel()
    await asyncio.wait({job})
    found = f"the same request, or dflash-tui show {run_id}, follows it"
    assert f"{run_id} goes on at lab; {found}" in own.notices()
    later = Console(console.config, Store(own.bench.root / state), console.hosts)
    again = asyncio.create_task(evaluate_external(later))
    await until(lambda: "begun" in later.state.evaluation.log, "the log")
    await asyncio.to_thread(gate.write_text, "")
    done = await again
    assert (done.run_id, done.existing) == (run_id, True)
    assert [path.name for path in own.runs.iterdir()] == [run_id]


async def test_stop_ends_it_and_puts_the_old_file_back(own: Own) -> None:
    gate = own.folder / "gate"
    os.mkfifo(gate)
    console = own.uses("half:", "say:begun", f"wait:{gate}")
    job = asyncio.create_task(evaluate_external(console))
    await until(lambda: "begun" in console.state.evaluation.log, "the script")
    stopped = await stop_run(console, console.state.evaluation.run_id)
    assert stopped.state == "stopped"
    with pytest.raises(RunEnded, match="stopped by SIGTERM"):
        await job
    assert own.fixed.read_bytes() == OLD


async def test_a_run_that_is_killed_while_it_is_followed_is_lost_and_the_old_file_is_back(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "ASK_SECONDS", 1.0)
    gate = own.folder / "gate"
    os.mkfifo(gate)
    console = own.uses("half:", "say:begun", f"wait:{gate}")
    job = asyncio.create_task(evaluate_external(console))
    await until(lambda: "begun" in console.state.evaluation.log, "the script")
    path = own.runs / console.state.evaluation.run_id / "process.json"
    os.kill(loads(ProcessRecord, path.read_bytes(), "process.json").pid, signal.SIGKILL)
    with pytest.raises(RunEnded, match="lost: the process is gone"):
        await job
    assert own.fixed.read_bytes() == OLD


async def test_what_a_killed_run_left_is_put_back_when_the_console_starts(own: Own) -> None:
    gate = own.folder / "gate"
    os.mkfifo(gate)
    console = own.uses("half:", "say:begun", f"wait:{gate}")
    job = asyncio.create_task(evaluate_external(console))
    await until(lambda: "begun" in console.state.evaluation.log, "the script")
    path = own.runs / console.state.evaluation.run_id / "process.json"
    job.cancel()
    await asyncio.wait({job})
    os.kill(loads(ProcessRecord, path.read_bytes(), "process.json").pid, signal.SIGKILL)
    assert own.fixed.read_bytes() != OLD
    # Of another workstation: it knows nothing of that run, only the root that it lies in.
    store = Store(own.bench.root / "other")
    other = Console(replace(console.config, baselines=()), store, console.hosts, told=own.bench.told.append)
    await other.start()
    await until(lambda: own.fixed.read_bytes() == OLD, "the old file")
    await until(lambda: any("did not live to put old files back" in said for said in own.notices()), "the notice")
    await other.close()


async def test_a_run_can_be_pinned_and_its_pin_outlives_it(own: Own) -> None:
    done = await evaluate_external(own.uses("write:"))
    console = own.bench.console
    await pin_shown(console, name="mine")
    shutil.rmtree(console.store.run_folder(done.run_id))
    assert console.store.pins.load("mine").pooled == done.evaluation.pooled
