"""Blocks to scores: the only place where ``results.json`` comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Sequence, Tuple

from dflash_tui.measure.ddtree import accepted
from dflash_tui.measure.streaks import streak
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.result import BUDGETS, METRICS, Results, Score


def score(blocks: Sequence[BlockRecord]) -> Score:
    """Pooled means (every block weighs the same). Raises ValueError without blocks."""
    if not blocks:
        raise ValueError("no blocks to score")
    count = len(blocks)
    streaks = {metric: sum(streak(block.ranks, int(metric[3:])) for block in blocks) / count for metric in METRICS}
    return Score(
        blocks=count,
        streak=streaks,
        tau=streaks["top1"] + 1,
        ddtree={str(budget): sum(accepted(block.tree, budget) for block in blocks) / count for budget in BUDGETS},
        full_block_rate=sum(streak(block.ranks, 1) == block.horizon for block in blocks) / count,
    )


def by_prompt(blocks: Sequence[BlockRecord]) -> Dict[str, List[BlockRecord]]:
    """Blocks grouped by prompt, in order of first appearance."""
    groups: Dict[str, List[BlockRecord]] = {}
    for block in blocks:
        groups.setdefault(block.prompt, []).append(block)
    return groups


def summarise(run_id: str, horizon: int, blocks: Sequence[BlockRecord]) -> Results:
    """Pooled and per-prompt scores of a run's blocks. Raises ValueError without blocks."""
    return Results(
        version=1,
        run_id=run_id,
        horizon=horizon,
        pooled=score(blocks),
        per_prompt={prompt: score(group) for prompt, group in by_prompt(blocks).items()},
    )


def cut(blocks: Sequence[BlockRecord], horizon: int) -> Tuple[BlockRecord, ...]:
    """The same blocks read to a shorter horizon. A cut is not a re-evaluation: slots see each other, so a drafter run
    at the shorter block would give other ranks; and nodes beyond the cut still take their places in the tree, so that
    its acceptance is a lower bound of the shorter tree's. Raises ValueError when a block is shorter than `horizon`."""
    short = next((block for block in blocks if block.horizon < horizon), None)
    if short is not None:
        raise ValueError(f"block at {short.prompt}:{short.anchor} has horizon {short.horizon}, asked for {horizon}")
    return tuple(
        replace(
            block,
            horizon=horizon,
            ranks=block.ranks[:horizon],
            logprobs=block.logprobs[:horizon],
            tree=block.tree[:horizon],
            margin=None,
        )
        for block in blocks
    )
