"""The main job while cables are pulled for half a minute, in every phase: nothing is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.config import TransferConfig
from dflash_tui.console import events as happened
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.console import Console
from dflash_tui.results.store import Store
from dflash_tui.watch.events import TrainingProgressed, WatchLost, WatchRestored
from tests.bed.bed import Bed
from tests.bed.network import Wire
from tests.bed.test_main_job import assert_whole, the_run

CUT_SECONDS = 30.0
MEGABYTES = 96


async def so(true: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    try:
        async with asyncio.timeout(120):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited in vain for {what}")


@asynccontextmanager
async def pulled(*wires: Wire) -> AsyncIterator[None]:
    """The cables are out for half a minute, however long the block takes."""
    for wire in wires:
        wire.cut()
    end = asyncio.get_running_loop().time() + CUT_SECONDS
    try:
        yield
        await asyncio.sleep(end - asyncio.get_running_loop().time())
    finally:
        for wire in wires:
            wire.mend()


@asynccontextmanager
async def meanwhile(do: Callable[[], object], every: float) -> AsyncIterator[None]:
    """Something is done again and again beside the block."""

    async def again() -> None:
        while True:
            do()
            await asyncio.sleep(every)

    task = asyncio.create_task(again())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_phase_survives_half_a_minute_without_a_link(bed: Bed) -> None:
    source = bed.save_large(5000, MEGABYTES)
    size = source.stat().st_size
    fetched = bed.evaluations / "checkpoints" / "slammed5" / "step_5000-full"
    told: list[happened.Event] = []
    config = replace(bed.loaded(), transfer=TransferConfig(mode="full"))  # long enough to be cut
    console = Console(config, Store(bed.state), told=told.append)

    def losses() -> int:
        return sum(isinstance(event, WatchLost) for event in told)

    def restorations() -> int:
        return sum(isinstance(event, WatchRestored) for event in told)

    def step() -> int | None:
        return console.state.training.progress.step if console.state.training.progress else None

    def arrived() -> int:
        return max((path.stat().st_size for path in fetched.glob(".*.part")), default=0)

    def nothing_partial_under_a_final_name() -> None:
        found = fetched / "checkpoint.pt"
        assert not found.exists() or found.stat().st_size == size

    bed.hold("launch")
    bed.hold("evaluation")
    with bed.at_home():
        try:
            await console.start()
            await so(lambda: step() == 5329, "the log")
            async with meanwhile(bed.grow_log, 0.5), meanwhile(nothing_partial_under_a_final_name, 0.01):
                job = asyncio.create_task(evaluate(console, preset="full"))

                await so(lambda: arrived() > 4 << 20, "the transfer")
                async with pulled(bed.training_link):
                    assert not (fetched / "checkpoint.pt").exists()
                    await so(losses, "the watch's loss")
                    assert arrived() < size
                await so(lambda: bed.held("launch"), "the launch")
                moved = console.state.transfer
                await so(lambda: restorations() == 1, "the watch")

                lost = losses()
                async with pulled(bed.training_link, bed.evaluation_link):
                    await so(lambda: losses() > lost, "the watch's loss")
                    bed.release("launch")  # it begins where nobody can hear of it
                    await so(lambda: bed.held("evaluation"), "an evaluation in the dark")
                run_id = the_run(bed)
                process = bed.process(run_id)

                await so(lambda: len(console.state.evaluation.blocks) == 30, "the first prompt's blocks")
                async with pulled(bed.evaluation_link):
                    await so(lambda: noticed(told, "goes on and is looked for"), "the loss of the run")
                    assert not job.done()
                await so(lambda: noticed(told, f"{run_id} is followed again"), "the run")

                async with pulled(bed.evaluation_link):
                    bed.release("evaluation")
                    await so((bed.run_dir(run_id) / "exit.json").exists, "the end in the dark")
                    assert not (bed.state / "runs" / run_id / "exit.json").exists()
                done = await asyncio.wait_for(job, 60)

            last = bed.grow_log()
            await so(lambda: step() == last, "the log's end")
        finally:
            await console.close()

    assert (done.run_id, done.existing) == (run_id, False)
    assert (the_run(bed), bed.process(run_id)) == (run_id, process)
    assert len((bed.marks / "launches").read_text().splitlines()) == 1
    assert_whole(bed, run_id, 90)
    assert moved.sha256 == sha256(source) == sha256(fetched / "checkpoint.pt")
    assert restorations() == 2
    assert max(event.progress.attempt for event in told if isinstance(event, happened.TransferAdvanced)) > 1
    progressed = [event for event in told if isinstance(event, TrainingProgressed)]
    assert [line for event in progressed for line in event.new_lines] == bed.log.read_text().splitlines()


def noticed(told: list[happened.Event], words: str) -> bool:
    return any(isinstance(event, happened.Noticed) and words in event.sentence for event in told)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
