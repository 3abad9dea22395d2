"""The main job over real files and a real harness: watch, fetch, evaluate, compare."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict_saver import save

from dflash_tui.console import events as happened
from dflash_tui.console.acts import baselines, reattach
from dflash_tui.console.acts.baselines import refresh
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.acts.fetch import fetch
from dflash_tui.console.acts.shown import pin_shown, show_newest, toggle_common
from dflash_tui.console.console import Console
from dflash_tui.console.errors import ConsoleError
from dflash_tui.evals.errors import EvaluationError, EvaluationRefused
from dflash_tui.records.codec import loads
from dflash_tui.records.manifest import Manifest
from dflash_tui.records.process import ProcessRecord
from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.compare import compare
from dflash_tui.results.errors import NothingInCommon
from dflash_tui.tui.widgets.results import results_title
from tests.cases import known
from tests.console.world import Bench, bench


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench(tmp_path)
    made.save(4000)
    yield made
    await made.console.close()


def manifest_of(tiny: Bench, run_id: str) -> Manifest:
    path = tiny.root / "lab" / "eval" / "runs" / run_id / "manifest.json"
    return loads(Manifest, path.read_bytes(), str(path))


async def test_evaluates_the_newest_checkpoint_in_a_run_directory_of_its_own(tiny: Bench) -> None:
    done = await evaluate(tiny.console, preset="full")
    run_dir = tiny.root / "lab" / "eval" / "runs" / done.run_id
    manifest = manifest_of(tiny, done.run_id)
    assert not done.existing
    assert done.evaluation.step == 4000
    assert done.evaluation.training == "slammed5"
    assert done.evaluation.pooled.blocks == 30 * 3
    linked = run_dir / manifest.checkpoint.linked
    assert linked.stat().st_nlink >= 2
    assert linked.samefile(tiny.root / "lab" / "eval" / "checkpoints" / "slammed5" / "step_4000" / "checkpoint.pt")
    home = tiny.console.store.run_folder(done.run_id)
    for name in ("manifest.json", "blocks.jsonl", "results.json", "log.txt", "progress.jsonl", "exit.json"):
        assert (home / name).read_bytes() == (run_dir / name).read_bytes(), name
    assert tiny.console.state.evaluation.state == "done"
    assert tiny.console.state.results.current == done.evaluation


async def test_what_was_known_at_plan_time_is_in_the_manifest_with_its_sources(tiny: Bench) -> None:
    done = await evaluate(tiny.console, preset="full", block_size=6)
    facts = {fact.kind: fact for fact in done.evaluation.facts}
    assert facts["train.live"].value["step"] == 5329
    assert facts["train.live"].source.path.endswith("train.log")
    codes = {finding.code: finding for finding in caveats_of(done.evaluation)}
    assert codes["STEP_BEHIND_LIVE"].values == (4000, 5329, 1329)
    assert codes["PARTIAL_PROMPT_COVERAGE"].values == ("3/4",)
    assert codes["BLOCK_SIZE_MISMATCH"].values[0] == 6
    assert codes["SKIPPED_WEIGHTS"].severity == "note"
    assert "verifier_norm.weight" in codes["SKIPPED_WEIGHTS"].values
    assert not [finding for finding in codes.values() if finding.severity in ("void", "block")]


async def test_the_same_request_shows_the_existing_result_unless_asked_again(tiny: Bench) -> None:
    first = await evaluate(tiny.console)
    assert (await evaluate(tiny.console)).run_id == first.run_id
    assert (await evaluate(tiny.console)).existing
    again = await evaluate(tiny.console, again=True)
    assert again.run_id != first.run_id
    assert again.evaluation.blocks == first.evaluation.blocks
    assert (await evaluate(tiny.console, preset="full")).run_id not in (first.run_id, again.run_id)


async def test_a_fetch_moves_the_bytes_once(tiny: Bench) -> None:
    first = await fetch(tiny.console, mode="full")
    assert Path(first.folder, "checkpoint.pt").read_bytes() == first_bytes(tiny)
    assert not first.already_there
    assert (await fetch(tiny.console, mode="full")).already_there


def first_bytes(tiny: Bench) -> bytes:
    return (tiny.workspace / "checkpoints" / "step_4000" / "checkpoint.pt").read_bytes()


async def test_a_half_written_checkpoint_is_not_taken(tiny: Bench) -> None:
    path = tiny.save(6000)
    os.truncate(path, 300_000)
    done = await fetch(tiny.console)
    assert done.step == 4000


async def test_hidden_states_that_are_cut_are_a_caveat_of_the_result(tiny: Bench) -> None:
    os.truncate(tiny.lab.hidden_states / "p1.safetensors", 20_000)
    done = await evaluate(tiny.console, preset="full")
    (found,) = [finding for finding in caveats_of(done.evaluation) if finding.code == "CACHE_DANGLING"]
    assert (found.severity, found.scope) == ("void", "p1")
    assert "has 20000 bytes of 21856" in found.sentence
    assert done.evaluation.prompts_present == ("p0", "p2")


async def test_a_refusal_says_why_no_hidden_states_can_be_used(tiny: Bench) -> None:
    for path in tiny.lab.hidden_states.iterdir():
        os.truncate(path, 20_000)
    with pytest.raises(EvaluationRefused, match=r"^lab:.*none of the 3 prompts .*p0\.safetensors: has 20000"):
        await evaluate(tiny.console)


async def test_a_block_longer_than_every_completion_is_refused_with_both_lengths(tiny: Bench) -> None:
    with pytest.raises(EvaluationRefused, match=r"the longest completion has 46 tokens; at block size 64"):
        await evaluate(tiny.console, block_size=64)
    assert not (tiny.root / "lab" / "eval" / "runs").exists()


async def test_without_a_checkpoint_it_says_so(tmp_path: Path) -> None:
    empty = bench(tmp_path)
    (empty.workspace / "checkpoints").mkdir()
    with pytest.raises(ConsoleError, match="no checkpoint has been saved yet"):
        await evaluate(empty.console)
    assert empty.console.state.evaluation.state == "failed"
    await empty.console.close()


async def test_a_refusal_creates_no_run_directory_and_names_every_reason(tmp_path: Path) -> None:
    broken = bench(tmp_path, target=str(tmp_path / "nowhere"), hidden_states=(str(tmp_path / "neither"),))
    broken.save(4000)
    with pytest.raises(EvaluationRefused) as refused:
        await evaluate(broken.console)
    assert "nowhere" in str(refused.value)
    assert "neither" in str(refused.value)
    assert not (tmp_path / "lab" / "eval" / "runs").exists()
    await broken.console.close()


async def test_a_python_without_the_harness_s_needs_is_one_sentence(tmp_path: Path) -> None:
    broken = bench(tmp_path, python="/nonexistent/python3")
    broken.save(4000)
    with pytest.raises(EvaluationError, match=r"set evaluation\.python to a Python"):
        await evaluate(broken.console)
    await broken.console.close()


async def test_configured_baselines_are_pinned_and_missing_ones_are_a_caveat(tiny: Bench) -> None:
    await baselines.refresh(tiny.console)
    assert set(tiny.console.store.pins.entries()) == {"previous"}
    done = await evaluate(tiny.console)
    assert tiny.console.state.results.previous is not None
    assert tiny.console.state.results.previous.name == "previous"
    comparison = compare(done.evaluation, tiny.console.store.resolve("previous"))
    missing = [finding for finding in comparison.caveats if finding.code == "BASELINE_MISSING"]
    assert [finding.values for finding in missing] == [("z-lab",)]
    assert all(finding.code != "BASELINE_CHANGED" for finding in comparison.caveats)


async def started(tiny: Bench) -> Path:
    """Wait until the evaluation runs detached; its run directory."""
    async with asyncio.timeout(60):
        while not tiny.of(happened.EvaluationStarted):
            await asyncio.sleep(0.01)
        run_dir = Path(tiny.console.state.evaluation.run_dir)
        while not (run_dir / "process.json").exists():
            await asyncio.sleep(0.01)
    return run_dir


async def test_a_run_that_was_left_is_found_again(tiny: Bench) -> None:
    job = asyncio.create_task(evaluate(tiny.console, preset="full"))
    await started(tiny)
    job.cancel()
    await asyncio.wait({job})
    (run_id,) = reattach.left_running(tiny.console.store, "lab")
    await reattach.reattach(tiny.console, run_id)
    assert tiny.console.state.results.current is not None
    assert tiny.console.state.results.current.pooled.blocks == 90
    assert reattach.left_running(tiny.console.store, "lab") == ()


async def test_a_killed_evaluation_is_shown_as_lost_with_its_last_log_line(
    tiny: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dflash_tui.evals.attach.ASK_SECONDS", 0.5)
    job = asyncio.create_task(evaluate(tiny.console, preset="full"))
    run_dir = await started(tiny)
    process = loads(ProcessRecord, (run_dir / "process.json").read_bytes(), "process.json")
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EvaluationError, match=r"lost: .*last log line"):
        await job
    assert tiny.console.state.evaluation.state == "lost"


async def test_another_training_s_results_are_neither_shown_nor_compared_with(tiny: Bench) -> None:
    other = replace(tiny.console.config, training=replace(tiny.console.config.training, name="other"))
    stranger = Console(other, tiny.console.store, tiny.console.hosts)
    theirs = await evaluate(stranger)
    tiny.console.store.pins.pin("theirs", Path(theirs.evaluation.path))
    show_newest(tiny.console)
    assert tiny.console.state.results.current is None
    await evaluate(tiny.console)
    assert tiny.console.state.results.previous is None


async def test_a_result_is_not_compared_with_itself(tiny: Bench) -> None:
    await evaluate(tiny.console)
    await pin_shown(tiny.console, name="itself")
    assert tiny.console.state.results.previous is None
    assert tiny.console.state.results.comparison is None


async def test_different_prompts_can_be_compared_on_those_that_both_measured(tiny: Bench) -> None:
    quick = await evaluate(tiny.console, block_size=6)
    await pin_shown(tiny.console, name="quick")
    full = await evaluate(tiny.console, preset="full", block_size=7)
    assert full.evaluation.pooled.blocks > quick.evaluation.pooled.blocks
    withheld = tiny.console.state.results.comparison
    assert withheld is not None
    assert withheld.verdict == "not comparable"
    await toggle_common(tiny.console)
    assert "common parts" in results_title(tiny.console.state.results).plain
    common = tiny.console.state.results.comparison
    assert common is not None
    assert common.verdict != "not comparable"
    assert common.delta["top1"] is not None
    await toggle_common(tiny.console)
    assert tiny.console.state.results.comparison == withheld
    assert "common parts" not in results_title(tiny.console.state.results).plain


async def test_the_same_weights_under_another_step_are_not_evaluated_again_and_it_says_so(tiny: Bench) -> None:
    first = await evaluate(tiny.console)
    tiny.save(5000)
    done = await evaluate(tiny.console)
    assert (done.existing, done.run_id) == (True, first.run_id)
    folder = f"ct200:{tiny.workspace / 'checkpoints'}"
    (found,) = [item for item in caveats_of(done.evaluation) if item.code == "SAME_WEIGHTS_OTHER_FILE"]
    assert found.sentence.startswith(
        f"Step 5000 ({folder}/step_5000) holds the same weights as step 4000 of slammed5 "
        f"({folder}/step_4000), which was evaluated as {first.run_id}"
    )
    assert found.sentence in [event.sentence for event in tiny.of(happened.Noticed)]
    assert found in tiny.console.state.results.caveats
    assert "step 5000 = step 4000 · quick" in results_title(tiny.console.state.results).plain
    plan = tiny.of(happened.PlanMade)[-1]
    assert plan.lines[0].startswith("step 5000 of slammed5")
    again = await evaluate(tiny.console, step=4000)
    assert "SAME_WEIGHTS_OTHER_FILE" not in {item.code for item in caveats_of(again.evaluation)}


async def test_a_distributed_checkpoint_of_the_training_is_brought_and_known_as_the_same_weights(tiny: Bench) -> None:
    first = await evaluate(tiny.console)
    model = load_file(tiny.lab.case.folder / "model.safetensors")
    state = {"model": model, "optimizer": {"m": torch.ones(9)}, "step": 5000}
    save(state, checkpoint_id=tiny.workspace / "checkpoints" / "step_5000", no_dist=True)
    done = await evaluate(tiny.console)
    assert (done.existing, done.run_id) == (True, first.run_id)
    assert tiny.of(happened.PlanMade)[-1].lines[0].startswith("step 5000 of slammed5")


async def test_what_has_no_common_parts_is_said_once_and_stays_compared_on_everything(tiny: Bench) -> None:
    await refresh(tiny.console)
    await evaluate(tiny.console)
    assert tiny.console.state.results.previous is not None  # it keeps no prompts
    before = len(tiny.of(happened.Noticed))
    with pytest.raises(NothingInCommon):
        await toggle_common(tiny.console)
    assert (tiny.console.common, tiny.console.state.results.common) == (False, False)
    assert len(tiny.of(happened.Noticed)) == before  # whoever asked tells the sentence, and nothing else is told


async def test_a_console_that_only_watches_says_so_when_asked_to_evaluate(tiny: Bench) -> None:
    watching = Console(replace(tiny.console.config, evaluation=None), tiny.console.store, tiny.console.hosts)
    with pytest.raises(ConsoleError, match=r"without \[evaluation\] this console only watches"):
        await evaluate(watching)
    assert watching.state.evaluation.state == "failed"


async def test_plan_and_caveat_mean_the_same_training(tiny: Bench) -> None:
    for size in (6, 8):
        done = await evaluate(tiny.console, block_size=size)
        plan = next(event.lines for event in reversed(tiny.told) if isinstance(event, happened.PlanMade))
        config = tiny.console.config.drafter["config"]
        assert any(f"block size {size}, trained at 32 ({config}: block_size says 8)" in said for said in plan)
        (found,) = [item for item in caveats_of(done.evaluation) if item.code == "BLOCK_SIZE_MISMATCH"]
        assert found.values == (size, 32)
        assert f"{config}: block_size says 8" in found.sentence


async def test_facts_that_could_not_be_read_are_told_when_they_are_missed(tiny: Bench) -> None:
    (tiny.workspace / "train_args.json").unlink()
    done = await evaluate(tiny.console)
    sources = {fact.source.path for fact in done.evaluation.facts if fact.kind == "train.block_size"}
    assert not any(path.endswith("train_args.json") for path in sources)
    said = [event.sentence for event in tiny.told if isinstance(event, happened.Noticed)]
    assert any(s.startswith("not known of the training: ") and "train_args.json does not exist" in s for s in said)


async def test_a_single_file_s_hash_is_in_the_manifest_and_of_several_none(tiny: Bench) -> None:
    done = await evaluate(tiny.console)
    manifest = manifest_of(tiny, done.run_id)
    linked = tiny.root / "lab" / "eval" / "runs" / done.run_id / manifest.checkpoint.linked
    assert manifest.checkpoint.sha256 == hashlib.sha256(linked.read_bytes()).hexdigest()
    folder = tiny.workspace / "checkpoints" / "step_5000"
    shutil.copytree(known("cases/checkpoints/sharded-hf"), folder)
    (folder / "expected.json").unlink()
    done = await evaluate(tiny.console, again=True)  # the same weights
    manifest = manifest_of(tiny, done.run_id)
    assert (manifest.checkpoint.step, manifest.checkpoint.sha256) == (5000, None)
