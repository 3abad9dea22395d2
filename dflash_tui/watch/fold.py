"""From lines to `Progress`: the same lines and times give the same progress, at once or one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from dflash_tui.watch.lines import Line
from dflash_tui.watch.parsers import parse, parse_unfinished
from dflash_tui.watch.progress import (
    HISTORY_LIMIT,
    STALL_FACTOR,
    STALL_FLOOR,
    Announced,
    Dater,
    Phase,
    Progress,
    stalled,
)
from dflash_tui.watch.rate import Observation, measured_rate, median_interval
from dflash_tui.watch.reading import Announcement, Reading

_SETUP_BARS = (
    "map", "filter", "loading", "writing", "generating", "downloading", "fetching", "tokenizing", "saving", "packing",
    "tokenizer", "model-", "model.safetensors", "grouping", "capturing", "casting", "flattening", "running tokenizer",
)  # fmt: skip
_OBSERVATIONS = 64
_SAVED_KEPT = 64
_TROUBLE_KEPT = 8


class Fold:
    """Folds a log, line by line. `announced` counts the checkpoints that it called saved."""

    def __init__(self) -> None:
        self.announced = 0
        self._progress = Progress(at=0.0)
        self._history: list[tuple[int, float]] = []
        self._seen: list[Observation] = []
        self._metrics: dict[str, float] = {}
        self._bar_total: int | None = None
        self._total_is_told = False  # by more than a bar
        self._block_size_is_of_a_step = False
        self._resume_step: int | None = None
        self._step_stamp: datetime | None = None
        self._last_line_stamp: datetime | None = None

    def add(self, line: Line) -> None:
        """Take a finished line."""
        self._progress = replace(self._progress, last_line=line, last_line_at=line.at)
        self._last_line_stamp = None
        for reading in parse(line.text):
            self._take(reading, line)
            self._last_line_stamp = reading.logged_at or self._last_line_stamp

    def add_unfinished(self, line: Line) -> None:
        """Take the line at the end that is still being written: only whole frames of bars in it count."""
        for reading in parse_unfinished(line.text):
            self._take(reading, line)

    def settle(self, modified_at: float, dated: Dater | None = None) -> None:
        """Date what was in the file before anybody looked: its last line is as old as the file's last change
        (`modified_at`, POSIX seconds of this machine). A step line before it is older by the difference of their
        stamps; where the last line has none, by its own stamp (`dated` knows the host's zone, which need not be the
        trainer's); without stamps it is at least that old."""
        progress = self._progress
        if progress.last_line is not None and progress.last_line.at is None:
            progress = replace(progress, last_line_at=modified_at)
        step_line = progress.last_step_line
        if step_line is not None and step_line.at is None:
            at = modified_at
            if step_line is not progress.last_line and self._step_stamp is not None:
                if self._last_line_stamp is not None:
                    at -= _seconds_between(self._step_stamp, self._last_line_stamp)
                elif dated is not None and (known := dated(self._step_stamp)) is not None:
                    at = min(at, known)
            progress = replace(progress, last_step_at=at)
        self._progress = progress

    def snapshot(self, now: float) -> Progress:
        """The progress at `now` (POSIX seconds)."""
        progress = self._progress
        rate = measured_rate(self._seen, progress.reported)
        interval = median_interval(self._seen)
        after = max(STALL_FLOOR, STALL_FACTOR * interval) if interval is not None else STALL_FLOOR
        left = None
        if rate is not None and progress.step is not None and progress.total is not None and not progress.epoch_scope:
            left = max(0, progress.total - progress.step) / rate.steps_per_second
        found = replace(
            progress,
            at=now,
            history=tuple(self._history),
            rate=rate,
            eta_seconds=left,
            stall_after=after,
            metrics=tuple(self._metrics.items()),
        )
        return replace(found, stalled=stalled(found, now))

    def _take(self, reading: Reading, line: Line) -> None:
        if reading.announcement is not None:
            self._announce(reading.announcement, line)
        if reading.logged_at is not None:
            self._progress = replace(self._progress, logged_at=reading.logged_at)
        if reading.bar and not self._is_training_bar(reading):
            return
        if reading.evaluation:
            self._remember(reading)
            return
        # After the end, a loss without a step is the summary's mean, not the newest.
        closing = self._progress.phase == "finished" and reading.step is None
        self._values(reading, line)
        if reading.step is not None:
            self._step(reading, line)
        if (reading.loss is not None or reading.grad_norm is not None) and not closing:
            self._loss(reading)
        elif self._progress.phase == "waiting" and _says_something(reading):
            self._phase("setup")
        self._remember(reading)

    def _is_training_bar(self, reading: Reading) -> bool:
        """A bar counts the training unless it is known set-up, or its total is another than the training's."""
        description = reading.description.lower()
        if (reading.step is None and reading.total is None) or description.startswith(_SETUP_BARS):
            self._phase("setup" if self._progress.step is None else self._progress.phase)
            return False
        expected = self._progress.total if self._total_is_told else self._bar_total
        if reading.total is None or expected is None or reading.total == expected:
            self._bar_total = reading.total or self._bar_total
            return True
        if not self._total_is_told and reading.total > expected:
            self._bar_total = reading.total
            return True
        if self._progress.step is not None and reading.total < expected:
            self._phase("evaluating")
        return False

    def _values(self, reading: Reading, line: Line) -> None:
        progress = self._progress
        claimed = replace(
            progress.reported,
            **{
                name: value
                for name in ("eta_seconds", "elapsed_seconds", "step_seconds", "steps_per_second")
                if (value := getattr(reading, name)) is not None
            },
        )
        if claimed != progress.reported:
            progress = replace(progress, reported=claimed)
        if reading.total is not None and reading.total > 0:
            progress = replace(progress, total=reading.total)
            self._total_is_told = self._total_is_told or not reading.bar
        told = {
            name: value
            for name in ("lr", "epoch", "epochs", "throughput")
            if (value := getattr(reading, name)) is not None
        }
        if reading.bar and reading.step is not None:
            told["epoch_scope"] = "epoch" in reading.description.lower() and not self._total_is_told
        progress = replace(progress, **told)
        if reading.block_size is not None and (reading.step is not None or not self._block_size_is_of_a_step):
            # What stands beside a step is the training's; a line of its own may be another part's.
            self._block_size_is_of_a_step = reading.step is not None
            progress = replace(progress, block_size=reading.block_size, block_size_line=line)
        self._progress = progress

    def _step(self, reading: Reading, line: Line) -> None:
        progress, step = self._progress, reading.step
        assert step is not None
        before = progress.step
        if before is not None and step < before:
            if reading.bar and not _starts_over(reading, before, progress):
                return  # a bar that lags behind the lines printed beside it
            progress = self._new_segment(step, before, progress)
        if step != before:
            self._seen.append(Observation(step, line.at, reading.logged_at))
            del self._seen[:-_OBSERVATIONS]
            self._step_stamp = reading.logged_at
            last = progress.total is not None and step >= progress.total and not reading.bar
            progress = replace(
                progress,
                step=step,
                last_step_line=line,
                last_step_at=line.at,
                phase="finished" if last else "training",
                finished=f"step {step} of {progress.total}" if last else "",
                error="",
            )
        elif progress.phase in ("setup", "evaluating", "saving"):
            progress = replace(progress, phase="training")
        self._progress = progress

    def _new_segment(self, step: int, before: int, progress: Progress) -> Progress:
        self._seen.clear()
        # What the resumed training repeats replaces the abandoned points, so that a chart has one value a step.
        self._history = [point for point in self._history if point[0] < step]
        resumed_from, self._resume_step = self._resume_step, None
        return replace(progress, segments=progress.segments + 1, went_back_from=before, resumed_from=resumed_from)

    def _loss(self, reading: Reading) -> None:
        progress = self._progress
        step = reading.step if reading.step is not None else progress.step
        bad = any(value is not None and not math.isfinite(value) for value in (reading.loss, reading.grad_norm))
        loss = reading.loss if reading.loss is not None and math.isfinite(reading.loss) else None
        norm = reading.grad_norm
        self._progress = replace(
            progress,
            nan=bad,
            nan_since=None if not bad else progress.nan_since if progress.nan else step,
            loss=loss if reading.loss is not None else None if bad else progress.loss,
            finite_loss=loss if loss is not None else progress.finite_loss,
            grad_norm=progress.grad_norm if norm is None else norm if math.isfinite(norm) else None,
        )
        if loss is not None and step is not None:
            self._point(step, loss)
        if self._progress.phase in ("waiting", "setup", "evaluating", "saving"):
            self._phase("training")  # a log that names no steps has only its losses to say so

    def _point(self, step: int, loss: float) -> None:
        history = self._history
        if history and history[-1][0] == step:
            history[-1] = (step, loss)
        elif not history or history[-1][0] < step:
            history.append((step, loss))
        if len(history) > HISTORY_LIMIT:
            # Every second point goes, counted from the newest, which stays.
            self._history = history[::-1][::2][::-1]

    def _announce(self, said: Announcement, line: Line) -> None:
        progress = self._progress
        if said.kind == "saved":
            self.announced += 1
            saved = (*progress.saved, Announced(said.path, said.step, line))[-_SAVED_KEPT:]
            phase: Phase = "training" if progress.phase == "saving" else progress.phase
            self._progress = replace(progress, saved=saved, phase=phase)
        elif said.kind == "saving":
            self._phase("saving")
        elif said.kind == "evaluating":
            self._phase("evaluating")
        elif said.kind == "started":
            if progress.step is None:
                self._phase("setup")
        elif said.kind == "resumed":
            self._seen.clear()  # the pause before a restart belongs to no rate
            self._resume_step = said.step
            self._progress = replace(progress, phase="setup", error="", finished="")
        elif said.kind == "finished":
            self._progress = replace(progress, phase="finished", finished=said.sentence)
        else:
            sentence = f"{line.where}: {said.sentence}"
            trouble = (*progress.trouble, sentence)[-_TROUBLE_KEPT:]
            # The first sentence is the cause; what follows it until the next step are its consequences.
            self._progress = replace(progress, phase="failed", error=progress.error or sentence, trouble=trouble)

    def _remember(self, reading: Reading) -> None:
        for key, value in reading.metrics:
            if math.isfinite(value) and (key in self._metrics or len(self._metrics) < 128):
                self._metrics[key] = value

    def _phase(self, phase: Phase) -> None:
        self._progress = replace(self._progress, phase=phase)


def progress_of(
    lines: Sequence[Line],
    now: float,
    *,
    pending: Line | None = None,
    modified_at: float | None = None,
    dated: Dater | None = None,
) -> Progress:
    """The progress that these lines tell; `modified_at` dates those that were there before (see `Fold.settle`)."""
    fold = Fold()
    for line in lines:
        fold.add(line)
    if pending is not None:
        fold.add_unfinished(pending)
    if modified_at is not None:
        fold.settle(modified_at, dated)
    return fold.snapshot(now)


def _starts_over(reading: Reading, before: int, progress: Progress) -> bool:
    """A bar far behind the last step is a new bar: the training was resumed, or a new epoch began."""
    return progress.phase in ("setup", "failed") or before - (reading.step or 0) > max(2, before // 10)


def _says_something(reading: Reading) -> bool:
    values = (reading.total, reading.lr, reading.epoch, reading.epochs, reading.throughput, reading.block_size)
    return bool(reading.metrics) or any(value is not None for value in values)


def _seconds_between(earlier: datetime, later: datetime) -> float:
    if (earlier.tzinfo is None) != (later.tzinfo is None):
        return 0.0
    return max(0.0, (later - earlier).total_seconds())
