"""Jobs side by side: each is stopped alone, waits for its turn, and is begun once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest
import torch

from dflash_tui.console import events as happened
from dflash_tui.console.acts.capture import capture
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.acts.fetch import fetch
from dflash_tui.console.console import Console
from dflash_tui.hosts.base import Process
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.codec import loads
from dflash_tui.records.process import ProcessRecord
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.watch.events import TrainingProgressed
from tests.console.world import Bench, bench, capturable


class SlowDisk(LocalHost):
    """A host from which no checkpoint's bytes come before `spun_up` is set: a program on stdin emits them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.spun_up = asyncio.Event()

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        return self._after(argv, stdin)

    @asynccontextmanager
    async def _after(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        if stdin:
            await self.spun_up.wait()
        async with super().stream(argv, stdin=stdin) as process:
            yield process


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    """The evaluation host's Python waits before a survey while the file `held` is there, and touches `surveyed`."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *" survey") touch {tmp_path}/surveyed\n'
        f'while [ -e {tmp_path}/held ]; do sleep 0.05; done;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    made = bench(tmp_path, python=str(python))
    made.save(4000)
    disk = SlowDisk("ct200")
    disk.spun_up.set()
    made.console = Console(
        made.console.config, made.console.store, {**made.console.hosts, "ct200": disk}, told=made.told.append
    )
    yield made
    await made.console.close()
    for path in (tmp_path / "lab" / "eval").glob("runs/*/process.json"):
        with suppress(ProcessLookupError):
            os.kill(loads(ProcessRecord, path.read_bytes(), str(path)).pid, signal.SIGKILL)


def disk_of(tiny: Bench) -> SlowDisk:
    disk = tiny.console.training_host
    assert isinstance(disk, SlowDisk)
    return disk


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def held_run(tiny: Bench) -> Path:
    """The directory of the run that has just been started, its process held by SIGSTOP."""
    await until(lambda: tiny.of(happened.EvaluationStarted))
    run_dir = Path(tiny.console.state.evaluation.run_dir)
    await until((run_dir / "process.json").exists)
    send(run_dir, signal.SIGSTOP)
    return run_dir


def send(run_dir: Path, number: signal.Signals) -> None:
    os.kill(loads(ProcessRecord, (run_dir / "process.json").read_bytes(), "process.json").pid, number)


async def test_stopping_a_transfer_leaves_the_evaluation_beside_it_alone(tiny: Bench) -> None:
    console = tiny.console
    console.begin("evaluate")
    run_dir = await held_run(tiny)
    disk_of(tiny).spun_up.clear()
    tiny.save(5000)
    console.begin("fetch")
    await until(lambda: console.state.transfer.step == 5000 and console.state.transfer.progress is not None)
    console.begin("stop")
    await until(lambda: console.state.transfer.state != "running")
    assert (
        console.state.transfer.error
        == "stopped; nothing of it is kept, because only whole files and pieces of 64 MiB are"
    )
    send(run_dir, signal.SIGCONT)
    await until(lambda: console.state.evaluation.state != "running")
    assert console.state.evaluation.state == "done"


async def test_an_evaluation_that_is_still_being_planned_can_be_stopped(tiny: Bench) -> None:
    (tiny.root / "held").touch()
    tiny.console.begin("evaluate")
    await until((tiny.root / "surveyed").exists)
    tiny.console.begin("stop")
    await until(lambda: tiny.console.state.evaluation.state != "planning")
    assert tiny.console.state.evaluation.state == "stopped"
    assert tiny.console.state.evaluation.error == "stopped before it was started"
    assert not (tiny.root / "lab" / "eval" / "runs").exists()


async def test_a_second_fetch_of_what_moves_already_begins_nothing_and_says_so(tiny: Bench) -> None:
    disk_of(tiny).spun_up.clear()
    console = tiny.console
    console.begin("fetch")
    console.begin("fetch")
    await until(lambda: tiny.of(happened.Noticed))
    assert [event.sentence for event in tiny.of(happened.Noticed)] == ["step_4000 is already moving to lab"]
    assert [pane.job for pane in console.state.transfers] == [console.state.transfer.job]
    await until(lambda: console.state.transfer.planned)
    console.begin("stop", job=console.state.transfer.job)
    await until(lambda: not console.state.transfers)
    ended = tiny.of(happened.TransferEnded)
    assert [event.stopped for event in ended] == [True]
    console.begin("stop", job=ended[0].job)
    await until(lambda: len(tiny.of(happened.Noticed)) == 2)
    assert tiny.of(happened.Noticed)[-1].sentence == "that transfer has ended meanwhile; nothing was stopped"


async def test_what_is_stopped_after_a_whole_piece_is_kept_and_its_bytes_are_told(tiny: Bench) -> None:
    console, path = tiny.console, tiny.save(5000)
    torch.save({"model_state_dict": {"fc.weight": torch.zeros(CHUNK // 4 + (4 << 20))}}, path)
    size = path.stat().st_size
    console.pace.limit = 100e6
    moving = asyncio.create_task(fetch(console, what="5000", mode="full"))

    def far() -> bool:
        progress = console.state.transfer.progress
        return progress is not None and CHUNK + (2 << 20) < progress.written < size

    await until(lambda: far() or tiny.of(happened.TransferEnded))
    assert console.state.transfer.continuable == CHUNK
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)
    (ended,) = tiny.of(happened.TransferEnded)
    assert (ended.stopped, ended.kept) == (True, CHUNK)
    assert ended.error == "stopped; 67.11 MB that arrived are kept and continued next time"


async def test_a_transfer_that_an_evaluation_needs_waits_for_the_first_and_moves_nothing_again(tiny: Bench) -> None:
    disk_of(tiny).spun_up.clear()
    tiny.console.begin("fetch")
    await until(lambda: tiny.console.state.transfer.planned)
    tiny.console.begin("evaluate")
    await until(lambda: len(tiny.console.state.transfers) == 2)
    assert tiny.console.state.transfer.planned, "what runs is shown, not what waits"
    disk_of(tiny).spun_up.set()
    await until(lambda: len(tiny.of(happened.TransferEnded)) == 2)
    ended = [event for event in tiny.told if isinstance(event, happened.TransferEnded)]
    assert [(event.error, event.already_there) for event in ended] == [(None, False), (None, True)]
    moving = [event for event in tiny.told if isinstance(event, happened.TransferAdvanced)]
    assert {event.progress.attempt for event in moving} == {1}


async def test_two_transfers_run_at_a_time_and_of_those_that_wait_the_newest_step_comes_first(tiny: Bench) -> None:
    for step in (1000, 2000, 3000):
        tiny.save(step)
    disk_of(tiny).spun_up.clear()
    console = tiny.console

    def planned() -> list[str]:
        return [event.job for event in tiny.of(happened.TransferPlanned)]

    fetching: list[asyncio.Task[object]] = []
    jobs: dict[str, int] = {}
    for step in (4000, 3000, 1000, 2000):
        jobs[f"of {step}"] = step
        fetching.append(asyncio.create_task(fetch(console, what=str(step), job=f"of {step}")))
        await until(lambda: len(tiny.of(happened.TransferStarted)) == len(jobs))
    await until(lambda: len(planned()) == 2)
    assert {jobs[job] for job in planned()} == {4000, 3000}
    disk_of(tiny).spun_up.set()
    await asyncio.gather(*fetching)
    assert [jobs[job] for job in planned()[2:]] == [2000, 1000]
    folder = tiny.root / "lab" / "eval" / "checkpoints" / "slammed5"
    assert {path.name for path in folder.iterdir()} == {f"step_{step}" for step in jobs.values()}


def told_lines(tiny: Bench) -> list[tuple[str, ...]]:
    return [event.new_lines for event in tiny.told if isinstance(event, TrainingProgressed)]


async def test_reconnecting_twice_at_once_watches_once(tiny: Bench) -> None:
    console = tiny.console
    await console.start()
    await until(lambda: console.state.training.log)
    console.begin("reconnect")
    console.begin("reconnect")
    await until(lambda: len([lines for lines in told_lines(tiny) if lines]) > 1)
    with (tiny.workspace / "train.log").open("a") as log:
        log.write("step=5330 loss=2.0\n")
    await until(lambda: console.state.training.log[-1:] == ("step=5330 loss=2.0",))
    await asyncio.sleep(0.5)  # time for a second watch to tell it too
    assert sum(lines.count("step=5330 loss=2.0") for lines in told_lines(tiny)) == 1
    written = (line.strip() for line in (tiny.workspace / "train.log").read_text().splitlines())
    assert len(console.state.training.log) == len([line for line in written if line]), "no line twice"


async def test_a_damaged_result_does_not_hide_a_run_that_still_works(tiny: Bench) -> None:
    done = await evaluate(tiny.console)
    tiny.told.clear()
    job = asyncio.create_task(evaluate(tiny.console, again=True))
    run_dir = await held_run(tiny)
    job.cancel()
    await asyncio.wait({job})
    (tiny.console.store.run_folder(done.run_id) / "blocks.jsonl").write_text("{\n")
    await tiny.console.start()
    await until(lambda: tiny.console.state.evaluation.label == f"found again: {run_dir.name}")
    send(run_dir, signal.SIGCONT)
    await until(lambda: tiny.console.state.evaluation.state == "done")


async def test_a_capture_that_was_left_is_followed_and_none_is_started_beside_it(tiny: Bench) -> None:
    capturable(tiny)
    job = asyncio.create_task(capture(tiny.console))
    run_dir = await held_run(tiny)
    job.cancel()
    await asyncio.wait({job})
    assert tiny.console.state.evaluation.state == "stopped"
    again = asyncio.create_task(capture(tiny.console))
    said = f"{run_dir.name} works on it already; it is followed"
    await until(lambda: happened.Noticed("info", said) in tiny.told)
    send(run_dir, signal.SIGCONT)
    assert (await again).captured == ("graph_bfs",)
    assert [path.name for path in run_dir.parent.iterdir()] == [run_dir.name]


async def test_a_key_that_repeats_leaves_one_evaluation_working_and_one_waiting(tiny: Bench) -> None:
    console = tiny.console
    (tiny.root / "held").touch()
    for _ in range(4):
        console.begin("evaluate", preset="quick")
    await until((tiny.root / "surveyed").exists)
    assert [waiting.preset for waiting in console.state.queue] == ["quick"]
    assert [event.sentence for event in tiny.told if isinstance(event, happened.Noticed)] == [
        "evaluate quick waits already"
    ] * 2
    (tiny.root / "held").unlink()
    await until(lambda: len(tiny.of(happened.EvaluationEnded)) == 2)
    assert console.state.queue == ()
    assert console.state.evaluation.existing


async def test_a_mistake_in_this_program_does_not_look_as_if_the_job_went_on(tiny: Bench) -> None:
    console = tiny.console

    async def broken() -> None:
        console.emit(happened.EvaluationAsked(console.new_job(), "full", "newest"))
        raise ZeroDivisionError("division by zero")

    console.do(broken(), "evaluate")
    await until(lambda: console.state.evaluation.state == "failed")
    assert console.state.evaluation.error == "job evaluate ended unexpectedly: ZeroDivisionError: division by zero"
