"""One result beside another: differences, verdicts, what withholds them."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.measure.streaks import streak
from dflash_tui.measure.summary import score
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.result import METRICS, Evaluation, Score
from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.common import cut_to_common_horizon, on_common_parts, on_common_prompts
from dflash_tui.results.compare import compare, struck
from dflash_tui.results.errors import NothingInCommon
from dflash_tui.results.evaluation import quick_of, with_blocks
from dflash_tui.results.spread import spread, streak_of
from dflash_tui.results.statistics import interval
from tests.evaluations import OTHER, bare, on, result
from tests.runs import TEN, UNHURRIED, drafted


def test_ten_prompts_with_a_clear_difference_are_better() -> None:
    compared = compare(result(), OTHER)
    assert (compared.verdict, compared.pairing, compared.blocks) == ("better", "anchors", (300, 300))
    assert compared.delta["top1"] == pytest.approx(result().pooled.streak["top1"] - OTHER.pooled.streak["top1"])
    row = compared.rows[0]
    assert row.interval is not None
    assert row.delta_interval is not None
    assert row.delta_interval[0] <= (row.delta or 0) <= row.delta_interval[1]
    assert compare(OTHER, result()).verdict == "worse"
    assert "sign-flip p = 0.00195" in compared.why[1]


def test_the_same_skill_is_inside_noise() -> None:
    compared = compare(result(), result("previous", seed=2))
    assert compared.verdict == "inside noise"
    assert "INSIDE_NOISE" in {finding.code for finding in compared.caveats}


def test_prompts_that_all_agree_have_no_interval_of_no_width() -> None:
    perfect, nothing = result(skill=1.0), result("previous", skill=0.0, weights_id="b" * 64)
    same = compare(perfect, result("previous", skill=1.0))
    assert (same.verdict, same.rows[0].interval, same.rows[0].delta_interval) == ("inside noise", None, None)
    assert same.why[0] == "same weights"
    assert same.why[1] == "top-1 +0.000 on each of 10 prompts, so no interval can be told"
    noise = next(finding for finding in same.caveats if finding.code == "INSIDE_NOISE")
    assert noise.sentence == "No difference on any of 10 prompts: top-1, top-4, top-8."
    apart = compare(perfect, nothing)
    assert (apart.verdict, apart.delta["top1"]) == ("better", 15.0)
    assert apart.why == ("top-1 +15.000 on each of 10 prompts, so no interval can be told", "sign-flip p = 0.00195")
    assert "INSIDE_NOISE" not in {finding.code for finding in compare(on(TEN[:3], skill=1.0), on(TEN[:3])).caveats}


def test_under_six_prompts_nothing_is_concluded_even_when_all_agree() -> None:
    compared = compare(on(TEN[:5]), on(TEN[:5], name="previous", skill=0.2, weights_id="b" * 64))
    assert compared.verdict == "inconclusive"
    assert compared.why == ("5 prompts", "top-1 higher on 5, lower on 0 of 5: a description, not a test")
    assert compare(on(TEN[:6]), on(TEN[:6], name="previous", skill=0.2)).verdict == "better"


def test_ten_prompts_of_two_texts_are_two_prompts() -> None:
    hashes = {prompt: f"text {index % 2}" for index, prompt in enumerate(TEN)}
    compared = compare(result(prompt_hashes=hashes), replace(OTHER, prompt_hashes=hashes))
    assert compared.verdict == "inconclusive"
    assert compared.why[0] == "2 prompts"
    scores = list(result().per_prompt.values())
    halves = [fmean(score.streak["top1"] for score in scores[start::2]) for start in (0, 1)]
    found = interval(halves)
    assert found is not None
    assert compared.rows[0].interval == pytest.approx((max(0.0, found[0]), min(15.0, found[1])))


def test_an_interval_ends_where_the_figure_must() -> None:
    low = with_blocks(result(), [block for block in result(skill=0.05).blocks])
    ends = spread(on(TEN[:2], skill=0.3), streak_of("top1"))
    assert ends is not None
    assert 0.0 <= ends[0] < ends[1] <= 15.0
    assert spread(low, lambda score: score.tau, least=1.0) is not None
    assert (spread(low, lambda score: score.tau, least=1.0) or (0.0,))[0] >= 1.0


def test_one_prompt_has_no_interval_and_no_verdict() -> None:
    compared = compare(on(TEN[:1]), on(TEN[:1], name="previous", skill=0.2, weights_id="b" * 64))
    assert compared.verdict == "inconclusive"
    assert compared.rows[0].interval is None
    assert compared.why[0] == "1 prompt"


@pytest.mark.parametrize(
    ("current", "previous", "why"),
    [
        (result(), bare(prompt_count=3), ("previous result keeps no per-prompt values", "3 prompts")),
        (bare("current", prompt_count=3), OTHER, ("current result keeps no per-prompt values", "3 prompts")),
        (
            bare("current", prompt_count=3),
            bare(prompt_count=4),
            ("previous result keeps no per-prompt values", "3 prompts"),
        ),
        (result(), bare(prompt_count=None), ("previous result keeps no per-prompt values",)),
    ],
)
def test_without_per_prompt_values_untestable(current: Evaluation, previous: Evaluation, why: tuple[str, ...]) -> None:
    compared = compare(current, previous)
    assert (compared.verdict, compared.why) == ("untestable", why)
    assert None not in compared.delta.values()


@pytest.mark.parametrize(
    "previous",
    [
        replace(OTHER, anchors="strided"),
        replace(OTHER, block_size=8, horizon=7),
        on(TEN[:3], name="previous"),
    ],
    ids=["anchors", "horizon", "prompts"],
)
def test_what_is_not_comparable_shows_values_and_no_difference(previous: Evaluation) -> None:
    compared = compare(result(), previous)
    assert compared.verdict == "not comparable"
    assert set(compared.delta.values()) == {None}
    assert compared.why
    assert compared.blocks is None
    assert all(row.current is not None and row.previous is not None and row.delta is None for row in compared.rows)


@pytest.mark.parametrize("void", ["previous", "current"])
def test_a_void_result_has_neither_difference_nor_value(void: str) -> None:
    wrong = replace(OTHER, facts=(Fact("weights.id", "c" * 64, Source("", "/run"), ""),))
    compared = compare(result(), wrong) if void == "previous" else compare(wrong, result())
    other = "current" if void == "previous" else "previous"
    assert compared.verdict == "not comparable"
    for row in compared.rows:
        assert (getattr(row, void), row.delta) == (None, None)
        assert getattr(row, other) is not None
        assert (row.interval is None) == (void == "current")
    assert all(row.delta_interval is None for row in compared.rows)


def test_a_void_of_the_current_result_withholds_too() -> None:
    broken = result(facts=(Fact("weights.id", "c" * 64, Source("", "/run"), ""),))
    assert compare(broken, OTHER).verdict == "not comparable"


def test_other_prompts_compare_on_the_common_ones_when_asked() -> None:
    compared = compare(*on_common_prompts(result(), on(TEN[2:9], name="previous", skill=0.2)))
    assert (compared.verdict, compared.blocks) == ("better", (210, 210))
    with pytest.raises(NothingInCommon):
        on_common_prompts(result(), bare())


def test_other_horizons_compare_when_both_are_cut() -> None:
    shorter = with_blocks(replace(OTHER, block_size=8, horizon=7), drafted(TEN, horizon=7, skill=0.2))
    mine, other = cut_to_common_horizon(result(), shorter)
    assert {block.horizon for block in mine.blocks} == {7}
    compared = compare(mine, other)
    assert compared.verdict == "better"
    assert "BLOCK_SIZE_MISMATCH" in {finding.code for finding in compared.caveats}
    with pytest.raises(NothingInCommon, match="keeps no blocks"):
        cut_to_common_horizon(bare(), shorter)
    with pytest.raises(NothingInCommon, match="does not record its block size"):
        cut_to_common_horizon(result(), bare(block_size=None, horizon=None))


def test_a_quick_and_a_full_result_are_paired_on_the_quick_ones_anchors() -> None:
    quick = with_blocks(OTHER, drafted(TEN, count=15, seed=2, skill=0.4))
    compared = compare(result(), quick)
    assert (compared.pairing, compared.blocks) == ("anchors", (150, 150))
    same = score([block for block in result().blocks if block.anchor in {b.anchor for b in quick.blocks}])
    assert compared.delta["top4"] == pytest.approx(same.streak["top4"] - quick.pooled.streak["top4"])
    assert compared.rows[1].current == result().pooled.streak["top4"]


def test_a_full_result_against_a_file_of_quick_size_differs_by_its_quick_part() -> None:
    full = on(TEN[:3])
    previous = bare(pooled=Score(45, {"top1": 1.0, "top4": 1.0, "top8": 1.0}, 2.0), prompt_count=3)
    compared = compare(full, previous)
    quick = score([b for b in full.blocks if b.anchor in {x.anchor for x in drafted(TEN[:1], count=15)}])
    assert compared.blocks == (45, 45)
    assert compared.delta["top1"] == pytest.approx(quick.streak["top1"] - 1)


def test_other_anchors_of_the_same_prompts_are_paired_by_prompt() -> None:
    moved = with_blocks(OTHER, drafted(TEN, seed=2, skill=0.4, shift=1))
    compared = compare(result(), moved)
    assert (compared.pairing, compared.verdict) == ("prompts", "better")


def test_void_prompts_are_struck_from_both_means() -> None:
    dangling = replace(
        result(), facts=(Fact("cache.refused", {"prompt": "prompt_3", "reason": "all zero"}, Source("", "/c"), ""),)
    )
    assert "prompt_3" not in struck(dangling).per_prompt
    assert struck(dangling).pooled.blocks == 270
    assert ("9/10",) in [finding.values for finding in caveats_of(struck(dangling))]
    compared = compare(dangling, OTHER)
    assert "CACHE_DANGLING" in {finding.code for finding in compared.caveats}
    assert compared.verdict == "not comparable"  # nine prompts against ten: the common ones are offered
    assert compare(*on_common_prompts(struck(dangling), OTHER)).blocks == (270, 270)


SCORES = st.builds(
    lambda blocks, values: Score(blocks, dict(zip(METRICS, values, strict=True)), values[0] + 1),
    st.integers(0, 300),
    st.tuples(*[st.floats(0, 31)] * 3),
)


@st.composite
def evaluations(draw: st.DrawFn) -> Evaluation:
    """Anything from a full own run to three averages."""
    if draw(st.booleans()):
        prompts = draw(st.lists(st.sampled_from(TEN), unique=True, min_size=1))
        count, seed = draw(st.sampled_from((15, 30))), draw(st.integers(0, 3))
        some = with_blocks(
            result(origin="run"), drafted(prompts, count=count, seed=seed, shift=draw(st.integers(0, 1)))
        )
    else:
        per_prompt = draw(st.dictionaries(st.sampled_from(TEN), SCORES))
        some = bare(pooled=draw(SCORES), prompt_count=draw(st.none() | st.integers(0, 12)))
        some = replace(some, per_prompt=per_prompt)
    facts = draw(st.lists(st.sampled_from(FACTS)))
    return replace(
        some,
        anchors=draw(st.sampled_from((None, "spaced", "strided"))),
        horizon=draw(st.sampled_from((None, 15, 31))),
        step=draw(st.sampled_from((None, 2000, 4000))),
        weights_id=draw(st.sampled_from((None, "a", "b"))),
        preset=draw(st.sampled_from((None, "full", "quick"))),
        facts=tuple(Fact(kind, value, Source("", "/evidence"), "") for kind, value in facts),
    )


FACTS: tuple[tuple[str, Any], ...] = (
    ("weights.id", "b"),
    ("cache.refused", {"prompt": "prompt_1", "reason": "truncated"}),
    ("cache.refused", list(TEN)),
    ("cache.identity", None),
    ("train.live", {"step": "many"}),
    ("weights.audit", []),
    ("eval.anchors", {"policy": 3}),
    ("prompts.asked", 7),
)


@UNHURRIED
@given(evaluations(), evaluations())
def test_never_raises_and_withholds_exactly_what_is_not_comparable(current: Evaluation, previous: Evaluation) -> None:
    compared = compare(current, previous)
    withheld = compared.verdict == "not comparable"
    assert all((delta is None) == withheld for delta in compared.delta.values())
    assert bool(compared.why)
    open_codes = [f for f in compared.caveats if f.severity in ("void", "block") and not f.scope]
    assert bool(open_codes) == withheld


@UNHURRIED
@given(evaluations(), evaluations())
def test_the_other_way_round_has_the_other_sign(current: Evaluation, previous: Evaluation) -> None:
    there, back = compare(current, previous), compare(previous, current)
    turned = {"better": "worse", "worse": "better"}
    assert back.verdict == turned.get(there.verdict, there.verdict)
    assert back.pairing == there.pairing
    for metric in METRICS:
        one, other = there.delta[metric], back.delta[metric]
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one == pytest.approx(-other, abs=1e-9)


@UNHURRIED
@given(evaluations())
def test_against_itself_there_is_no_difference(evaluation: Evaluation) -> None:
    compared = compare(evaluation, evaluation)
    assert set(compared.delta.values()) <= {None, 0.0}
    assert compared.verdict in ("untestable", "not comparable")
    assert "INSIDE_NOISE" not in {finding.code for finding in compared.caveats}
    assert {row.delta_interval for row in compared.rows} == {None}


def test_a_result_beside_itself_is_nothing_to_test() -> None:
    compared = compare(result(), result("pinned", sha256="current"))
    assert (compared.verdict, compared.why) == ("untestable", ("both are the same result",))
    assert set(compared.delta.values()) == {0.0}


def test_a_repeat_and_a_quick_part_are_said_to_be_of_the_same_weights() -> None:
    for other in (result("again"), quick_of(result())):
        compared = compare(*on_common_prompts(result(), other))
        assert compared.verdict in ("inside noise", "inconclusive")
        assert compared.why[0] == "same weights"
        assert set(compared.delta.values()) == {0.0}
    assert "same weights" not in compare(result(), OTHER).why
    assert "same weights" not in compare(result(), bare()).why  # what was measured of them is not known


def test_the_paired_interval_is_over_prompts_of_the_differences_block_by_block() -> None:
    mine, other = result(), OTHER
    places = {(block.prompt, block.anchor): block for block in other.blocks}
    by_prompt: dict[str, list[int]] = {}
    for block in mine.blocks:
        difference = streak(block.ranks, 4) - streak(places[block.prompt, block.anchor].ranks, 4)
        by_prompt.setdefault(block.prompt, []).append(difference)
    expected = interval([sum(values) / len(values) for values in by_prompt.values()])
    row = compare(mine, other).rows[1]
    assert expected is not None
    assert row.delta_interval == pytest.approx(expected)


def test_common_prompts_keep_what_was_asked_for_and_never_measured() -> None:
    partial = on(TEN[:3], prompts_asked=TEN, prompts_asked_count=len(TEN))
    whole = on(TEN, prompts_asked=TEN, prompts_asked_count=len(TEN))
    current, previous = on_common_parts(partial, whole)
    codes = {finding.code: finding.values for finding in caveats_of(current)}
    assert codes["PARTIAL_PROMPT_COVERAGE"] == ("3/10",)
    assert "PARTIAL_PROMPT_COVERAGE" not in {finding.code for finding in caveats_of(previous)}
