from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.measure.anchors import spaced


def test_full_anchors_follow_the_formula() -> None:
    anchors = spaced(20, 115, 15, 30)
    assert anchors == tuple(20 + i * 100 // 30 for i in range(30))


@given(st.integers(1, 5000), st.integers(0, 3000), st.integers(1, 63))
def test_every_anchor_leaves_a_full_horizon(prompt: int, completion: int, horizon: int) -> None:
    for count in (1, 7, 15, 20, 30):
        anchors = spaced(prompt, completion, horizon, count)
        assert all(prompt <= anchor and anchor + horizon < prompt + completion for anchor in anchors)
        assert len(set(anchors)) == len(anchors) <= count


@given(st.integers(1, 5000), st.integers(0, 3000), st.integers(1, 63))
def test_quick_anchors_are_among_the_full_ones(prompt: int, completion: int, horizon: int) -> None:
    full = spaced(prompt, completion, horizon, 30)
    assert spaced(prompt, completion, horizon, 15) == full[::2]


def test_a_short_completion_uses_every_position_it_has() -> None:
    assert spaced(7, 20, 15, 30) == (7, 8, 9, 10, 11)
    assert spaced(7, 15, 15, 30) == ()


def test_another_count_is_spaced_by_the_same_formula() -> None:
    assert spaced(20, 115, 15, 20) == tuple(20 + i * 100 // 20 for i in range(20))
    assert spaced(7, 20, 15, 20) == (7, 8, 9, 10, 11)


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 1"):
        spaced(1, 100, 15, 0)
