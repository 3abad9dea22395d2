"""Evaluations that nothing is wrong with, and barer ones, for tests of caveats, comparisons and reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dflash_tui.records.result import Evaluation, Score
from dflash_tui.results.evaluation import with_blocks
from tests.runs import TEN, drafted


def result(name: str = "current", *, seed: int = 1, skill: float = 0.8, **changes: Any) -> Evaluation:
    """A result that nothing is wrong with: ten prompts, blocks, everything recorded."""
    bare = Evaluation(
        name=name,
        origin="import",
        path=f"/state/{name}",
        sha256=name,
        pooled=Score(1, {}, 1.0),
        preset="full",
        training="slammed5",
        step=4000,
        checkpoint_name="slammed5_step4000.pt",
        weights_id="a" * 64,
        block_size=16,
        horizon=15,
        prompts_asked=TEN,
        prompt_hashes={prompt: f"hash of {prompt}" for prompt in TEN},
        anchors="spaced",
        harness="h" * 64,
    )
    return replace(with_blocks(bare, drafted(TEN, seed=seed, skill=skill)), **changes)


def on(prompts: tuple[str, ...], **changes: Any) -> Evaluation:
    whole = result(**changes)
    return with_blocks(whole, [block for block in whole.blocks if block.prompt in prompts])


def bare(name: str = "previous", **changes: Any) -> Evaluation:
    """A result without blocks or prompts, as an imported file may be."""
    whole = result(name, seed=2, skill=0.4)
    return replace(whole, blocks=(), per_prompt={}, prompts_present=None, prompt_hashes={}, **changes)


OTHER = result("previous", seed=2, skill=0.4, step=2000, weights_id="b" * 64)
