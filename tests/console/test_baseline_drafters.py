"""Baseline drafters: evaluated in the job of a checkpoint, on the same anchors, and never at its cost."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_tui.config import BaselineConfig
from dflash_tui.console import events as happened
from dflash_tui.console.acts import baselines, kept, reattach
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.acts.shown import show_newest
from dflash_tui.console.console import Console
from dflash_tui.console.narration import narrator
from dflash_tui.evals import rundir
from dflash_tui.evals.errors import EvaluationError
from dflash_tui.evals.survey import survey
from dflash_tui.hosts.base import Host
from dflash_tui.records.codec import loads
from dflash_tui.records.manifest import Manifest
from dflash_tui.records.process import ProcessRecord
from dflash_tui.records.requests import SurveyRequest
from dflash_tui.records.survey import Survey
from dflash_tui.results.baselines import resolve, runs_of
from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.store import Store
from tests.console.world import Bench, bench


def drafter(tiny: Bench, name: str, *, noise: float = 0.02) -> Path:
    """A published drafter on the evaluation host: a folder with its config, weights near the checkpoint's."""
    folder = tiny.root / "lab" / "models" / name
    folder.mkdir(parents=True)
    shutil.copy(tiny.lab.case.folder / "config.json", folder)
    generator = torch.Generator().manual_seed(len(name))
    weights = load_file(tiny.lab.case.folder / "model.safetensors")
    for key, value in weights.items():
        weights[key] = (value.float() + noise * torch.randn(value.shape, generator=generator)).to(value.dtype)
    save_file(weights, folder / "model.safetensors")
    return folder


def configured(tiny: Bench, *declared: BaselineConfig) -> Console:
    """The bench's console with these baselines and no others."""
    tiny.console.config = replace(tiny.console.config, baselines=declared)
    return tiny.console


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench(tmp_path)
    made.save(4000)
    yield made
    await made.console.close()


def manifest_of(tiny: Bench, run_id: str) -> Manifest:
    path = tiny.root / "lab" / "eval" / "runs" / run_id / "manifest.json"
    return loads(Manifest, path.read_bytes(), str(path))


def process_of(tiny: Bench, run_id: str) -> ProcessRecord:
    path = tiny.root / "lab" / "eval" / "runs" / run_id / "process.json"
    return loads(ProcessRecord, path.read_bytes(), str(path))


def labels(tiny: Bench) -> list[str]:
    return [event.label for event in tiny.told if isinstance(event, happened.EvaluationAsked)]


async def test_it_is_evaluated_in_the_same_job_and_pairs_block_by_block(tiny: Bench) -> None:
    console = configured(tiny, BaselineConfig("published", drafter=str(drafter(tiny, "published"))))
    done = await evaluate(console, preset="full", block_size=6)
    (run,) = runs_of(console.store, "published")
    assert run.finished
    main, other = manifest_of(tiny, done.run_id), manifest_of(tiny, run.run_id)
    assert process_of(tiny, done.run_id) == replace(
        process_of(tiny, run.run_id), started_at=process_of(tiny, done.run_id).started_at
    )
    assert (other.block_size, other.preset, other.prompts) == (main.block_size, main.preset, main.prompts)
    assert (other.baseline, other.checkpoint.training, other.checkpoint.step) == ("published", "", None)
    assert run.run_id.startswith("baseline-published-")
    assert labels(tiny) == ["newest checkpoint", "baseline published"]
    comparison = console.state.results.comparison
    assert comparison is not None
    assert (comparison.current, comparison.previous, comparison.pairing) == (done.run_id, "published", "anchors")
    assert comparison.blocks == (90, 90)
    assert not {"STEP_BEHIND_LIVE", "BASELINE_MISSING"} & {
        item.code for item in caveats_of(resolve(console.store, "published"))
    }


async def test_its_answer_is_used_again_and_its_files_are_not_hashed_again(
    tiny: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = drafter(tiny, "published")
    console = configured(tiny, BaselineConfig("published", drafter=str(folder)))
    await evaluate(console, preset="full")
    (first,) = runs_of(console.store, "published")
    asked: list[SurveyRequest] = []

    async def watched(host: Host, python: str, harness: str, request: SurveyRequest) -> Survey:
        asked.append(request)
        return await survey(host, python, harness, request)

    monkeypatch.setattr("dflash_tui.console.acts.survey.survey", watched)
    tiny.save(5000)
    await evaluate(console, preset="full")
    await evaluate(console, preset="quick")
    assert [request.weights_id for request in asked if request.checkpoint == str(folder)] == [False, False]
    assert runs_of(console.store, "published") == (first,)
    assert console.state.results.previous is not None
    assert console.state.results.previous.name == "published (quick part)"
    comparison = console.state.results.comparison
    assert comparison is not None
    assert comparison.pairing == "anchors"


async def test_what_a_colleague_has_evaluated_beside_the_same_request_is_used_too(tiny: Bench) -> None:
    console = configured(tiny, BaselineConfig("published", drafter=str(drafter(tiny, "published"))))
    first = await evaluate(console)
    runs = tiny.root / "lab" / "eval" / "runs"
    made = sorted(path.name for path in runs.iterdir())
    said: list[str] = []
    other = Console(console.config, Store(tiny.root / "other"), console.hosts, told=narrator(said.append))
    again = await evaluate(other)
    assert (again.run_id, again.existing) == (first.run_id, True)
    assert sorted(path.name for path in runs.iterdir()) == made
    assert sorted(run.run_id for run in other.store.runs()) == made
    assert other.state.results.previous is not None
    assert other.state.results.previous.name == "published"
    assert {line.split()[1] for line in said if line.startswith("run ")} <= set(made)
    third = Console(console.config, Store(tiny.root / "third"), console.hosts)
    new = await evaluate(third, model=str(drafter(tiny, "another")))
    assert not new.existing
    assert third.state.results.previous is not None
    assert third.state.results.previous.name == "published"
    assert sorted(path.name for path in runs.iterdir()) == sorted((*made, new.run_id))


async def test_who_is_cancelled_before_a_run_begins_leaves_none(tiny: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    console = configured(tiny, BaselineConfig("published", drafter=str(drafter(tiny, "published"))))
    reached, go_on = asyncio.Event(), asyncio.Event()
    write = rundir.write_manifest

    async def slow(host: Host, run_dir: str, manifest: Manifest) -> None:
        await write(host, run_dir, manifest)
        reached.set()
        await go_on.wait()

    monkeypatch.setattr(rundir, "write_manifest", slow)
    job = asyncio.create_task(evaluate(console))
    await asyncio.wait_for(reached.wait(), 60)
    job.cancel()
    go_on.set()
    await asyncio.wait({job})
    assert job.cancelled()
    assert list((tiny.root / "lab" / "eval" / "runs").iterdir()) == []
    assert console.store.runs() == ()
    assert console.state.evaluation.error == "stopped before it was started"


async def test_another_block_size_or_other_weights_are_another_request(tiny: Bench) -> None:
    folder = drafter(tiny, "published")
    console = configured(tiny, BaselineConfig("published", drafter=str(folder)))
    await evaluate(console)
    await evaluate(console, block_size=6)
    assert len(runs_of(console.store, "published")) == 2
    assert console.state.results.previous is not None
    assert console.state.results.previous.block_size == 6
    save_file(
        {key: value * 1.01 for key, value in load_file(folder / "model.safetensors").items()},
        folder / "model.safetensors",
    )
    await evaluate(console, block_size=6)
    assert len(runs_of(console.store, "published")) == 3


async def test_one_that_is_configured_later_is_evaluated_alone_beside_the_result_that_is_there(tiny: Bench) -> None:
    console = configured(tiny)
    first = await evaluate(console)
    console = configured(tiny, BaselineConfig("published", drafter=str(drafter(tiny, "published"))))
    again = await evaluate(console)
    assert (again.run_id, again.existing) == (first.run_id, True)
    assert [run.finished for run in runs_of(console.store, "published")] == [True]
    assert console.state.results.comparison is not None


async def test_the_very_drafter_that_is_evaluated_is_not_evaluated_twice(tiny: Bench) -> None:
    folder = drafter(tiny, "same", noise=0.0)
    console = configured(tiny, BaselineConfig("same", drafter=str(folder)))
    done = await evaluate(console)
    assert runs_of(console.store, "same") == ()
    assert any("not evaluated twice" in event.sentence for event in tiny.told if isinstance(event, happened.Noticed))
    assert not [item for item in caveats_of(done.evaluation) if item.code == "BASELINE_MISSING"]


async def test_those_that_cannot_be_evaluated_are_withheld_with_the_reason(tiny: Bench) -> None:
    taps = drafter(tiny, "taps")
    config = json.loads((taps / "config.json").read_text())
    config["dflash_config"]["target_layer_ids"] = [1, 3, 6]
    (taps / "config.json").write_text(json.dumps(config))
    bare = drafter(tiny, "bare")
    (bare / "config.json").unlink()
    console = configured(
        tiny,
        BaselineConfig("gone", drafter=str(tiny.root / "lab" / "nowhere")),
        BaselineConfig("taps", drafter=str(taps)),
        BaselineConfig("bare", drafter=str(bare)),
        BaselineConfig("good", drafter=str(drafter(tiny, "good"))),
    )
    done = await evaluate(console)
    missing = {item.values[0]: item.sentence for item in caveats_of(done.evaluation) if item.code == "BASELINE_MISSING"}
    assert set(missing) == {"gone", "taps", "bare"}
    assert "does not exist" in missing["gone"]
    assert "layers 1,3,5, the drafter taps 1,3,6" in missing["taps"]
    assert "--drafter-config" in missing["bare"]
    assert "block_size" in missing["bare"]
    notices = [event.sentence for event in tiny.told if isinstance(event, happened.Noticed)]
    assert sum("is not evaluated" in sentence for sentence in notices) == 3
    assert console.state.results.previous is not None
    assert console.state.results.previous.name == "good"


async def test_one_that_fails_in_its_run_fails_nothing_else(tiny: Bench) -> None:
    folder = drafter(tiny, "bad")
    weights = load_file(folder / "model.safetensors")
    weights["norm.weight"] = torch.full_like(weights["norm.weight"], float("nan"))
    save_file(weights, folder / "model.safetensors")
    console = configured(tiny, BaselineConfig("bad", drafter=str(folder)))
    done = await evaluate(console)
    assert done.evaluation.pooled.blocks == 45
    assert console.state.results.previous is None
    (found,) = [item for item in caveats_of(done.evaluation) if item.code == "BASELINE_MISSING"]
    assert "NaN or infinity" in found.sentence
    assert console.state.evaluation.state == "failed"
    assert "baseline bad" in str(console.state.evaluation.error)


async def test_a_launch_that_is_refused_for_baselines_alone_keeps_the_result(
    tiny: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = configured(tiny)
    first = await evaluate(console)
    console = configured(tiny, BaselineConfig("published", drafter=str(drafter(tiny, "published"))))

    async def refused(*_: object, **__: object) -> str:
        raise EvaluationError("lab: no more processes")

    with monkeypatch.context() as patched:
        patched.setattr("dflash_tui.console.acts.evaluate.start", refused)
        done = await evaluate(console)
    assert (done.run_id, done.existing) == (first.run_id, True)
    notices = [event.sentence for event in tiny.told if isinstance(event, happened.Noticed)]
    assert "baselines are not evaluated: lab: no more processes" in notices


async def test_one_that_still_works_for_a_left_job_is_followed_and_not_started_again(tiny: Bench) -> None:
    console = configured(tiny, BaselineConfig("published", drafter=str(drafter(tiny, "published"))))
    job = asyncio.create_task(evaluate(console, preset="full"))
    async with asyncio.timeout(90):
        while console.state.evaluation.state != "running" and not job.done():
            await asyncio.sleep(0.005)
    job.cancel()
    await asyncio.wait({job})
    done = await evaluate(console, preset="full")
    assert done.existing
    (run,) = runs_of(console.store, "published")
    assert run.finished
    assert console.state.results.previous is not None
    assert console.state.results.previous.name == "published"


async def test_its_config_may_lie_elsewhere(tiny: Bench) -> None:
    folder = drafter(tiny, "bare")
    (folder / "config.json").rename(tiny.root / "lab" / "bare.json")
    console = configured(tiny, BaselineConfig("bare", drafter=str(folder), config=str(tiny.root / "lab" / "bare.json")))
    await evaluate(console)
    (run,) = runs_of(console.store, "bare")
    assert run.finished


async def test_one_of_another_host_is_moved_like_a_checkpoint(tiny: Bench) -> None:
    folder = drafter(tiny, "far")
    elsewhere = tiny.workspace / "far"
    shutil.move(folder, elsewhere)
    console = configured(tiny, BaselineConfig("far", drafter=str(elsewhere), host="ct200"))
    await evaluate(console)
    (moved,) = (tiny.root / "lab" / "eval" / "checkpoints" / "models").iterdir()
    assert moved.name.startswith("far-")
    assert len(moved.name) == len("far-") + 12
    (run,) = runs_of(console.store, "far")
    assert run.manifest is not None
    assert (run.manifest.checkpoint.host, run.manifest.checkpoint.path) == ("ct200", str(elsewhere))


async def test_runs_and_names_tell_which_are_baselines(tiny: Bench) -> None:
    console = configured(tiny, BaselineConfig("published", drafter=str(drafter(tiny, "published"))))
    done = await evaluate(console)
    listed = kept.runs(console.store, argparse.Namespace())
    assert {line.baseline for line in listed.runs} == {"", "published"}
    assert resolve(console.store, "published", done.evaluation).name == "published"
    compared = kept.compare(console.store, argparse.Namespace(current=done.run_id, previous="published", common=False))
    assert compared.pairing == "anchors"
    fresh = Console(console.config, console.store, console.hosts)
    show_newest(fresh)
    assert fresh.state.results.current is not None
    assert fresh.state.results.current.name == done.run_id


async def test_stopping_while_the_baseline_works_keeps_the_result_and_it_is_found_again(tiny: Bench) -> None:
    console = configured(tiny, BaselineConfig("published", drafter=str(drafter(tiny, "published"))))
    job = asyncio.create_task(evaluate(console, preset="full"))
    async with asyncio.timeout(90):
        while "baseline published" not in labels(tiny) and not job.done():
            await asyncio.sleep(0.005)
    job.cancel()
    await asyncio.wait({job})
    left = reattach.left_running(console.store, "lab")
    for run_id in left:
        await reattach.reattach(console, run_id)
    (run,) = runs_of(console.store, "published")
    assert run.finished
    assert console.state.results.current is not None
    assert console.state.results.current.step == 4000
    assert console.state.results.previous is not None
    assert console.state.results.previous.name == "published"


async def test_file_baselines_are_read_and_drafters_are_not(tiny: Bench) -> None:
    console = configured(tiny, BaselineConfig("published", drafter=str(tiny.root / "nowhere")))
    await baselines.refresh(console)
    assert not [event for event in tiny.told if isinstance(event, happened.Noticed)]
