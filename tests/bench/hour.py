"""The app's memory over an hour: it watches a training and follows an evaluation on another host, in a loop whose hours
are short. Files, commands, watch, fold and screen are the real ones; prints one JSON line for each ten minutes.

    python -m tests.bench.hour [MINUTES]
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import random
import selectors
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dflash_tui.config import Config, EvaluationConfig, TrainingConfig
from dflash_tui.console.console import Console
from dflash_tui.harness import process, rundir
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.process import ProgressRecord
from dflash_tui.results.store import Store
from dflash_tui.tui.app import DflashApp
from tests.bench.watched import save
from tests.runs import TEN, drafted, manifest, write_run

HURRY = 90.0
MINUTES = 60
WARM_UP = 10
EVERY = 10
LINE = "[2026-05-21 09:36:25] step={step}/90000 loss={loss:.4f} lr=2.90e-04 tok/s=19.5K grad_norm={norm:.3f}\n"
RUN = "slammed5-step4000-full"


class HurriedSelector(selectors.DefaultSelector):
    """Waits the HURRY-th part of what is asked."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector.select`."""
        return super().select(timeout if timeout is None else timeout / HURRY)


class HurriedLoop(asyncio.SelectorEventLoop):
    """Its seconds pass HURRY times as fast."""

    def __init__(self) -> None:
        super().__init__(HurriedSelector())

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop.time`."""
        return time.monotonic() * HURRY


@dataclass(frozen=True)
class Sample:
    """Resident MiB after `minutes`; what the app has shown by then: the step, the blocks, and how often it drew."""

    minutes: int
    resident: float
    step: int | None
    blocks: int
    drawn: int


class World:
    """A training and an evaluation that go on by the loop's clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace, self.root = folder / "workspace", folder / "eval"
        self.run_dir = self.root / "runs" / RUN
        self.step = 4000
        self.chance = random.Random(1)
        (self.workspace / "checkpoints").mkdir(parents=True)
        save(self.workspace, self.step)
        self.log = self.workspace / "train.log"
        self.config = Config(
            path=str(folder / "config.toml"),
            training=TrainingConfig("slammed5", "train", str(self.log), str(self.workspace / "checkpoints")),
            evaluation=EvaluationConfig(
                "lab", str(self.root), "/models/target", "/eval/prompts.jsonl", ("/eval/hidden",), sys.executable
            ),
            hosts={},
        )
        self.store = Store(folder / "state")
        self._begin_run()
        self.grow()

    def _begin_run(self) -> None:
        """A run of this process, known at home, of which nothing has come home."""
        place = Fact("run.directory", str(self.run_dir), Source("lab", str(self.run_dir)), rundir.now())
        asked = replace(manifest(RUN), facts=(place,))
        write_run(self.run_dir, asked, (), finished=False)
        write_run(self.store.run_folder(RUN), asked, (), finished=False)
        process.record(self.run_dir)
        self.blocks = list(drafted(TEN))

    def grow(self) -> None:
        """A second of the training."""
        self.step += 1
        with self.log.open("a") as stream:
            loss, norm = 2 + self.chance.random() / 10, self.chance.random()
            stream.write(LINE.format(step=self.step, loss=loss, norm=norm))

    def draft(self, done: int) -> None:
        """A block of the evaluation."""
        block = self.blocks[done % len(self.blocks)]
        rundir.append(self.run_dir / rundir.BLOCKS, [block])
        inside = sum(other.prompt == block.prompt for other in self.blocks[: done + 1])
        line = ProgressRecord(rundir.now(), "drafting", done + 1, len(self.blocks), block.prompt, inside, 30)
        rundir.append(self.run_dir / rundir.PROGRESS, [line])
        rundir.say(self.run_dir, f"{block.prompt}: block {inside}")

    async def live(self) -> None:
        """A line a second, a block every twelve, a checkpoint every fifteen minutes, a heartbeat every five."""
        begun, seconds = asyncio.get_running_loop().time(), 0
        while True:
            seconds += 1
            await asyncio.sleep(begun + seconds - asyncio.get_running_loop().time())
            self.grow()
            if seconds % 12 == 0 and seconds // 12 <= len(self.blocks):
                self.draft(seconds // 12 - 1)
            elif seconds % 5 == 0:
                (self.run_dir / rundir.PROGRESS).touch()
            if seconds % 900 == 0:
                save(self.workspace, self.step)


def resident() -> float:
    """MiB that this process holds, without what it could give back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


async def live(folder: Path, minutes: int, tell: Callable[[Sample], None]) -> None:
    """Show the app for so many of the loop's minutes after WARM_UP, and tell a sample every EVERY."""
    world, begun = World(folder), time.monotonic()
    wall = time.time()
    hosts = {"train": LocalHost("train"), "lab": LocalHost("lab"), "local": LocalHost("local")}
    console = Console(world.config, world.store, hosts, clock=lambda: wall + (time.monotonic() - begun) * HURRY)
    app = Drawn(console)
    async with app.run_test(size=(120, 40)):
        living = asyncio.create_task(world.live())
        start = asyncio.get_running_loop().time()
        for passed in range(0, minutes + 1, EVERY):
            await asyncio.sleep(start + 60 * (WARM_UP + passed) - asyncio.get_running_loop().time())
            state = console.state
            step = state.training.progress.step if state.training.progress else None
            tell(Sample(passed, resident(), step, len(state.evaluation.blocks), app.drawn))
        living.cancel()
    await console.close()


class Drawn(DflashApp):
    """Counts how often it shows a new state."""

    drawn = 0

    def on_state_changed(self) -> None:
        """See `DflashApp.on_state_changed`."""
        self.drawn += 1
        super().on_state_changed()


def main(minutes: int = MINUTES) -> None:
    """Print a JSON line a sample."""

    def tell(sample: Sample) -> None:
        plain: dict[str, Any] = {**vars(sample)}
        print(json.dumps(plain), flush=True)

    with tempfile.TemporaryDirectory(prefix="hour-") as folder, asyncio.Runner(loop_factory=HurriedLoop) as runner:
        os.environ["HOME"] = folder
        runner.run(live(Path(folder), minutes, tell))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
