"""Numbers as people read them, at the widths that columns rely on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.tui import formats


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (9.4, "9 s"), (41, "0:41"), (725, "12:05"), (23_776, "6 h 36"), (273_600, "3 d 4 h"), (None, "—"),
     (math.nan, "—"), (math.inf, "—")],
)  # fmt: skip
def test_times_to_come(seconds: float | None, shown: str) -> None:
    assert formats.left(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0 s"), (45, "45 s"), (99, "99 s"), (100, "1 min"), (2152, "35 min"), (86_400, "24 h"), (259_200, "3 d")],
)
def test_ages(seconds: float, shown: str) -> None:
    assert formats.age(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (3.46e9, "3.46 GB"),
        (15_470_000_128, "15.5 GB"),
        (999_999, "1.00 MB"),
    ],
)
def test_bytes_are_decimal(size: float, shown: str) -> None:
    assert formats.byte_size(size) == shown


def test_a_training_rate_keeps_its_own_unit() -> None:
    assert formats.throughput(19_500, "tok/s") == "19.5 Ktok/s"


@given(st.floats(allow_nan=False, allow_infinity=False, width=32), st.integers(5, 9))
def test_an_axis_label_is_exactly_as_wide_as_its_column(value: float, width: int) -> None:
    assert len(formats.tick(value, width)) == width


@given(st.floats(0, 1e12), st.floats(1e-9, 1e12))
def test_a_share_takes_five_cells_and_is_100_only_when_all_is_there(part: float, whole: float) -> None:
    shown = formats.percent(part, whole)
    assert len(shown) == 5
    assert ("100" in shown) == (part / whole >= 1)


@given(st.floats())
def test_no_float_breaks_a_loss(value: float) -> None:
    assert formats.small(value)


def test_a_learning_rate_is_written_as_people_write_it() -> None:
    assert formats.learning_rate(2.9e-4) == "2.9e-4"
    assert formats.learning_rate(1e-4) == "1e-4"


def test_an_interval_with_a_negative_bound_is_not_read_as_another_minus() -> None:
    assert formats.interval((2.4, 4.264)) == "2.40–4.26"
    assert formats.interval((-15.26, 25.19)) == "−15.26 … 25.19"


def test_a_short_time_is_not_zero() -> None:
    assert formats.took(0.27) == "0.3 s"
    assert formats.took(39.4) == "0:39"
