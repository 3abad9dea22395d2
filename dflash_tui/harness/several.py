"""Several evaluations by one process, one after the other: a checkpoint, and the baselines that stand beside it.

Each has a run directory of its own, with every record that a run alone has: its process (the same for all), its own
progress, log and end. What they read in common is read once (`harness.shared`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from dflash_tui.harness import process, rundir
from dflash_tui.harness.errors import Stopped
from dflash_tui.harness.neighbours import QUEUED
from dflash_tui.harness.rundir import Progress
from dflash_tui.records.process import ExitRecord


def carry_out(
    run_dir: Path, work: Callable[[Path], None], started: Callable[[], None], beside: Sequence[Path] = ()
) -> int:
    """Run `work` for `run_dir`, then for each of `beside`; the first one's exit status.

    One that fails, or is stopped by its name, costs none of the others; but where a first one that is no baseline's has
    not finished, there is nothing to stand beside, and those that wait are ended as stopped.
    """
    if not beside:
        return process.carry_out(run_dir, work, started)
    return _Several(run_dir, beside).carry_out(work, started)


class _Several:
    """The runs of one process: the one that works, and those that wait for it."""

    def __init__(self, first: Path, beside: Sequence[Path]) -> None:
        self._first, self._at = first, first
        self._waiting: dict[Path, ExitStack] = {run_dir: ExitStack() for run_dir in beside}
        self._over = False  # a signal that named no run: the process was to end

    def carry_out(self, work: Callable[[Path], None], started: Callable[[], None]) -> int:
        leads = not rundir.baseline(self._first)

        def begun() -> None:
            self._queue()
            started()

        code = self._one(self._first, work, begun)
        if code and leads:
            self._end_all(f"{self._first.name} has not finished, so there was nothing to evaluate this beside")
        while self._waiting:
            if self._over:
                self._end_all("stopped with the process before its turn came")
                break
            run_dir, queued = next(iter(self._waiting.items()))
            if (run_dir / rundir.STOP).exists():  # asked between two runs, when nobody listened
                self._end(run_dir, "stopped before its turn came")
                continue
            del self._waiting[run_dir]
            queued.close()
            self._follow_with_output(run_dir)
            self._one(run_dir, work, lambda: None)
        return code

    def _one(self, run_dir: Path, work: Callable[[Path], None], begun: Callable[[], None]) -> int:
        self._at = run_dir
        with process.Ending(run_dir, self._signalled) as ending:
            if run_dir == self._first:
                process.record(run_dir)
            begun()
            work(run_dir)
        return ending.code

    def _queue(self) -> None:
        """Those that wait are of this process from now on, and their hearts beat."""
        for run_dir, queued in tuple(self._waiting.items()):
            try:
                process.record(run_dir)
                progress = queued.enter_context(Progress(run_dir, 0))
                progress.report(QUEUED, behind=self._first.name)
            except OSError as error:  # taken away meanwhile: that is no reason not to do the others
                rundir.say(self._first, f"{run_dir} can't be written ({error.strerror}); it is left out")
                self._waiting.pop(run_dir).close()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        asked = [run_dir for run_dir in (self._at, *self._waiting) if (run_dir / rundir.STOP).exists()]
        for run_dir in asked:
            if run_dir in self._waiting:
                self._end(run_dir, "stopped before its turn came")
        if not asked or self._at in asked:
            self._over = not asked
            raise Stopped(signal.Signals(number).name)

    def _end_all(self, sentence: str) -> None:
        for run_dir in tuple(self._waiting):
            self._end(run_dir, sentence)

    def _end(self, run_dir: Path, sentence: str) -> None:
        self._waiting.pop(run_dir).close()
        rundir.say(run_dir, sentence)
        rundir.write(run_dir / rundir.EXIT, ExitRecord("stopped", 130, rundir.now(), sentence))

    def _follow_with_output(self, run_dir: Path) -> None:
        """What is printed from now on belongs into this run's log, where output goes into logs at all."""
        log = self._first / rundir.LOG
        if log.exists() and os.path.samestat(os.fstat(2), log.stat()):
            sys.stdout.flush()
            sys.stderr.flush()
            process.redirect(run_dir / rundir.LOG)
