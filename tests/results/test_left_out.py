"""What an evaluation had to leave out, and whether that is damage: hidden states of something else, and baselines."""

from __future__ import annotations

from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results.caveats import caveats_of, withholds
from tests.evaluations import result

HERE = Source("lab", "/hs/p1.safetensors")


def found(code: str, *facts: tuple[str, object]) -> list[Finding]:
    evaluation: Evaluation = result(facts=tuple(Fact(kind, value, HERE, "") for kind, value in facts))
    return [finding for finding in caveats_of(evaluation) if finding.code == code]


def test_states_of_something_else_are_stale_and_not_damaged() -> None:
    foreign = {"prompt": "prompt_1", "reason": "layers 1,3, the drafter taps 1,5", "foreign": True}
    (finding,) = found("STALE_CACHE", ("cache.refused", foreign))
    assert (finding.severity, finding.scope) == ("warn", "prompt_1")
    assert "layers 1,3, the drafter taps 1,5" in finding.sentence
    assert not withholds(finding)
    assert found("CACHE_DANGLING", ("cache.refused", foreign)) == []


def test_damaged_states_are_damaged_and_not_stale() -> None:
    damaged = {"prompt": "prompt_1", "reason": "all zero", "foreign": False}
    assert [finding.severity for finding in found("CACHE_DANGLING", ("cache.refused", damaged))] == ["void"]
    assert found("STALE_CACHE", ("cache.refused", damaged)) == []


def test_states_of_something_else_do_not_hide_what_is_wrong_with_the_rest() -> None:
    foreign = {"prompt": "prompt_1", "reason": "another text", "foreign": True}
    both = found("STALE_CACHE", ("cache.refused", foreign), ("cache.identity", None))
    assert {finding.scope for finding in both} == {"", "prompt_1"}


def test_a_baseline_that_was_not_evaluated_has_its_reason() -> None:
    asked: tuple[tuple[str, object], ...] = (("baselines.configured", ["a", "b"]), ("baselines.found", []))
    reasons = (
        ("baselines.withheld", {"name": "a", "reason": "old"}),
        ("baselines.withheld", {"name": "a", "reason": "new"}),
    )
    sentences = {item.values[0]: item.sentence for item in found("BASELINE_MISSING", *asked, *reasons)}
    assert sentences["a"].endswith("was not evaluated beside this: new.")
    assert "pin its file" in sentences["b"]


def test_a_baseline_that_is_there_after_all_is_not_missing() -> None:
    facts: tuple[tuple[str, object], ...] = (
        ("baselines.configured", ["a"]),
        ("baselines.found", []),
        ("baselines.withheld", {"name": "a", "reason": "gone"}),
        ("baselines.configured", ["a"]),
        ("baselines.found", ["a"]),
    )
    assert found("BASELINE_MISSING", *facts) == []
