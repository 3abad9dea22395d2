"""The acceptance story: its codes, its comparison, its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_tui.results.caveats import caveats_of, caveats_of_comparison, caveats_of_others, merged
from dflash_tui.results.compare import compare
from dflash_tui.results.report import report
from tests.story import Story, read, stories

STORIES = stories()


@pytest.fixture(params=STORIES, ids=lambda folder: folder.name)
def story(request: pytest.FixtureRequest) -> Story:
    folder: Path = request.param
    return read(folder)


def test_there_is_a_story() -> None:
    assert STORIES


def test_exactly_the_expected_codes_with_their_severities_and_values(story: Story) -> None:
    found = merged(
        (
            *caveats_of(story.full),
            *caveats_of_comparison(story.full, story.previous),
            *caveats_of_others(story.full, [story.quick]),
        )
    )
    expected = {(item["code"], item["severity"], tuple(item["values"])) for item in story.expected["codes"]}
    assert {(finding.code, finding.severity, finding.values) for finding in found} == expected
    assert all(finding.evidence and all(source.path for source in finding.evidence) for finding in found)


def test_comparison_is_the_expected_one(story: Story) -> None:
    compared = compare(story.quick, story.previous)
    expected = story.expected["comparison_quick"]
    assert compared.delta == pytest.approx(expected["delta"], abs=1e-9)
    assert compared.verdict == expected["verdict"]
    assert list(compared.why) == expected["why"]
    codes = {(item["code"], item["severity"], tuple(item["values"])) for item in story.expected["codes"]}
    assert {(finding.code, finding.severity, finding.values) for finding in compared.caveats} <= codes


def test_sentence_of_the_cache_says_both_that_it_is_unrecorded_and_older(story: Story) -> None:
    stale = next(finding for finding in caveats_of(story.full) if finding.code == "STALE_CACHE")
    assert "do not record" in stale.sentence
    assert "older than the checkpoint (2026-05-18 14:17, 2026-05-21 09:00)" in stale.sentence


def test_sentence_of_the_lag_says_steps_and_minutes(story: Story) -> None:
    lag = next(finding for finding in caveats_of(story.full) if finding.code == "STEP_BEHIND_LIVE")
    assert "1329 steps and 36 minutes behind" in lag.sentence


def test_report_shows_the_figures_of_the_design(story: Story) -> None:
    text = report(story.full, others=[story.quick], previous=story.previous, live_now=story.live)
    for row in (
        "|  | current (quick, 45 blocks) | current (full, 90 blocks) | previous (45 blocks) |",
        "| vanilla top-1 streak | 3.178 | 3.333 | 0.778 |",
        "| DDTree top-4 streak | 5.689 | 6.911 | 1.111 |",
        "| DDTree top-8 streak | 8.156 | 8.767 | 1.467 |",
        "| τ = streak + 1 | 4.178 / 6.689 / 9.156 | 4.333 / 7.911 / 9.767 |",
        "| fizzbuzz | 30 | 3.67 | 6.83 | 8.13 |",
        "| binary_search | 30 | 3.40 | 7.60 | 9.60 |",
        "| linked_list_reverse | 30 | 2.93 | 6.30 | 8.57 |",
        "higher by 2.400 / 4.578 / 6.689 at 45 blocks each",
        "untestable",
        "previous result keeps no per-prompt values; 3 prompts",
        "- Then (plan time): step 5329 of 20000",
        "- Now: step 5329 of 20000",
    ):
        assert row in text
    for item in story.expected["codes"]:
        assert f"`{item['code']}`" in text


def test_report_without_the_quick_result_says_that_block_counts_differ(story: Story) -> None:
    text = report(story.full, previous=story.previous)
    assert "higher by 2.556 / 5.800 / 7.300 at 90 against 45 blocks" in text
