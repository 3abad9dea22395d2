"""Intervals and the sign-flip test against published and brute-forced values."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.results.statistics import equal, interval, mean, sign_flip, t_quantile, within
from tests.runs import UNHURRIED

# Published two-sided 95 % and 99 % points to nine or more decimals (NIST/Sematech tables, extended by R's qt).
PUBLISHED = [
    (0.975, 1, 12.7062047362),
    (0.975, 2, 4.3026527297),
    (0.975, 3, 3.1824463053),
    (0.975, 4, 2.7764451052),
    (0.975, 5, 2.5705818356),
    (0.975, 9, 2.2621571628),
    (0.975, 10, 2.2281388520),
    (0.975, 29, 2.0452296421),
    (0.975, 30, 2.0422724563),
    (0.975, 100, 1.9839715185),
    (0.995, 2, 9.9248432009),
    (0.995, 9, 3.2498355416),
    (0.95, 9, 1.8331129327),
]


@pytest.mark.parametrize(("probability", "df", "expected"), PUBLISHED)
def test_t_quantile_is_the_published_one(probability: float, df: int, expected: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(expected, abs=1e-9)


@UNHURRIED
@given(st.floats(0.5, 0.9999), st.integers(1, 300))
def test_quantile_and_probability_are_inverse(probability: float, df: int) -> None:
    assert within(t_quantile(probability, df), df) == pytest.approx(2 * probability - 1, abs=1e-12)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((3.67, 3.40, 2.93), (2.40, 4.26)),
        ((110 / 30, 102 / 30, 88 / 30), (2.41, 4.26)),
        ((205 / 30, 228 / 30, 189 / 30), (5.29, 8.53)),
        ((244 / 30, 288 / 30, 257 / 30), (6.89, 10.64)),
    ],
    ids=["top-1 from rounded means", "top-1", "top-4", "top-8"],
)
def test_intervals_of_the_three_prompts(values: tuple[float, ...], expected: tuple[float, float]) -> None:
    bounds = interval(values)
    assert bounds is not None
    assert tuple(round(bound, 2) for bound in bounds) == expected


def test_one_value_has_no_interval() -> None:
    assert interval((3.0,)) is None
    assert interval(()) is None


@pytest.mark.parametrize("values", [(0.0, 0.0, 0.0), (0.2, 0.2, 0.2), (0.3 - 0.1, 0.4 - 0.2)])
def test_equal_values_have_no_interval_rather_than_one_of_no_width(values: tuple[float, ...]) -> None:
    assert interval(values) is None


@UNHURRIED
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30))
def test_interval_is_about_the_mean(values: list[float]) -> None:
    bounds = interval(values)
    assert (bounds is None) == equal(values)
    if bounds is None:
        return
    assert bounds[0] <= mean(values) <= bounds[1]
    assert sum(bounds) / 2 == pytest.approx(mean(values), abs=1e-9)


@pytest.mark.parametrize(("prompts", "p"), [(6, 2 / 64), (7, 2 / 128), (10, 2 / 1024)])
def test_sign_flip_of_unanimous_prompts_is_the_smallest_p(prompts: int, p: float) -> None:
    assert sign_flip([0.1 * (i + 1) for i in range(prompts)]) == p
    assert sign_flip([-0.1 * (i + 1) for i in range(prompts)]) == p


def test_sign_flip_is_withheld_under_six_prompts() -> None:
    assert sign_flip([1.0] * 5) is None
    assert sign_flip([1.0] * 41) is None


def test_no_difference_at_all_has_p_one() -> None:
    assert sign_flip([0.0] * 6) == 1.0


@UNHURRIED
@given(st.lists(st.integers(-20, 20), min_size=6, max_size=9))
def test_sign_flip_counts_every_pattern_once(differences: list[int]) -> None:
    observed = abs(sum(differences))
    patterns = list(product((1, -1), repeat=len(differences)))
    extreme = sum(abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= observed for signs in patterns)
    assert sign_flip([d / 7 for d in differences]) == extreme / len(patterns)
