"""STALE_CACHE: hidden states of another target, of an unrecorded one, or merely older than the checkpoint."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence

CODE = "STALE_CACHE"
_TAPS = ("taps", "target_layer_ids")
_LABELS = ("name", "path", "created", "created_at", "producer")  # where and when, not what: renamed is the same
_DRAFTER = "draft"  # begins keys that hidden states do not depend on


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """`block`: recorded and another (values: what differs, the cache's, the evaluation's, for each); `warn`: identity
    unrecorded, all of it or a part (values: which), and single prompts that were left out because their hidden states
    are of something else (values: prompt, reason); `note`: only older than the checkpoint, the normal case."""
    return (*_of_the_whole(evaluation), *_left_out(evaluation))


def _left_out(evaluation: Evaluation) -> tuple[Finding, ...]:
    """No value rests on these states, so none is withheld for them."""
    facts = (fact for fact in evidence.facts(evaluation, "cache.refused") if isinstance(fact.value, dict))
    return tuple(
        Finding(
            CODE,
            "warn",
            f"Hidden states of {fact.value['prompt']} are of something else and were left out: {fact.value['reason']}.",
            (fact.value["prompt"], fact.value["reason"]),
            (fact.source,),
            scope=fact.value["prompt"],
        )
        for fact in facts
        if fact.value.get("foreign") is True
        and isinstance(fact.value.get("prompt"), str)
        and isinstance(fact.value.get("reason"), str)
    )


def _of_the_whole(evaluation: Evaluation) -> tuple[Finding, ...]:
    identity = evidence.fact(evaluation, "cache.identity")
    older = _older(evaluation)
    times = (
        (evidence.source(evaluation, "cache.files"), evidence.source(evaluation, "checkpoint.file")) if older else ()
    )
    if identity is not None and not identity.value:
        sentence = (
            f"Hidden states do not record which target and taps they are of{', and are ' + older if older else ''}."
        )
        return (Finding(CODE, "warn", sentence, ("identity unrecorded",), (identity.source, *times)),)
    if identity is not None and isinstance(identity.value, dict):
        differing = _differing(identity.value, evaluation)
        if differing:
            pairs = ", ".join(f"{key} {there} here {here}" for key, there, here in differing)
            sources = (identity.source, evidence.source(evaluation, "target.identity"))
            return (
                Finding(
                    CODE,
                    "block",
                    f"Hidden states are of another target than the evaluation's: {pairs}.",
                    tuple(part for triple in differing for part in triple),
                    sources,
                ),
            )
        lacking = _lacking(identity.value, evaluation)
        if lacking:
            sentence = f"Hidden states do not record their {', '.join(lacking)}, which the evaluation's target has."
            values = tuple(f"{key} unrecorded" for key in lacking)
            sources = (identity.source, evidence.source(evaluation, "target.identity"))
            return (Finding(CODE, "warn", sentence, values, sources),)
    if older:
        sentence = f"Hidden states are {older}: the normal case, they don't depend on the drafter."
        return (Finding(CODE, "note", sentence, ("older than the checkpoint",), times),)
    return ()


def _differing(identity: dict[str, Any], evaluation: Evaluation) -> list[tuple[str, Any, Any]]:
    """(key, in the cache, in the evaluation) for what both record and is not the same."""
    cached, wanted = _cached(identity), _wanted(evaluation)
    found = [(key, cached[key], here) for key, here in wanted.items() if cached.get(key) not in (None, here)]
    target = evidence.value(evaluation, "target.identity")
    target = target if isinstance(target, dict) else {}
    taps = next((target[key] for key in _TAPS if key in target), evidence.value(evaluation, "eval.taps"))
    stored = next((cached[key] for key in _TAPS if key in cached), None)
    if isinstance(taps, list) and isinstance(stored, list) and not set(map(str, taps)) <= set(map(str, stored)):
        found.append(("taps", stored, taps))  # more taps than needed do no harm
    return found


def _lacking(identity: dict[str, Any], evaluation: Evaluation) -> list[str]:
    """What the evaluation's target records and the cache does not: an absence is never taken for equality."""
    cached = _cached(identity)
    return [key for key in _wanted(evaluation) if cached.get(key) is None]


def _cached(identity: dict[str, Any]) -> dict[str, Any]:
    nested = identity.get("target")
    return {**identity, **nested} if isinstance(nested, dict) else identity


def _wanted(evaluation: Evaluation) -> dict[str, Any]:
    """What tells the evaluation's target apart, taps aside."""
    target = evidence.value(evaluation, "target.identity")
    return {
        key: value
        for key, value in (target.items() if isinstance(target, dict) else ())
        if value is not None and key not in (*_LABELS, *_TAPS) and not key.startswith(_DRAFTER)
    }


def _older(evaluation: Evaluation) -> str:
    """ "older than the checkpoint (date, date)" when the newest hidden-state file is; else ""."""
    files, checkpoint = evidence.value(evaluation, "cache.files"), evidence.value(evaluation, "checkpoint.file")
    saved = evidence.moment(checkpoint.get("mtime")) if isinstance(checkpoint, dict) else None
    times = [evidence.moment(at) for at in files.values()] if isinstance(files, dict) else []
    written = [at for at in times if at is not None]
    if saved is None or not written or max(written) >= saved:
        return ""
    return f"older than the checkpoint ({_minute(max(written))}, {_minute(saved)})"


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
