"""What a log means for the training: folded line by line with a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.watch.clock import HostClock
from dflash_tui.watch.fold import Fold, progress_of
from dflash_tui.watch.lines import Line, LineSplitter
from dflash_tui.watch.progress import HISTORY_LIMIT, Progress, line_age, stalled, step_age
from dflash_tui.watch.reading import Throughput
from tests.cases import known

NOON = 1_800_000_000.0


def tell(text: str, at: float | None = None, now: float = NOON) -> Progress:
    return progress_of(LineSplitter().feed(text.encode(), at), now, modified_at=NOON)


def live(*told: tuple[float, str]) -> Fold:
    """A fold of lines that came at NOON + seconds."""
    fold, splitter = Fold(), LineSplitter()
    for seconds, text in told:
        for line in splitter.feed(text.encode() + b"\n", NOON + seconds):
            fold.add(line)
    return fold


def test_tells_the_story() -> None:
    data = known("cases/story/train.log").read_bytes()
    progress = progress_of(LineSplitter().feed(data), NOON, modified_at=NOON - 2)
    assert (progress.step, progress.total, progress.loss, progress.lr) == (5329, 20000, 2.0065, 2.9e-4)
    assert progress.block_size == 32
    assert progress.throughput is not None
    assert progress.throughput == Throughput(19500.0, "tok/s", "unknown")
    assert [(item.step, item.line.number) for item in progress.saved] == [(4000, 4)]
    assert progress.last_step_line is not None
    assert progress.last_step_line.number == 48
    assert progress.rate is not None
    assert progress.rate.basis == "log"
    assert progress.rate.seconds_per_step == pytest.approx(1.62, abs=0.005)
    assert progress.eta_seconds == pytest.approx(6.6 * 3600, rel=0.01)
    assert progress.history[-1] == (5329, 2.0065)
    assert (progress.phase, progress.segments, progress.nan) == ("training", 1, False)
    assert line_age(progress, NOON) == step_age(progress, NOON) == 2


def test_the_rate_is_of_steps_seen_arriving_whatever_the_log_claims() -> None:
    fold = live(
        (0, "step=100/1000 loss=2 eta=1:00 2026-01-01 00:00:00"),
        (10, "step=110/1000 loss=2 eta=99:00:00 2026-01-01 00:00:01"),
        (30, "step=130/1000 loss=2 eta=99:00:00 2026-01-01 00:00:02"),
    )
    progress = fold.snapshot(NOON + 30)
    assert progress.rate is not None
    assert (progress.rate.steps_per_second, progress.rate.basis, progress.rate.steps) == (1.0, "observed", 30)
    assert progress.eta_seconds == 870
    assert progress.reported.eta_seconds == 356400


def test_a_bars_own_rate_is_the_last_resort_and_named_so() -> None:
    progress = tell(" 8%|▊ | 500/6060 [3:21:10<37:17:02, 24.14s/it]\n")
    assert progress.rate is not None
    assert progress.rate.basis == "bar"
    assert progress.rate.seconds_per_step == pytest.approx(24.14)


def test_a_record_without_a_step_belongs_to_the_bars_step() -> None:
    progress = tell("\r 8%|▊ | 500/6060 [3:21:10<37:17:02, 24.14s/it]\r   \r{'loss': 2.5, 'epoch': 0.1}\n")
    assert progress.history == ((500, 2.5),)


def test_stalls_when_no_step_comes_though_lines_do() -> None:
    lines = [(float(second), f"step={second}/1000 loss=2") for second in range(0, 50, 10)]
    fold = live(*lines, (99, "Heartbeat: ok"))
    assert not fold.snapshot(NOON + 100).stalled, "60 s are never a stall"
    progress = fold.snapshot(NOON + 101)
    assert progress.stalled
    assert (step_age(progress, NOON + 101), line_age(progress, NOON + 101)) == (61, 2)
    assert not stalled(progress, NOON + 100)


def test_slow_steps_are_given_six_intervals() -> None:
    fold = live(*[(second * 60.0, f"step={second}/1000 loss=2") for second in range(5)])
    assert not fold.snapshot(NOON + 240 + 360).stalled
    assert fold.snapshot(NOON + 240 + 361).stalled


def test_a_finished_training_never_stalls() -> None:
    fold = live((0, "step=999/1000 loss=2"), (1, "step=1000/1000 loss=2"))
    progress = fold.snapshot(NOON + 9999)
    assert (progress.phase, progress.stalled) == ("finished", False)
    assert progress.finished == "step 1000 of 1000"


def test_going_back_begins_a_segment_and_replaces_what_was_abandoned() -> None:
    progress = tell(
        "step 1000/5000 loss 2.5\nstep 1050/5000 loss 2.4\nKilled\nresuming from ckpt/step_1000\n"
        "step 1010/5000 loss 2.6\n"
    )
    assert (progress.segments, progress.went_back_from, progress.resumed_from) == (2, 1050, 1000)
    assert progress.history == ((1000, 2.5), (1010, 2.6))
    assert progress.error == ""
    assert progress.trouble == ("line 3: the trainer was killed: Killed",)


def test_death_is_told_by_its_first_sentence() -> None:
    progress = tell(
        "step 7/90 loss 2\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB\n"
        "RuntimeError: worker died\n"
    )
    assert progress.phase == "failed"
    assert progress.error.startswith("line 2: a GPU ran out of memory")


def test_a_loss_that_is_not_finite_is_told_and_not_shown_as_a_number() -> None:
    progress = tell("step=1 loss=2.5\nstep=2 loss=nan\nstep=3 loss=NaN grad_norm=inf\n")
    assert (progress.nan, progress.nan_since, progress.loss, progress.finite_loss) == (True, 2, None, 2.5)
    assert tell("step=1 loss=nan\nstep=2 loss=2.5\n").nan is False


def test_the_word_nan_alone_means_nothing() -> None:
    assert not tell("step 62/74 | loss 3.46 (+nanz)| norm 1.0 | number of nan iterations: 0\n").nan


def test_block_size_beside_a_step_outweighs_one_of_another_line() -> None:
    progress = tell("block_size=16\nstep=1 loss=2 block_size=32\nblock_size=64\n")
    assert progress.block_size == 32
    assert progress.block_size_line is not None
    assert progress.block_size_line.where == "line 2"


def test_set_up_bars_are_no_progress() -> None:
    progress = tell("Map (num_proc=16):  45%|██ | 45000/100000 [00:12<00:15, 3610.22 examples/s]\n")
    assert (progress.step, progress.phase) == (None, "setup")


def test_the_history_is_thinned_and_keeps_its_newest_point() -> None:
    text = "".join(f"step={step} loss={step}\n" for step in range(1, 9000))
    history = tell(text).history
    assert len(history) <= HISTORY_LIMIT
    assert history[-1] == (8999, 8999.0)
    assert list(history) == sorted(history)
    assert history[0][0] < 20


def test_a_step_line_that_was_there_before_is_as_old_as_its_stamp_says() -> None:
    text = "2026-05-21 09:00:00 step=7 loss=2\nGET /health\n"
    lines = LineSplitter().feed(text.encode())
    clock = HostClock(ahead=5.0, zone_minutes=120, known=True)
    modified = datetime(2026, 5, 21, 7, 30, tzinfo=UTC).timestamp()
    progress = progress_of(lines, modified, modified_at=modified, dated=clock.dated)
    assert step_age(progress, modified) == 1805
    assert line_age(progress, modified) == 0
    assert stalled(progress, modified)


def test_a_trainer_in_another_zone_than_its_host_is_not_taken_for_silent() -> None:
    text = "2026-05-21 09:00:00 step=7 loss=2\n2026-05-21 09:00:40 saved checkpoint: /x/step_7\n"
    modified = datetime(2026, 5, 21, 14, 0, 41, tzinfo=UTC).timestamp()
    clock = HostClock(zone_minutes=0, known=True)
    progress = progress_of(LineSplitter().feed(text.encode()), modified, modified_at=modified, dated=clock.dated)
    assert step_age(progress, modified) == 40


steps = st.lists(st.tuples(st.integers(0, 50), st.floats(0.1, 9.0)), max_size=30)


@given(steps)
def test_one_by_one_or_at_once_makes_no_difference(told: list[tuple[int, float]]) -> None:
    lines = [Line(f"step={step}/50 loss={loss}", at, at * 10, at=NOON + at) for at, (step, loss) in enumerate(told)]
    fold = Fold()
    seen: list[Progress] = []
    for line in lines:
        fold.add(line)
        seen.append(fold.snapshot(NOON))
    assert replace(fold.snapshot(NOON), at=0) == replace(progress_of(lines, NOON), at=0)
    assert all(progress.history == tuple(sorted(progress.history)) for progress in seen)


def test_a_log_of_losses_without_steps_is_a_training() -> None:
    progress = tell("{'loss': 2.31, 'learning_rate': 0.0001, 'epoch': 0.12}\n{'loss': 2.01, 'epoch': 0.14}\n")
    assert (progress.phase, progress.step, progress.loss, progress.epoch) == ("training", None, 2.01, 0.14)
    evaluated = tell("{'loss': 2.31, 'epoch': 0.9}\n***** Running Evaluation *****\n{'loss': 2.2, 'epoch': 1.1}\n")
    assert evaluated.phase == "training"


def test_values_before_the_first_loss_are_no_waiting() -> None:
    assert tell("learning_rate: 3e-4, block_size: 32\n").phase == "setup"
    assert tell("hello\n").phase == "waiting"


def test_a_summary_after_the_end_does_not_begin_the_training_again() -> None:
    summary = "step=10/10 loss=2.0\n{'train_runtime': 20.0, 'train_loss': 2.5, 'epoch': 1.0}\n"
    assert tell(summary).phase == "finished"
