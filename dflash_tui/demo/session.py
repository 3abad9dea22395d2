"""The demo as a face sees it: a world, a console over it, checkpoints evaluated beside the published baseline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from dflash_tui.console import events as happened
from dflash_tui.console.acts.capture import capture
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.acts.fetch import snapshot_of
from dflash_tui.console.answers import DemoAnswer, entry
from dflash_tui.console.console import Console
from dflash_tui.console.narration import narrator
from dflash_tui.demo.errors import DemoError
from dflash_tui.demo.world import PUBLISHED, DemoWorld
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results.baselines import beside
from dflash_tui.results.caveats import caveats_of, caveats_of_pair, merged
from dflash_tui.results.compare import compare
from dflash_tui.results.store import Store

CHECKPOINTS = 3  # evaluated at least
PASSED = 2.5  # top-1 streak at which there is nothing more to show
LOOK_SECONDS = 1.0


class DemoSession:
    """A demo world with a console over it, from `open` to `close` (or as an async context)."""

    def __init__(
        self, *, block_size: int = 0, told: Callable[[happened.Event], None] | None = None, steps: int | None = None
    ) -> None:
        self._stack = AsyncExitStack()
        self._told = told
        self.world = DemoWorld(block_size=block_size or 16, steps=steps)
        self.console: Console | None = None

    async def open(self) -> Console:
        """Start the world; the console keeps its runs and pins inside it. Raises DemoError, HostError."""
        await self._stack.enter_async_context(self.world)
        store = Store(Path(self.world.root) / "workstation")
        self.console = Console(self.world.config, store, self.world.hosts, told=self._told)
        self._stack.push_async_callback(self.console.close)
        return self.console

    async def connect(self) -> Console:
        """`open` for the app: the console watches."""
        console = await self.open()
        await console.start()
        return console

    async def close(self) -> None:
        """End everything that the demo started and remove its folder."""
        await self._stack.aclose()

    async def __aenter__(self) -> DemoSession:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def run_headless(say: Callable[[str], None], *, block_size: int = 0, all_prompts: bool = False) -> DemoAnswer:
    """The main job without a screen: each newest checkpoint while the training runs, until the drafter has clearly
    learnt something; in the job of the first, the baseline on the same anchors. Raises DemoError when the trainer fails
    or there is no baseline, and whatever an act raises."""
    async with DemoSession(block_size=block_size, told=narrator(say)) as session:
        console, world = session.console, session.world
        assert console is not None
        if all_prompts:
            await capture(console)
        console.emit(happened.Noticed("info", f"{world.config.training.name} trains; waiting for its first checkpoint"))
        checkpoints: list[Evaluation] = []
        while True:
            seen = checkpoints[-1].step if checkpoints else None
            if await _next_checkpoint(console, world, seen) is None:
                break
            checkpoints.append((await evaluate(console, preset="full")).evaluation)
            if len(checkpoints) >= CHECKPOINTS and checkpoints[-1].pooled.streak["top1"] >= PASSED:
                break
        baseline = beside(console.store, PUBLISHED, checkpoints[-1]) if checkpoints else None
        if baseline is None:
            raise DemoError("no checkpoint was evaluated beside the baseline; what was said above says why")
        return DemoAnswer(
            baseline=entry(baseline, caveats_of(baseline)),
            checkpoints=tuple(entry(item, _caveats(item, baseline)) for item in checkpoints),
            comparisons=tuple(compare(item, baseline) for item in checkpoints),
        )


def _caveats(evaluation: Evaluation, baseline: Evaluation) -> tuple[Finding, ...]:
    """What is doubtful about a checkpoint's result and about setting it beside the baseline; what is doubtful about
    the baseline itself stands in its own entry."""
    return merged((*caveats_of(evaluation), *caveats_of_pair(evaluation, baseline)))


async def _next_checkpoint(console: Console, world: DemoWorld, after: int | None) -> int | None:
    """Wait for a complete checkpoint newer than step `after`, and for the training to log a step beyond it, as it has
    when a person presses the key; None when the training has ended without one."""
    while True:
        running = world.trainer_running
        snapshot = await snapshot_of(console)
        steps = [
            item.step for item in snapshot.checkpoints if item.completeness == "complete" and item.step is not None
        ]
        live = snapshot.progress.step if snapshot.progress else None
        if steps and (after is None or steps[-1] > after) and (not running or (live is not None and live > steps[-1])):
            return steps[-1]
        if not running:
            if failure := world.trainer_failure:
                raise DemoError(failure)
            return None
        await asyncio.sleep(LOOK_SECONDS)
