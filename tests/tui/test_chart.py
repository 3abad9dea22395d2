"""The braille chart: spikes survive, what is no number is a gap, any input draws."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from dflash_tui.tui.chart import rasterise

NUMBERS = st.lists(st.floats(), max_size=300)


@example([1.7120886998688722e308], 1, 1)
@given(NUMBERS, st.integers(1, 60), st.integers(1, 20))
def test_any_values_draw_into_exactly_the_given_cells(values: list[float], width: int, height: int) -> None:
    drawn = rasterise(values, width, height)
    assert len(drawn.rows) == len(drawn.ticks) == height
    assert all(len(row) == width for row in drawn.rows)
    assert {len(label) for label in drawn.ticks} == {5}


@given(st.integers(0, 9_999))
def test_a_spike_of_one_point_among_ten_thousand_is_seen(place: int) -> None:
    values = [1.0] * 10_000
    values[place] = 9.0
    assert rasterise(values, 40, 8).rows[0].strip()


def test_a_falling_line_goes_from_the_top_left_to_the_bottom_right() -> None:
    rows = rasterise([float(10 - i) for i in range(11)], 10, 5).rows
    assert rows[0][0] != " "
    assert rows[0][-1] == " "
    assert rows[-1][-1] != " "
    assert rows[-1][0] == " "


def test_what_is_no_number_is_a_gap_and_is_named() -> None:
    drawn = rasterise([1.0, 1.0, math.nan, math.inf, 1.0, 1.0], 6, 1, positions=[0, 1, 4, 5, 10, 11])
    assert drawn.broken == (2,)
    assert drawn.rows[0][1:5] == "    "


def test_without_a_finite_value_there_is_nothing_and_no_scale() -> None:
    drawn = rasterise([math.nan, -math.inf], 10, 3)
    assert set("".join(drawn.rows)) == {" "} == set("".join(drawn.ticks))


def test_marks_stand_where_their_position_is() -> None:
    drawn = rasterise([2.0, 1.0], 11, 2, positions=[0, 100], marks={0: "0", 50: "50", 100: "100", 150: "out"})
    assert drawn.marks == {0: "0", 5: "50", 10: "100"}


def test_a_constant_curve_lies_between_its_labels() -> None:
    drawn = rasterise([2.0] * 10, 10, 3)
    assert drawn.rows[1].strip()
    assert float(drawn.ticks[0]) > 2 > float(drawn.ticks[-1])


def test_the_extremes_of_floats_do_not_overflow_the_scale() -> None:
    assert rasterise([-1.7e308, 1.7e308], 4, 4).rows[0].strip()
