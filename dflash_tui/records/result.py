"""Derived figures of an evaluation, and the one view of a result that comparisons and faces use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Literal, Optional, Tuple

from dflash_tui.records.block import BlockRecord
from dflash_tui.records.facts import Fact

METRICS = ("top1", "top4", "top8")
BUDGETS = (16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Score:
    """Means over blocks. `streak` has the keys of METRICS (leading correct drafts, no bonus token); `tau` is
    streak.top1 + 1; `ddtree` maps a node budget to the mean accepted drafts (no bonus); `full_block_rate` is the share
    of blocks whose every draft is right. None where a source does not say."""

    blocks: int
    streak: Dict[str, float]
    tau: float
    ddtree: Dict[str, float] = field(default_factory=dict)
    full_block_rate: Optional[float] = None


@dataclass(frozen=True)
class Results:
    """``results.json`` of a run: derived from blocks.jsonl by measure/ alone."""

    version: int
    run_id: str
    horizon: int
    pooled: Score
    per_prompt: Dict[str, Score]


@dataclass(frozen=True)
class Evaluation:
    """A result as comparisons see it: an own run, a pin, or an imported file.

    `horizon` = block_size − 1 drafts a block. `prompts_asked`/`prompts_present`: ids, None when unrecorded;
    `prompt_count` the number of prompts measured when only that is known. `anchors`: the policy's name, None when
    unrecorded. `sha256` is the hash of the bytes it was read from (manifest or imported file).
    """

    name: str
    origin: Literal["run", "import"]
    path: str
    sha256: str
    pooled: Score
    per_prompt: Dict[str, Score] = field(default_factory=dict)
    blocks: Tuple[BlockRecord, ...] = ()
    preset: Optional[str] = None
    training: Optional[str] = None
    step: Optional[int] = None
    checkpoint_name: Optional[str] = None
    checkpoint_path: Optional[str] = None
    run_dir: Optional[str] = None
    weights_id: Optional[str] = None
    block_size: Optional[int] = None
    horizon: Optional[int] = None
    prompts_asked: Optional[Tuple[str, ...]] = None
    prompts_present: Optional[Tuple[str, ...]] = None
    prompts_asked_count: Optional[int] = None
    prompt_count: Optional[int] = None
    prompt_hashes: Dict[str, str] = field(default_factory=dict)
    anchors: Optional[str] = None
    harness: Optional[str] = None
    created_at: Optional[str] = None
    request_id: Optional[str] = None
    facts: Tuple[Fact, ...] = ()
