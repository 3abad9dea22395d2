"""Run folders as the harness and the console write them, for tests: real records, made-up ranks."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings

from dflash_tui.measure.anchors import spaced
from dflash_tui.measure.summary import summarise
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.codec import dumps
from dflash_tui.records.facts import Fact
from dflash_tui.records.manifest import CheckpointRef, Manifest, PromptRef, TargetRef
from dflash_tui.records.process import ExitRecord
from dflash_tui.records.settings import DrafterSettings

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # for machines that others share
TEN = tuple(f"prompt_{number}" for number in range(10))
AUDIT = Audit(family="dflash", container="zip", tensors=3, drafter=("fc.weight", "hidden_norm.weight", "norm.weight"))
SETTINGS = DrafterSettings(
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    intermediate_size=16,
    vocab_size=64,
    taps=(1, 2),
    block_size=16,
    mask_token_id=63,
    rope_theta=1e6,
    rms_norm_eps=1e-6,
    layer_masks=("full",),
)


def manifest(
    run_id: str = "slammed5-step4000-full", *, asked: Sequence[str] = TEN, present: Sequence[str] = TEN, **changes: Any
) -> Manifest:
    """A manifest of a full evaluation at block size 16; `changes` replace any field."""
    base = Manifest(
        version=1,
        run_id=run_id,
        created_at="2026-05-21T09:40:00Z",
        preset="full",
        anchors="spaced",
        blocks_per_prompt=30,
        block_size=16,
        checkpoint=CheckpointRef(
            host="ct200",
            path="/workspace/checkpoints/step_4000/checkpoint.pt",
            linked="checkpoint.pt",
            step=4000,
            training="slammed5",
            size=15_470_000_128,
            mtime=1779354035.0,
            weights_id="a" * 64,
        ),
        drafter=SETTINGS,
        audit=AUDIT,
        target=TargetRef("/models/target", "target", "c" * 64),
        prompts_path="/eval/prompts.jsonl",
        prompts=tuple(PromptRef(p, f"hash of {p}", f"{p}.safetensors" if p in present else None) for p in asked),
        hidden_states="/eval/hidden_states",
        threads=2,
        request_id=f"request of {run_id}",
        harness="f" * 64,
        tool_version="0.1",
    )
    return replace(base, **changes)


def drafted(
    prompts: Iterable[str], *, count: int = 30, horizon: int = 15, skill: float = 0.8, seed: int = 0, shift: int = 0
) -> tuple[BlockRecord, ...]:
    """Blocks at the spaced anchors of 400-token completions. A slot is right with probability `skill`."""
    blocks = []
    for prompt in prompts:
        chance = random.Random(f"{seed} {prompt}")
        for anchor in spaced(20, 400, horizon, count):
            ranks = tuple(1 if chance.random() < skill else chance.choice((2, 5, 9, None)) for _ in range(horizon))
            right = next((i for i, rank in enumerate(ranks) if rank != 1), horizon)
            logprobs = tuple(None if rank is None else -0.1 * rank for rank in ranks)
            blocks.append(BlockRecord(prompt, anchor + shift, horizon, ranks, logprobs, tuple(range(1, right + 1))))
    return tuple(blocks)


def write_run(
    folder: Path,
    of: Manifest,
    blocks: Sequence[BlockRecord],
    *,
    finished: bool = True,
    audit: Audit | None = None,
    facts: Sequence[Fact] = (),
) -> Path:
    """The files of a run, with results and a good end when `finished`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(dumps(of, indent=1), encoding="utf-8")
    (folder / "blocks.jsonl").write_text("".join(dumps(block) + "\n" for block in blocks), encoding="utf-8")
    if audit is not None:
        (folder / "audit.json").write_text(dumps(audit), encoding="utf-8")
    if facts:
        (folder / "facts.jsonl").write_text("".join(dumps(fact) + "\n" for fact in facts), encoding="utf-8")
    if finished:
        results = summarise(of.run_id, of.block_size - 1, blocks)
        (folder / "results.json").write_text(dumps(results, indent=1), encoding="utf-8")
        ended = ExitRecord("finished", 0, "2026-05-21T09:50:00Z")
        (folder / "exit.json").write_text(dumps(ended), encoding="utf-8")
    return folder
