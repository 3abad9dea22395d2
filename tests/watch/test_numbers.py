"""Numbers and durations in the spellings of real logs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.watch.numbers import counted, duration, integer, number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.875063E+00", 1.875063), ("3.2e+4", 32000.0), ("526,442", 526442.0), ("8_606_215", 8606215.0),
        ("22.8K", 22800.0), ("19.5K", 19500.0), ("85.8G", 85.8e9), ("88.1%", 0.881), ("-1.5", -1.5), (".5", 0.5),
        ("tensor(0.41, device='cuda:0')", 0.41), ("'4.163'", 4.163), ("1.8e-4", 1.8e-4),
    ],
)  # fmt: skip
def test_reads_numbers(text: str, value: float) -> None:
    assert number(text) == value


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "NAN", "-nan(ind)", "1.#QNAN", '"NaN"', "tensor(nan)"])
def test_knows_nan_in_every_disguise(text: str) -> None:
    found = number(text)
    assert found is not None
    assert math.isnan(found)


@pytest.mark.parametrize("text", ["inf", "Infinity", "-Infinity", "-inf", "1.#INF"])
def test_knows_infinity(text: str) -> None:
    assert number(text) == (-math.inf if text.startswith("-") else math.inf)


@pytest.mark.parametrize("text", ["n/a", "N/A", "null", "None", "", "banana", "1,2", "1.2.3", "0x10", "--1", "nano"])
def test_says_none_for_what_is_no_number(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "value"), [("00211", 211), ("99,486", 99486), ("8_606", 8606), ("3.2e+4", None), ("1.0", None)]
)
def test_counts_are_never_rounded(text: str, value: int | None) -> None:
    assert integer(text) == value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("57:12", 3432.0), ("6:36:48", 23808.0), ("94:39:17", 340757.0), ("1 day, 2:03:11", 93791.0),
        ("7 days, 15:55:58", 662158.0), ("4h 16m 28s", 15388.0), ("764.8min", 45888.0), ("351.7m", 21102.0),
        ("3h12m", 11520.0), ("0:36:58.55", 2218.55), ("995.90ms", 0.9959), ("1.438s", 1.438),
    ],
)  # fmt: skip
def test_reads_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["?", "", "soon", "12", "1:2:3:4", "5 apples", "3h and more"])
def test_says_none_for_what_is_no_duration(text: str) -> None:
    assert duration(text) is None


@given(st.text(max_size=100))
def test_never_raises(text: str) -> None:
    counted(number(text))
    integer(text)
    duration(text)


@given(st.floats(allow_nan=False))
def test_reads_back_what_python_prints(value: float) -> None:
    assert number(repr(value)) == value
