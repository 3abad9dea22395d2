"""Differences in words."""

from __future__ import annotations

import pytest

from dflash_tui.results.figures import bounds, signed


@pytest.mark.parametrize(
    ("value", "text"), [(2.4, "+2.400"), (-0.12, "−0.120"), (0.0, "+0.000"), (-0.0, "+0.000"), (-0.0004, "+0.000")]
)
def test_a_difference_has_its_sign_unless_it_rounds_to_nothing(value: float, text: str) -> None:
    assert signed(value) == text


def test_an_interval_has_the_same_signs() -> None:
    assert bounds((-0.125, 2.0), 2) == "[−0.12, +2.00]"
