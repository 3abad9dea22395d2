"""Every code is raised by its evidence and stays silent for a near miss."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dflash_tui.records.codec import to_data
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.finding import SEVERITIES, Finding
from dflash_tui.records.result import Evaluation, Score
from dflash_tui.results import caveats
from dflash_tui.results.caveats import caveats_of, caveats_of_comparison, caveats_of_others, caveats_of_pair, withholds
from dflash_tui.results.common import cut_to_common_horizon
from dflash_tui.results.evaluation import with_blocks
from tests.evaluations import OTHER, bare, on, result
from tests.runs import AUDIT, TEN, drafted

LINK = {"inode": 7, "size": 1, "mtime": 1.5, "header_sha256": "ab"}


def with_facts(of: Evaluation | None = None, /, **facts: Any) -> Evaluation:
    """`train_live={…}` becomes the fact ``train.live``."""
    source = Source("ct129", "/eval/evidence.json", "key")
    made = tuple(
        Fact(kind.replace("_", ".", 1), value, source, "2026-05-21T09:40:00Z") for kind, value in facts.items()
    )
    return replace(of or result(), facts=made)


def pair(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    return caveats_of_pair(current, previous)


def audit(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = to_data(replace(AUDIT, **changes))
    return data


OLD, NEW = "2026-05-18T14:17:03Z", "2026-05-21T09:00:35Z"
CACHE = {"target": {"config_sha256": "c1", "template_sha": "t1"}, "taps": [1, 2, 3]}
TARGET = {"name": "target", "config_sha256": "c1", "template_sha": "t1", "taps": [1, 2]}
LIVE = {"step": 5329, "total": 20000, "line": "step=5329", "at": "2026-05-21T09:36:25Z"}
ANCHORED = {"policy": "spaced", "per_prompt": 30}
Make = Callable[[], tuple[Finding, ...]]

RAISED: list[tuple[str, str, tuple[Any, ...], Make]] = [
    (
        "ANCHOR_POLICY_MISMATCH",
        "block",
        ("spaced", "strided"),
        lambda: pair(result(), replace(OTHER, anchors="strided")),
    ),
    ("ANCHOR_POLICY_MISMATCH", "warn", ("previous: unrecorded",), lambda: pair(result(), replace(OTHER, anchors=None))),
    ("ANCHOR_POLICY_MISMATCH", "warn", ("current: unrecorded",), lambda: pair(result(anchors=None), OTHER)),
    (
        "ANCHOR_POLICY_MISMATCH",
        "warn",
        ("previous: unrecorded",),
        lambda: pair(result(anchors=None), replace(OTHER, anchors=None)),
    ),
    (
        "BASELINE_CHANGED",
        "warn",
        ("old", "new"),
        lambda: caveats_of(with_facts(pin_origin={"path": "/a.json", "pinned": "old", "found": "new"})),
    ),
    (
        "BASELINE_MISSING",
        "warn",
        ("z-lab",),
        lambda: caveats_of(with_facts(baselines_configured=["previous", "z-lab"], baselines_found=["previous"])),
    ),
    ("BLOCK_SIZE_MISMATCH", "warn", (16, 32), lambda: caveats_of(with_facts(train_block_size=32))),
    (
        "BLOCK_SIZE_MISMATCH",
        "warn",
        (16, 32),
        lambda: caveats_of(with_facts(result(block_size=None), train_block_size=32, eval_block_size=16)),
    ),
    ("BLOCK_SIZE_MISMATCH", "block", (16, 8), lambda: pair(result(), replace(OTHER, block_size=8, horizon=7))),
    (
        "BLOCK_SIZE_MISMATCH",
        "warn",
        (16, 8),
        lambda: pair(*cut_to_common_horizon(result(), replace(OTHER, block_size=8, horizon=7))),
    ),
    (
        "CACHE_DANGLING",
        "void",
        ("prompt_3", "all zero"),
        lambda: caveats_of(with_facts(cache_refused={"prompt": "prompt_3", "reason": "all zero"})),
    ),
    ("ENGINE_PROXY", "note", ("CPU", "float32", "teacher-forced"), lambda: caveats_of(result(origin="run"))),
    ("HARNESS_DIFFERS", "warn", ("h" * 64, "other"), lambda: pair(result(), replace(OTHER, harness="other"))),
    ("INSIDE_NOISE", "warn", ("top1", "top4", "top8"), lambda: pair(result(), result("previous", seed=2))),
    (
        "SAME_WEIGHTS_OTHER_FILE",
        "note",
        ("ct200:/w/step_5800/checkpoint.pt", "slammed5_step4000.pt"),
        lambda: caveats_of(with_facts(eval_asked={"path": "ct200:/w/step_5800/checkpoint.pt", "step": 5800})),
    ),
    (
        "MASK_TOKEN_SUSPECT",
        "warn",
        (7, 248070),
        lambda: caveats_of(with_facts(eval_mask_token_id=7, train_mask_token_id=248070)),
    ),
    (
        "TARGET_LAYERS_MISMATCH",
        "warn",
        ([1, 2], [1, 16, 31]),
        lambda: caveats_of(with_facts(eval_taps=[1, 2], train_taps=[1, 16, 31])),
    ),
    ("LINK_FALLBACK_COPY", "note", ("copy",), lambda: caveats_of(with_facts(link_method="copy"))),
    (
        "LINKED_FILE_CHANGED",
        "void",
        ("a.pt", "size", "mtime"),
        lambda: caveats_of(with_facts(link_record={"a.pt": LINK}, link_now={"a.pt": {**LINK, "size": 2, "mtime": 9}})),
    ),
    (
        "LINKED_FILE_CHANGED",
        "void",
        ("a.pt", "inode", "size", "header_sha256", "mtime"),
        lambda: caveats_of(with_facts(link_record={"a.pt": LINK}, link_now={})),
    ),
    ("PARTIAL_PROMPT_COVERAGE", "warn", ("3/10",), lambda: caveats_of(on(TEN[:3]))),
    (
        "PARTIAL_PROMPT_COVERAGE",
        "warn",
        ("3/10",),
        lambda: caveats_of(bare(prompts_asked=None, prompts_asked_count=10, prompt_count=3)),
    ),
    ("PROMPT_SET_MISMATCH", "block", (10, 3, 3), lambda: pair(result(), on(TEN[:3], step=2000))),
    (
        "PROMPT_SET_MISMATCH",
        "block",
        (10, 10, 9),
        lambda: pair(result(), replace(OTHER, prompt_hashes={**OTHER.prompt_hashes, "prompt_4": "another text"})),
    ),
    (
        "SAME_PROMPTS_MORE_BLOCKS",
        "note",
        (150, 300),
        lambda: caveats_of_others(result(), [with_blocks(result("quick"), drafted(TEN, count=15, seed=1))]),
    ),
    (
        "SAME_PROMPTS_MORE_BLOCKS",
        "note",
        (45, 300),
        lambda: caveats_of_others(result(), [bare(pooled=Score(45, {}, 1.0), prompt_count=10)]),
    ),
    ("SAME_STEP_OTHER_RUN", "warn", (4000,), lambda: pair(result(), replace(OTHER, step=4000))),
    (
        "SAME_STEP_OTHER_RUN",
        "warn",
        (4000,),
        lambda: pair(result(), bare(weights_id=None, checkpoint_name="v4_step4k.pt", training="v4")),
    ),
    (
        "SAME_STEP_OTHER_RUN",
        "warn",
        (4000,),
        lambda: pair(
            result(origin="run", checkpoint_name="step_4000/checkpoint.pt"), bare(weights_id=None, training="v4")
        ),
    ),
    (
        "SKIPPED_WEIGHTS",
        "void",
        ("fc.weight",),
        lambda: caveats_of(with_facts(weights_audit=audit(missing=("fc.weight",)))),
    ),
    (
        "SKIPPED_WEIGHTS",
        "void",
        ("fc.weight",),
        lambda: caveats_of(with_facts(weights_audit=audit(nonfinite=("fc.weight",)))),
    ),
    (
        "SKIPPED_WEIGHTS",
        "void",
        ("fc.weight",),
        lambda: caveats_of(with_facts(weights_audit=audit(mismatched=("fc.weight: found (2, 2), expected (2, 4)",)))),
    ),
    (
        "SKIPPED_WEIGHTS",
        "note",
        ("embed_tokens.weight", "verifier_norm.weight"),
        lambda: caveats_of(
            with_facts(weights_audit=audit(unused=("verifier_norm.weight",), embedding="equal", head="unknown"))
        ),
    ),
    ("SMALL_N", "warn", (3,), lambda: caveats_of(on(TEN[:3], prompts_asked=TEN[:3]))),
    ("SMALL_N", "warn", (9,), lambda: caveats_of(result(prompt_hashes=dict.fromkeys(TEN[:2], "one text")))),
    ("STALE_CACHE", "warn", ("identity unrecorded",), lambda: caveats_of(with_facts(cache_identity=None))),
    (
        "STALE_CACHE",
        "note",
        ("older than the checkpoint",),
        lambda: caveats_of(with_facts(cache_files={"a": OLD}, checkpoint_file={"mtime": NEW})),
    ),
    (
        "STALE_CACHE",
        "block",
        ("config_sha256", "c1", "c2"),
        lambda: caveats_of(with_facts(cache_identity=CACHE, target_identity={**TARGET, "config_sha256": "c2"})),
    ),
    (
        "STALE_CACHE",
        "block",
        ("taps", [1, 2, 3], [1, 4]),
        lambda: caveats_of(with_facts(cache_identity=CACHE, eval_taps=[1, 4])),
    ),
    (
        "STALE_CACHE",
        "warn",
        ("template_sha unrecorded",),
        lambda: caveats_of(
            with_facts(cache_identity={"config_sha256": "c1", "taps": [1]}, target_identity=TARGET | {"taps": [1]})
        ),
    ),
    ("STEP_BEHIND_LIVE", "note", (4000, 5329, 1329), lambda: caveats_of(with_facts(train_live=LIVE))),
    ("WRONG_MODEL", "void", ("a" * 64, "b" * 64), lambda: caveats_of(with_facts(weights_id="b" * 64))),
]

SILENT: list[tuple[str, str, Make]] = [
    ("ANCHOR_POLICY_MISMATCH", "same policy", lambda: pair(result(), OTHER)),
    (
        "ANCHOR_POLICY_MISMATCH",
        "same policy, one in a fact",
        lambda: pair(with_facts(result(anchors=None), eval_anchors=ANCHORED), OTHER),
    ),
    (
        "BASELINE_CHANGED",
        "unchanged",
        lambda: caveats_of(with_facts(pin_origin={"path": "/a", "pinned": "old", "found": "old"})),
    ),
    (
        "BASELINE_CHANGED",
        "gone",
        lambda: caveats_of(with_facts(pin_origin={"path": "/a", "pinned": "old", "found": None})),
    ),
    (
        "BASELINE_MISSING",
        "all found",
        lambda: caveats_of(with_facts(baselines_configured=["z-lab"], baselines_found=["z-lab", "more"])),
    ),
    ("BASELINE_MISSING", "nobody looked", lambda: caveats_of(with_facts(baselines_configured=["z-lab"]))),
    ("BLOCK_SIZE_MISMATCH", "as trained", lambda: caveats_of(with_facts(train_block_size=16))),
    ("BLOCK_SIZE_MISMATCH", "one horizon unrecorded", lambda: pair(result(), bare(block_size=None, horizon=None))),
    ("CACHE_DANGLING", "none refused", lambda: caveats_of(with_facts(cache_refused={"reason": "no prompt"}))),
    ("ENGINE_PROXY", "imported", lambda: caveats_of(result())),
    ("HARNESS_DIFFERS", "unrecorded", lambda: pair(result(), replace(OTHER, harness=None))),
    ("INSIDE_NOISE", "far apart", lambda: pair(result(), OTHER)),
    ("INSIDE_NOISE", "not comparable", lambda: pair(result(), result("previous", seed=2, anchors="strided"))),
    ("INSIDE_NOISE", "one prompt", lambda: pair(on(TEN[:1]), on(TEN[:1], seed=2))),
    (
        "SAME_WEIGHTS_OTHER_FILE",
        "the one that was asked for",
        lambda: caveats_of(with_facts(eval_asked={"path": "slammed5_step4000.pt", "step": 4000})),
    ),
    (
        "MASK_TOKEN_SUSPECT",
        "the same",
        lambda: caveats_of(with_facts(eval_mask_token_id=7, train_mask_token_id=7)),
    ),
    ("MASK_TOKEN_SUSPECT", "nothing told of training", lambda: caveats_of(with_facts(eval_mask_token_id=7))),
    ("TARGET_LAYERS_MISMATCH", "the same", lambda: caveats_of(with_facts(eval_taps=[1, 2], train_taps=[1, 2]))),
    ("LINK_FALLBACK_COPY", "hard link", lambda: caveats_of(with_facts(link_method="hardlink"))),
    (
        "LINKED_FILE_CHANGED",
        "the same",
        lambda: caveats_of(with_facts(link_record={"a.pt": LINK}, link_now={"a.pt": {**LINK, "new": 1}})),
    ),
    (
        "LINKED_FILE_CHANGED",
        "another file beside it",
        lambda: caveats_of(with_facts(link_record={"a.pt": LINK}, link_now={"a.pt": LINK, "b.json": LINK})),
    ),
    ("LINKED_FILE_CHANGED", "only once looked at", lambda: caveats_of(with_facts(link_record={"a.pt": LINK}))),
    ("ENGINE_PROXY", "a script", lambda: caveats_of(result(origin="run", harness="external:ab"))),
    ("PARTIAL_PROMPT_COVERAGE", "all", lambda: caveats_of(result())),
    ("PARTIAL_PROMPT_COVERAGE", "asked unrecorded", lambda: caveats_of(on(TEN[:3], prompts_asked=None))),
    ("PROMPT_SET_MISMATCH", "unrecorded", lambda: pair(result(), bare(prompt_count=3))),
    ("PROMPT_SET_MISMATCH", "other order", lambda: pair(result(), on(TEN[::-1], step=2000))),
    ("SAME_PROMPTS_MORE_BLOCKS", "equal blocks", lambda: caveats_of_others(result(), [result("again")])),
    (
        "SAME_PROMPTS_MORE_BLOCKS",
        "another checkpoint",
        lambda: caveats_of_others(result(), [bare(pooled=Score(45, {}, 1.0), prompt_count=10, weights_id="b" * 64)]),
    ),
    ("SAME_PROMPTS_MORE_BLOCKS", "other prompts", lambda: caveats_of_others(result(), [on(TEN[:3])])),
    ("SAME_PROMPTS_MORE_BLOCKS", "fewer by count", lambda: caveats_of_others(result(), [bare(prompt_count=3)])),
    ("SAME_STEP_OTHER_RUN", "same weights under another name", lambda: pair(result(), bare(checkpoint_name="x.pt"))),
    ("SAME_STEP_OTHER_RUN", "another step", lambda: pair(result(), OTHER)),
    (
        "SAME_STEP_OTHER_RUN",
        "a run directory's file and an import of the same training",
        lambda: pair(result(origin="run", checkpoint_name="step_4000/checkpoint.pt"), bare(weights_id=None)),
    ),
    ("SKIPPED_WEIGHTS", "all used", lambda: caveats_of(with_facts(weights_audit=audit()))),
    (
        "SKIPPED_WEIGHTS",
        "frozen pair not compared yet",
        lambda: caveats_of(
            with_facts(weights_audit=audit(unused=("lm_head.weight",), embedding="unknown", head="unknown"))
        ),
    ),
    ("SMALL_N", "ten", lambda: caveats_of(result())),
    ("SMALL_N", "unrecorded", lambda: caveats_of(bare(prompt_count=None))),
    (
        "STALE_CACHE",
        "equal, under another name",
        lambda: caveats_of(with_facts(cache_identity=CACHE, target_identity={**TARGET, "name": "moved"})),
    ),
    (
        "STALE_CACHE",
        "another drafter",
        lambda: caveats_of(
            with_facts(cache_identity={**CACHE, "draft_sha": "old"}, target_identity={**TARGET, "draft_sha": "new"})
        ),
    ),
    (
        "STALE_CACHE",
        "newer than the checkpoint",
        lambda: caveats_of(with_facts(cache_files={"a": OLD, "b": NEW}, checkpoint_file={"mtime": OLD})),
    ),
    (
        "STALE_CACHE",
        "times without a zone",
        lambda: caveats_of(with_facts(cache_files={"a": OLD[:-1]}, checkpoint_file={"mtime": NEW})),
    ),
    ("STEP_BEHIND_LIVE", "evaluated the live step", lambda: caveats_of(with_facts(train_live={**LIVE, "step": 4000}))),
    ("STEP_BEHIND_LIVE", "no training", lambda: caveats_of(with_facts(train_live=None))),
    ("WRONG_MODEL", "the right one", lambda: caveats_of(with_facts(weights_id="a" * 64))),
    (
        "WRONG_MODEL",
        "no hash was asked for",
        lambda: caveats_of(with_facts(result(weights_id=None), weights_id="a" * 64)),
    ),
]


@pytest.mark.parametrize(
    ("code", "severity", "values", "make"), RAISED, ids=[f"{r[0]}-{r[1]}-{i}" for i, r in enumerate(RAISED)]
)
def test_raised(code: str, severity: str, values: tuple[Any, ...], make: Make) -> None:
    found = [finding for finding in make() if finding.code == code]
    assert [(finding.severity, finding.values) for finding in found] == [(severity, values)]
    assert found[0].evidence
    assert found[0].sentence.endswith(".")
    assert "\n" not in found[0].sentence


@pytest.mark.parametrize(("code", "why", "make"), SILENT, ids=[f"{s[0]}-{s[1]}" for s in SILENT])
def test_silent(code: str, why: str, make: Make) -> None:
    assert not [finding for finding in make() if finding.code == code], why


@pytest.mark.parametrize(
    ("code", "severity", "values", "make"), RAISED, ids=[f"{r[0]}-{r[1]}-{i}" for i, r in enumerate(RAISED)]
)
def test_raises_no_other_void_or_block(code: str, severity: str, values: tuple[Any, ...], make: Make) -> None:
    assert {f.code for f in make() if f.severity in ("void", "block")} <= {code}


def test_every_file_of_the_room_has_a_code_that_is_raised_and_one_that_is_silent() -> None:
    modules = {info.name for info in pkgutil.iter_modules(caveats.__path__)}
    codes = set()
    for name in modules:
        text = importlib.import_module(f"{caveats.__name__}.{name}").__doc__
        codes.add((text or "").split(":")[0])
    assert len(codes) == len(modules)
    assert codes == {code for code, *_ in RAISED} == {code for code, *_ in SILENT}


def test_a_clean_result_and_a_clean_pair_raise_nothing() -> None:
    assert caveats_of(result()) == ()
    assert caveats_of_comparison(result(), OTHER) == ()


def test_strongest_first() -> None:
    facts = with_facts(
        on(TEN[:3]),
        weights_id="b" * 64,
        cache_identity=CACHE,
        eval_taps=[9],
        train_live=LIVE,
        weights_audit=audit(unused=("verifier_norm.weight",)),
    )
    found = [SEVERITIES.index(finding.severity) for finding in caveats_of(facts)]
    assert found == sorted(found)
    assert set(found) == {0, 1, 2, 3}


def test_what_is_wrong_with_the_previous_result_is_said_to_be_its() -> None:
    few = on(TEN[:3], name="previous", prompts_asked=None)
    found = next(f for f in caveats_of_comparison(result(), few) if f.code == "SMALL_N")
    assert found.sentence.startswith("Previous result: 3 distinct prompts")
    twice = [f for f in caveats_of_comparison(on(TEN[:3]), few) if f.code == "SMALL_N"]
    assert len(twice) == 1


def test_a_void_of_one_prompt_withholds_no_difference() -> None:
    dangling = next(
        f
        for f in caveats_of(with_facts(cache_refused={"prompt": "prompt_3", "reason": "all zero"}))
        if f.severity == "void"
    )
    assert not withholds(dangling)
    assert withholds(replace(dangling, scope=""))


def test_an_audit_that_cant_be_read_raises_nothing() -> None:
    assert caveats_of(with_facts(weights_audit={"family": 3})) == ()


def test_a_completion_too_short_for_a_block_is_a_matter_of_coverage_and_not_of_the_cache() -> None:
    three = with_facts(on(TEN[:9]), prompts_short={"prompt": TEN[9], "tokens": 12, "horizon": 31})
    (coverage,) = [finding for finding in caveats_of(three) if finding.code == "PARTIAL_PROMPT_COVERAGE"]
    assert f"too short a completion for a block: {TEN[9]}" in coverage.sentence
    assert coverage.remedy is None
    assert not [finding for finding in caveats_of(three) if finding.severity in ("void", "block")]
    assert all(f.remedy == "capture" for f in caveats_of(on(TEN[:3])) if f.code == "PARTIAL_PROMPT_COVERAGE")


def test_a_capture_that_is_known_to_be_refused_is_no_remedy() -> None:
    refused = with_facts(on(TEN[:3]), capture_refused="config.json: architectures ['Other']")
    codes = {finding.code: finding.remedy for finding in caveats_of(refused)}
    assert codes["PARTIAL_PROMPT_COVERAGE"] is codes["SMALL_N"] is None
    assert {f.remedy for f in caveats_of(on(TEN[:3])) if f.code in codes and f.remedy} == {"capture"}


def test_every_refused_prompt_is_named() -> None:
    facts = [Fact("cache.refused", {"prompt": p, "reason": "all zero"}, Source("h", f"/{p}"), "") for p in TEN[:2]]
    found = [f for f in caveats_of(result(facts=tuple(facts))) if f.code == "CACHE_DANGLING"]
    assert {finding.scope for finding in found} == set(TEN[:2])


def test_one_source_that_says_another_trained_block_size_is_enough() -> None:
    told = ((32, "train_args.json"), (16, "config.json"))
    facts = tuple(Fact("train.block_size", size, Source("h", path), "") for size, path in told)
    (found,) = [f for f in caveats_of(result(facts=facts)) if f.code == "BLOCK_SIZE_MISMATCH"]
    assert found.values == (16, 32)
    assert "train_args.json" in {source.path for source in found.evidence}
    assert "config.json" not in {source.path for source in found.evidence}


@pytest.mark.parametrize(("here", "values"), [(8, (8, 32)), (16, (16, 32)), (32, None)])
def test_trained_at_means_one_thing_whatever_it_is_evaluated_at(here: int, values: tuple[int, int] | None) -> None:
    checkpoint = Source("ct200", "/w/step_4000/checkpoint.pt")
    facts = (
        Fact("train.block_size", 32, Source("ct200", "/w/train_args.json", "block_size"), ""),
        Fact("checkpoint.file", {}, checkpoint, ""),
        Fact("train.block_size", 8, replace(checkpoint, where="/srv/drafter.json: block_size"), ""),
    )
    found = [f for f in caveats_of(result(facts=facts, block_size=here)) if f.code == "BLOCK_SIZE_MISMATCH"]
    assert [finding.values for finding in found] == ([] if values is None else [values])
    said = "trained at 32 (ct200:/w/train_args.json [block_size]; /srv/drafter.json: block_size says 8): slots see"
    assert all(said in finding.sentence for finding in found)


@pytest.mark.parametrize(
    ("step", "at", "said"),
    [
        (4020, "2026-05-21T09:00:20Z", "20 steps behind"),
        (4001, "2026-05-21T09:00:40Z", "1 step and 1 minute behind"),
        (4020, "2026-05-21T09:02:00Z", "20 steps and 2 minutes behind"),
    ],
)
def test_a_lag_of_no_minute_is_told_in_steps_alone(step: int, at: str, said: str) -> None:
    facts = {"train_live": {"step": step, "at": at}, "checkpoint_file": {"mtime": "2026-05-21T09:00:00Z"}}
    (found,) = [item for item in caveats_of(with_facts(**facts)) if item.code == "STEP_BEHIND_LIVE"]
    assert f"at plan time: {said}." in found.sentence
