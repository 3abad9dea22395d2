"""What is known of an evaluation: its recorded fields first, then its facts, and where each was read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.codec import RecordError, from_data
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.result import Evaluation


def fact(evaluation: Evaluation, kind: str) -> Fact | None:
    """The newest fact of a kind (facts are kept in the order in which they were learnt)."""
    return next(iter(facts(evaluation, kind)), None)


def facts(evaluation: Evaluation, kind: str) -> tuple[Fact, ...]:
    """Every fact of a kind, newest first."""
    return tuple(item for item in reversed(evaluation.facts) if item.kind == kind)


def value(evaluation: Evaluation, kind: str) -> Any:
    """The newest fact's value, None without one."""
    found = fact(evaluation, kind)
    return found.value if found is not None else None


def source(evaluation: Evaluation, kind: str, key: str = "") -> Source:
    """Where a kind of fact was read; without such a fact, `key` of the evaluation's own file."""
    found = fact(evaluation, kind)
    return found.source if found is not None else Source("", evaluation.path, key)


def whole(number: Any) -> int | None:
    """`number` as an int when it is one (JSON's true is none)."""
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def names(items: Any) -> tuple[str, ...] | None:
    """`items` as names when it is a list (or an object's keys)."""
    return tuple(str(item) for item in items) if isinstance(items, (list, tuple, dict)) else None


def moment(text: Any) -> datetime | None:
    """An ISO 8601 time that says its zone; without a zone it can't be set against another host's time: None."""
    if not isinstance(text, str):
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else None


def block_size(evaluation: Evaluation) -> int | None:
    """Tokens in a block as evaluated, anchor included."""
    if evaluation.block_size is not None:
        return evaluation.block_size
    return whole(value(evaluation, "eval.block_size"))


def horizon(evaluation: Evaluation) -> int | None:
    """Drafts a block: recorded, else block size − 1."""
    if evaluation.horizon is not None:
        return evaluation.horizon
    size = block_size(evaluation)
    return size - 1 if size is not None else None


def anchors(evaluation: Evaluation) -> str | None:
    """The anchor policy's name."""
    if evaluation.anchors is not None:
        return evaluation.anchors
    recorded = value(evaluation, "eval.anchors")
    policy = recorded.get("policy") if isinstance(recorded, dict) else None
    return policy if isinstance(policy, str) else None


def step(evaluation: Evaluation) -> int | None:
    """The training step of the evaluated checkpoint."""
    return evaluation.step if evaluation.step is not None else whole(value(evaluation, "checkpoint.step"))


def audit(evaluation: Evaluation) -> Audit | None:
    """The newest audit of the evaluated weights; None when none was made or it can't be read."""
    recorded = value(evaluation, "weights.audit")
    if not isinstance(recorded, dict):
        return None
    try:
        return from_data(Audit, recorded, "weights.audit")
    except RecordError:
        return None


def asked(evaluation: Evaluation) -> tuple[str, ...] | None:
    """Ids of the prompts that were asked for, None when unrecorded."""
    if evaluation.prompts_asked is not None:
        return evaluation.prompts_asked
    return names(value(evaluation, "prompts.asked")) if evaluation.prompts_asked_count is None else None


def asked_count(evaluation: Evaluation) -> int | None:
    """How many prompts were asked for."""
    known = asked(evaluation)
    return len(known) if known is not None else evaluation.prompts_asked_count


def measured(evaluation: Evaluation) -> tuple[str, ...] | None:
    """Ids of the prompts that the values rest on, None when unrecorded."""
    if evaluation.per_prompt:
        return tuple(evaluation.per_prompt)
    if evaluation.prompts_present is not None:
        return evaluation.prompts_present
    return names(value(evaluation, "prompts.present"))


def measured_count(evaluation: Evaluation) -> int | None:
    """How many distinct prompts the values rest on: by text where hashes are recorded, else by id."""
    known = measured(evaluation)
    if known is None:
        return evaluation.prompt_count
    return len(by_text(evaluation, known))


def by_text(evaluation: Evaluation, prompts: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The prompts in groups of one text each (by recorded hash, else by id): a repeated text is one prompt."""
    groups: dict[str, list[str]] = {}
    for prompt in prompts:
        groups.setdefault(evaluation.prompt_hashes.get(prompt, prompt), []).append(prompt)
    return tuple(map(tuple, groups.values()))


def by_script(evaluation: Evaluation) -> bool:
    """Whether a script of the user's own measured it: what it did with prompts and engine only the script knows."""
    return (evaluation.harness or "").startswith("external:")


def capturable(evaluation: Evaluation) -> bool:
    """Whether nothing says that the hidden states which are missing can't be captured."""
    return not facts(evaluation, "capture.refused")


def same_checkpoint(one: Evaluation, other: Evaluation) -> bool:
    """Both are known to be of the same weights: by hash where both record one, else by the checkpoint's name."""
    if one.weights_id is not None and other.weights_id is not None:
        return one.weights_id == other.weights_id
    return one.checkpoint_name is not None and one.checkpoint_name == other.checkpoint_name and step(one) == step(other)


def same_result(one: Evaluation, other: Evaluation) -> bool:
    """Both were read from the same bytes, and no part was taken of either: a result beside itself."""
    return one.sha256 == other.sha256 != "" and one.pooled == other.pooled
