"""Blocks of a prompt, drafted: ranks of the reference tokens, their log-probabilities, DDTree prefix ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash_tui.harness.drafter import Drafter
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.transformer import KeysValues
from dflash_tui.harness.vocabulary import Vocabulary
from dflash_tui.measure.ddtree import prefix_ranks
from dflash_tui.measure.streaks import streak
from dflash_tui.records.block import RANK_LIMIT, TREE_LIMIT, BlockRecord
from dflash_tui.records.result import METRICS

GROUP = 8
"""Blocks that go through the drafter together: enough rows for an efficient matrix product, little memory."""
TILE = 4096
"""Head rows at a time; with 8 blocks of 16 a tile is 2 MB; all logits of a 248,320-token vocabulary are 119. The first
tile is sorted whole, so a larger one costs more (`tests.bench.evaluation`)."""
DECIDING_RANK = max(int(metric[3:]) for metric in METRICS)


@dataclass(frozen=True)
class Scan:
    """What one pass over the head keeps of R rows of logits.

    `values`, `rows` [R, C]: the C ≤ 512 best logits (float32) and their head rows, greatest first, the lower row first
    where equal. `total` [R] (float64): log of the sum of all exponentials. `reference` [R] (float32): the reference
    token's logit.
    """

    values: Tensor
    rows: Tensor
    total: Tensor
    reference: Tensor


def scan(drafter: Drafter, hidden: Tensor, head: Tensor, reference: Tensor, keep: int = TREE_LIMIT) -> Scan:
    """One pass over the head in tiles for hidden states [R, D]; `reference` [R] holds a head row for each.

    Once `keep` candidates are held, only logits strictly above the smallest of them enter: a later row never beats an
    earlier equal one, so ties resolve to the lower id exactly as in a stable sort of everything.
    """
    tile = max(TILE, keep)
    count = hidden.shape[0]
    total = torch.full((count,), -math.inf, dtype=torch.float64)
    chosen = torch.zeros(count)
    values, rows = torch.empty(count, 0), torch.empty(count, 0, dtype=torch.int64)
    for start in range(0, head.shape[0], tile):
        logits = drafter.logits(hidden, head[start : start + tile])
        total = torch.logaddexp(total, torch.logsumexp(logits.double(), dim=1))
        here = (reference >= start) & (reference < start + logits.shape[1])
        chosen[here] = logits[here, reference[here] - start]
        if start == 0:
            fresh, where = logits, torch.arange(logits.shape[1]).expand_as(logits)
        else:
            fresh, where = _above(logits, values[:, -1], start)
        if fresh.shape[1]:
            values, order = torch.cat((values, fresh), 1).sort(dim=1, descending=True, stable=True)
            values, order = values[:, :keep], order[:, :keep]
            rows = torch.cat((rows, where), 1).gather(1, order)
    return Scan(values, rows, total, chosen)


def draft(
    drafter: Drafter,
    vocabulary: Vocabulary,
    prompt: str,
    tokens: Tensor,
    features: Tensor,
    anchors: Sequence[int],
    block_size: int,
) -> Iterator[tuple[BlockRecord, ...]]:
    """Records of the blocks at `anchors` (ascending absolute positions), in groups of up to GROUP.

    `tokens` [N] are prompt and completion; `features` [T, K·D] the tapped states, of which only positions before the
    last anchor are read. Every anchor needs block_size − 1 tokens after it. Raises HarnessError when a logit is not
    finite.
    """
    if not anchors:
        return
    horizon = block_size - 1
    with torch.inference_mode():
        shared = drafter.context_kv(drafter.context(features[: max(anchors)]))
        for start in range(0, len(anchors), GROUP):
            group = torch.tensor(anchors[start : start + GROUP])
            references = torch.stack([tokens[a + 1 : a + block_size] for a in group.tolist()]).long()
            hidden = _hidden(drafter, vocabulary.embedding, tokens[group].long(), group, shared, block_size)
            wanted, known = vocabulary.rows(references.flatten())
            found = scan(drafter, hidden[:, 1:].flatten(0, 1), vocabulary.head, wanted)
            if not bool(torch.isfinite(found.total).all()):
                raise HarnessError(f"{prompt}: the drafter's logits are not finite; look at its weights and norms")
            yield tuple(_records(prompt, group.tolist(), horizon, found, wanted, known))


def _hidden(
    drafter: Drafter, embedding: Tensor, tokens: Tensor, anchors: Tensor, shared: Sequence[KeysValues], block: int
) -> Tensor:
    """Final hidden states [G, B, D] of blocks that start with `tokens` [G] at positions `anchors` [G]."""
    ids = torch.full((tokens.shape[0], block), drafter.settings.mask_token_id)
    ids[:, 0] = tokens
    out: Tensor = drafter(embedding[ids], anchors, shared)
    return out


def _above(logits: Tensor, floor: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Logits [R, tile] above each row's floor [R], packed to the left in id order, and their head rows; −inf pads."""
    rows, columns = (logits > floor[:, None]).nonzero(as_tuple=True)
    counts = torch.bincount(rows, minlength=logits.shape[0])
    width = int(counts.max())
    places = torch.arange(rows.shape[0]) - (counts.cumsum(0) - counts)[rows]
    fresh = torch.full((logits.shape[0], width), -math.inf)
    where = torch.zeros(logits.shape[0], width, dtype=torch.int64)
    fresh[rows, places] = logits[rows, columns]
    where[rows, places] = columns + start
    return fresh, where


def _records(
    prompt: str, anchors: Sequence[int], horizon: int, found: Scan, wanted: Tensor, known: Tensor
) -> Iterator[BlockRecord]:
    hits = (found.rows == wanted[:, None]) & known[:, None]
    ranks: list[int | None] = [
        int(r) + 1 if hit else None for r, hit in zip(hits.int().argmax(1), hits.any(1), strict=True)
    ]
    logprobs = [
        value if inside and math.isfinite(value) else None
        for value, inside in zip((found.reference.double() - found.total).tolist(), known.tolist(), strict=True)
    ]
    candidates = (found.values.double() - found.total[:, None]).tolist()
    gaps = (found.values[:, :-1] - found.values[:, 1:]).tolist()
    for index, anchor in enumerate(anchors):
        own = slice(index * horizon, (index + 1) * horizon)
        yield BlockRecord(
            prompt=prompt,
            anchor=anchor,
            horizon=horizon,
            ranks=tuple(r if r is not None and r <= RANK_LIMIT else None for r in ranks[own]),
            logprobs=tuple(logprobs[own]),
            tree=prefix_ranks(candidates[own], ranks[own], TREE_LIMIT),
            margin=_margin(ranks[own], gaps[own]),
        )


def _margin(ranks: Sequence[int | None], gaps: Sequence[Sequence[float]]) -> float | None:
    """The smallest logit gap between a reference and a neighbour in rank, over the slots that decide the streaks: up
    to and with the first that ends the longest of them. Padded candidates (gap inf) are no neighbours."""
    deciding = min(len(ranks), streak(ranks, DECIDING_RANK) + 1)
    near = [
        gap
        for rank, row in zip(ranks[:deciding], gaps[:deciding], strict=True)
        if rank is not None
        for gap in row[max(rank - 2, 0) : rank]
        if math.isfinite(gap)
    ]
    return min(near) if near else None
