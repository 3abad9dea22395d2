"""BLOCK_SIZE_MISMATCH: a drafter evaluated at another block size than it was trained at, or than the other result."""

from __future__ import annotations

from dflash_tui.records.facts import Fact
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence

CODE = "BLOCK_SIZE_MISMATCH"


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Within one result: block size as evaluated against training's; values (evaluated, trained). What the training
    itself says (its arguments, its log) counts before what describes the drafter, which may be the config of another;
    where these disagree the sentence says so."""
    here = evidence.block_size(evaluation)
    told = [fact for fact in evidence.facts(evaluation, "train.block_size") if evidence.whole(fact.value) is not None]
    described = [fact for fact in told if _describes(evaluation, fact)]
    own = [fact for fact in told if fact not in described]
    other = [fact for fact in own or described if fact.value != here]
    if here is None or not other:
        return ()
    trained = other[0].value
    otherwise = {fact.value: _place(fact, fact in described) for fact in told if fact.value != trained}
    doubts = "".join(f"; {place} says {size}" for size, place in otherwise.items())
    doubted = f" ({_place(other[0], other[0] in described)}{doubts})" if doubts else ""
    sentence = (
        f"Evaluated at block size {here}, trained at {trained}{doubted}: slots see each other, so the drafter is not "
        "used as it was trained."
    )
    sources = (
        evidence.source(evaluation, "eval.block_size", "block_size"),
        *(fact.source for fact in other if fact.value == trained),
    )
    return (Finding(CODE, "warn", sentence, (here, trained), sources),)


def _describes(evaluation: Evaluation, fact: Fact) -> bool:
    """Whether it was read with the checkpoint (a config, the user's own settings), not of the training itself."""
    checkpoint = evidence.fact(evaluation, "checkpoint.file")
    place = (fact.source.host, fact.source.path)
    return not fact.source.host or (
        checkpoint is not None and place == (checkpoint.source.host, checkpoint.source.path)
    )


def _place(fact: Fact, described: bool) -> str:
    return (fact.source.where if described else "") or str(fact.source)


def find_between(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """Between two results: `block` at different horizons, `warn` when they were cut to a common one."""
    horizons = evidence.horizon(current), evidence.horizon(previous)
    sizes = evidence.block_size(current), evidence.block_size(previous)
    if None in horizons or None in sizes:
        return ()
    sources = tuple(evidence.source(side, "eval.block_size", "block_size") for side in (current, previous))
    if horizons[0] != horizons[1]:
        cuttable = bool(current.blocks if (horizons[0] or 0) > (horizons[1] or 0) else previous.blocks)
        sentence = (
            f"Current result drafts {horizons[0]} tokens a block, previous {horizons[1]}: a longer one has more to win"
            + ("; both can be cut to the shorter." if cuttable else ".")
        )
        return (Finding(CODE, "block", sentence, sizes, sources, "common" if cuttable else None),)
    if sizes[0] != sizes[1]:
        sentence = (
            f"Current result was evaluated at block size {sizes[0]}, previous at {sizes[1]}, both cut to {horizons[0]} "
            "drafts: a cut is not a re-evaluation, because slots see each other."
        )
        return (Finding(CODE, "warn", sentence, sizes, sources),)
    return ()
