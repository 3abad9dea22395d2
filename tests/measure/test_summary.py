from __future__ import annotations

import pytest

from dflash_tui.measure.summary import cut, score, summarise
from dflash_tui.records.block import BlockRecord


def block(prompt: str, anchor: int, ranks: tuple[int | None, ...], tree: tuple[int, ...] = ()) -> BlockRecord:
    return BlockRecord(prompt, anchor, len(ranks), ranks, tuple(-1.0 for _ in ranks), tree)


BLOCKS = (
    block("a", 10, (1, 1, 5, 1), (1, 2, 70)),
    block("a", 12, (2, 1, 1, 1), (17,)),
    block("b", 10, (1, 1, 1, 1), (1, 2, 3, 4)),
    block("b", 12, (None, 1, 1, 1)),
)


def test_pools_blocks_and_counts_no_bonus_token_in_streaks() -> None:
    pooled = score(BLOCKS)
    assert pooled.streak == {"top1": 6 / 4, "top4": (2 + 4 + 4 + 0) / 4, "top8": (4 + 4 + 4 + 0) / 4}
    assert pooled.tau == 6 / 4 + 1
    assert pooled.full_block_rate == 1 / 4
    assert pooled.ddtree["16"] == (2 + 0 + 4 + 0) / 4
    assert pooled.ddtree["128"] == (3 + 1 + 4 + 0) / 4


def test_keeps_prompts_apart() -> None:
    results = summarise("run", 4, BLOCKS)
    assert {name: s.streak["top1"] for name, s in results.per_prompt.items()} == {"a": 1.0, "b": 2.0}


def test_a_cut_reads_the_same_blocks_to_a_shorter_horizon() -> None:
    assert score(cut(BLOCKS, 2)).streak["top8"] == (2 + 2 + 2 + 0) / 4
    with pytest.raises(ValueError, match="asked for 9"):
        cut(BLOCKS, 9)


def test_no_blocks_have_no_score() -> None:
    with pytest.raises(ValueError, match="no blocks"):
        score(())
