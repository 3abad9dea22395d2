"""Runs that were left before they ended: the same request finds them again, and none stands in the way of a new one."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from dflash_tui.console import events as happened
from dflash_tui.console.acts import reattach
from dflash_tui.console.acts.carry import Evaluated
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.console import Console
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.codec import loads
from dflash_tui.records.process import ExitRecord, ProcessRecord
from dflash_tui.results.store import Store
from tests.console.world import Bench, bench

FILES = ("manifest.json", "blocks.jsonl", "results.json", "log.txt", "progress.jsonl", "exit.json")


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench(tmp_path)
    made.save(4000)
    yield made
    await made.console.close()
    for path in (tmp_path / "lab" / "eval").glob("runs/*/process.json"):
        with suppress(ProcessLookupError):
            os.kill(loads(ProcessRecord, path.read_bytes(), str(path)).pid, signal.SIGKILL)


async def left(tiny: Bench) -> Path:
    """Start an evaluation and go away: its run directory. Its process is held until it is woken."""
    job = asyncio.create_task(evaluate(tiny.console))
    async with asyncio.timeout(60):
        while not tiny.of(happened.EvaluationStarted):
            await asyncio.sleep(0.01)
        run_dir = Path(tiny.console.state.evaluation.run_dir)
        while not (run_dir / "process.json").exists():
            await asyncio.sleep(0.001)
        send(run_dir, signal.SIGSTOP)
    job.cancel()
    await asyncio.wait({job})
    assert not (run_dir / "exit.json").exists()
    return run_dir


def send(run_dir: Path, number: signal.Signals) -> None:
    os.kill(loads(ProcessRecord, (run_dir / "process.json").read_bytes(), "process.json").pid, number)


async def ended(run_dir: Path) -> None:
    async with asyncio.timeout(60):
        while not (run_dir / "exit.json").exists():
            await asyncio.sleep(0.01)


def notices(tiny: Bench) -> list[str]:
    return [event.sentence for event in tiny.told if isinstance(event, happened.Noticed)]


def run_dirs(tiny: Bench) -> set[str]:
    return {path.name for path in (tiny.root / "lab" / "eval" / "runs").iterdir()}


async def test_leaving_says_that_the_run_goes_on_and_how_it_is_found(tiny: Bench) -> None:
    run_dir = await left(tiny)
    found = f"the same request, or dflash-tui show {run_dir.name}, follows it"
    assert f"{run_dir.name} goes on at lab; {found}" in notices(tiny)


async def test_the_same_request_follows_the_run_that_still_works_on_it(tiny: Bench) -> None:
    run_dir = await left(tiny)
    job = asyncio.create_task(evaluate(tiny.console))
    async with asyncio.timeout(60):
        while not any("works on the same request already" in sentence for sentence in notices(tiny)):
            await asyncio.sleep(0.01)
    send(run_dir, signal.SIGCONT)
    done: Evaluated = await job
    assert (done.run_id, done.existing) == (run_dir.name, True)
    assert done.evaluation.pooled.blocks == 45
    assert run_dirs(tiny) == {run_dir.name}
    assert tiny.console.state.evaluation.state == "done"


async def test_a_run_that_finished_while_nobody_looked_answers_the_request(tiny: Bench) -> None:
    run_dir = await left(tiny)
    send(run_dir, signal.SIGCONT)
    await ended(run_dir)
    done = await evaluate(tiny.console)
    assert (done.run_id, done.existing) == (run_dir.name, True)
    assert run_dirs(tiny) == {run_dir.name}
    for name in FILES:
        assert (tiny.console.store.run_folder(done.run_id) / name).read_bytes() == (run_dir / name).read_bytes(), name


async def test_again_starts_a_second_run_beside_one_that_still_works(tiny: Bench) -> None:
    run_dir = await left(tiny)
    job = asyncio.create_task(evaluate(tiny.console, again=True))
    async with asyncio.timeout(60):
        while tiny.console.state.evaluation.run_id in ("", run_dir.name):
            await asyncio.sleep(0.01)
    send(run_dir, signal.SIGCONT)  # it may have the turn, for which the second one waits
    done = await job
    assert done.run_id != run_dir.name
    assert not done.existing


async def test_a_lost_run_is_told_kept_as_lost_and_does_not_block_a_new_one(tiny: Bench) -> None:
    run_dir = await left(tiny)
    send(run_dir, signal.SIGKILL)
    done = await evaluate(tiny.console)
    assert not done.existing
    assert run_dirs(tiny) == {run_dir.name, done.run_id}
    assert any(sentence.startswith(f"{run_dir.name} was lost: the process is gone") for sentence in notices(tiny))
    kept = {run.run_id: run.exit for run in tiny.console.store.runs()}
    assert [record.state for record in (kept[run_dir.name], kept[done.run_id]) if record] == ["lost", "finished"]
    assert not (run_dir / "exit.json").exists()
    assert reattach.left_running(tiny.console.store, "lab") == ()


async def test_a_run_that_was_stopped_unseen_does_not_block_a_new_one(tiny: Bench) -> None:
    run_dir = await left(tiny)
    send(run_dir, signal.SIGTERM)
    send(run_dir, signal.SIGCONT)
    await ended(run_dir)
    done = await evaluate(tiny.console)
    assert not done.existing
    record = loads(ExitRecord, (tiny.console.store.run_folder(run_dir.name) / "exit.json").read_bytes(), "exit.json")
    assert record.state == "stopped"


async def test_a_run_whose_directory_was_removed_does_not_block_a_new_one(tiny: Bench) -> None:
    run_dir = await left(tiny)
    send(run_dir, signal.SIGKILL)
    shutil.rmtree(run_dir)
    done = await evaluate(tiny.console)
    assert not done.existing
    assert any(f"lab:{run_dir} is not there any more" in sentence for sentence in notices(tiny))


async def test_a_lost_run_is_shown_as_lost_at_the_next_start_and_asked_after_once(tiny: Bench) -> None:
    run_dir = await left(tiny)
    send(run_dir, signal.SIGKILL)
    await tiny.console.start()
    async with asyncio.timeout(60):
        while tiny.console.state.evaluation.state != "lost":
            await asyncio.sleep(0.01)
    assert reattach.left_running(tiny.console.store, "lab") == ()


async def test_two_consoles_may_follow_one_run_into_one_folder(tiny: Bench) -> None:
    run_dir = await left(tiny)
    other = Console(tiny.console.config, Store(tiny.console.store.state), {"lab": LocalHost("lab")})
    both = [asyncio.create_task(reattach.reattach(console, run_dir.name)) for console in (tiny.console, other)]
    send(run_dir, signal.SIGCONT)
    await asyncio.gather(*both)
    await other.close()
    for name in FILES:
        assert (tiny.console.store.run_folder(run_dir.name) / name).read_bytes() == (run_dir / name).read_bytes(), name
