"""The caveats: what makes a number, or a comparison, untrustworthy. One file per code, each a pure function of facts
and records; those of one result take it alone, those of two take (current, previous)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dflash_tui.records.finding import SEVERITIES, Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results.caveats import (
    anchor_policy,
    baseline_changed,
    baseline_missing,
    block_size,
    cache_dangling,
    engine_proxy,
    harness_differs,
    inside_noise,
    link_fallback,
    linked_file,
    mask_token,
    more_blocks,
    prompt_coverage,
    prompt_set,
    same_step,
    same_weights,
    skipped_weights,
    small_n,
    stale_cache,
    step_behind_live,
    target_layers,
    wrong_model,
)

OF_ONE: tuple[Callable[[Evaluation], tuple[Finding, ...]], ...] = (
    baseline_changed.find,
    baseline_missing.find,
    block_size.find,
    cache_dangling.find,
    engine_proxy.find,
    link_fallback.find,
    linked_file.find,
    mask_token.find,
    prompt_coverage.find,
    same_weights.find,
    skipped_weights.find,
    small_n.find,
    stale_cache.find,
    step_behind_live.find,
    target_layers.find,
    wrong_model.find,
)
OF_TWO: tuple[Callable[[Evaluation, Evaluation], tuple[Finding, ...]], ...] = (
    anchor_policy.find,
    block_size.find_between,
    harness_differs.find,
    more_blocks.find,
    prompt_set.find,
    same_step.find,
)


def caveats_of(evaluation: Evaluation) -> tuple[Finding, ...]:
    """What is doubtful about one result, strongest first."""
    return merged(finding for find in OF_ONE for finding in find(evaluation))


def caveats_of_pair(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """What is doubtful about setting two results against each other, strongest first, without what is doubtful about
    each alone. Noise is judged only where the two are comparable at all."""
    found = [finding for find in OF_TWO for finding in find(current, previous)]
    if not any(withholds(finding) for finding in found):
        found += inside_noise.find(current, previous)
    return merged(found)


def caveats_of_comparison(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """All that is doubtful when `current` stands beside `previous`: the pair's caveats and those of each side. What is
    said of the previous result says so; its notes stay with itself."""
    others = (
        replace(finding, sentence=f"Previous result: {finding.sentence}")
        for finding in caveats_of(previous)
        if finding.severity != "note"
    )
    return merged((*caveats_of_pair(current, previous), *caveats_of(current), *others))


def caveats_of_others(current: Evaluation, others: Sequence[Evaluation]) -> tuple[Finding, ...]:
    """What is doubtful about showing `others`, results of the same checkpoint, in the same table as `current`."""
    return merged(finding for other in others for finding in more_blocks.find(current, other))


def withholds(finding: Finding) -> bool:
    """True when no difference may be shown while this is open: a `block`, or a `void` of the whole result."""
    return finding.severity == "block" or (finding.severity == "void" and not finding.scope)


def voided(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Why no value of a result can be believed: its `void` caveats that are of the whole. Such values are not shown."""
    return tuple(finding for finding in caveats_of(evaluation) if finding.severity == "void" and not finding.scope)


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Strongest first, then by code; of findings with equal code, severity, values and scope, the first is kept."""
    kept: dict[tuple[str, str, str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.code, finding.severity, repr(finding.values), finding.scope), finding)
    return tuple(sorted(kept.values(), key=lambda finding: (SEVERITIES.index(finding.severity), finding.code)))
