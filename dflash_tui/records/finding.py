"""A caveat as found, and the outcome of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Literal, Optional, Tuple

from dflash_tui.records.facts import Source

Severity = Literal["void", "block", "warn", "note"]
SEVERITIES: Tuple[Severity, ...] = ("void", "block", "warn", "note")  # strongest first


@dataclass(frozen=True)
class Finding:
    """One caveat. `values` are the disagreeing values (machine-readable); `remedy` is an action's id ("capture",
    "pin", …) that the tool can carry out, or None. `scope`: what is affected, "" the whole result, else a prompt."""

    code: str
    severity: Severity
    sentence: str
    values: Tuple[Any, ...]
    evidence: Tuple[Source, ...] = ()
    remedy: Optional[str] = None
    scope: str = ""


@dataclass(frozen=True)
class MetricComparison:
    """One row: a metric of both sides. `delta` is None when withheld (n/c) or when a side has no value, which is so
    too where its result is void.
    `interval` is the 95 % Student-t interval over prompt means of the current value, (low, high), None under 2 prompts.
    `delta_interval` likewise for the paired difference."""

    metric: str
    current: Optional[float]
    previous: Optional[float]
    delta: Optional[float]
    interval: Optional[Tuple[float, float]] = None
    delta_interval: Optional[Tuple[float, float]] = None


Verdict = Literal["better", "worse", "inside noise", "inconclusive", "untestable", "not comparable"]


@dataclass(frozen=True)
class Comparison:
    """`delta` repeats the rows' deltas by metric name (top1, top4, top8). `pairing` says how the values were paired:
    "anchors" (block by block), "prompts", or "none". `blocks`: how many blocks the deltas are between, (current,
    previous), which is fewer than a side has where only common anchors are paired; None when withheld."""

    current: str
    previous: str
    rows: Tuple[MetricComparison, ...]
    delta: Dict[str, Optional[float]]
    verdict: Verdict
    why: Tuple[str, ...]
    caveats: Tuple[Finding, ...]
    pairing: Literal["anchors", "prompts", "none"] = "none"
    blocks: Optional[Tuple[int, int]] = None
