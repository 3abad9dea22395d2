"""One training run as a console meets it: settings beside it, a log that grows, checkpoints under their final names."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.demo.corpus import EVALUATED
from dflash_tui.demo.errors import DemoError
from dflash_tui.demo.loading import borrowed, load_drafter, load_in_float
from dflash_tui.demo.training import Course, Recipe, read_rows
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.target import Target

REFUSALS = (DemoError, HarnessError, CheckpointError)
"""What a run can end with before its first step: one sentence, naming the file."""

FALL = 400
"""Steps in which the learning rate falls, however long the run: what is learned early should not depend on that."""


@dataclass(frozen=True)
class Run:
    """What a run is asked to do; paths are absolute. `min_step` is the least seconds that a step takes.

    Checkpoints go to `out`, the settings to `train_args`; `target` and `init` are model folders, `rows` a JSONL file;
    every `save_every` steps a checkpoint, every `log_every` a log line.
    """

    out: Path
    train_args: Path
    target: Path
    init: Path
    rows: Path
    steps: int
    lr: float
    block_size: int
    save_every: int
    log_every: int
    min_step: float
    seed: int


def train(run: Run, say: Callable[[str], None], started: float) -> None:
    """Train to the last step; `say` takes one log line, `started` is when the process began (`time.monotonic`).

    Raises what the loaders raise, naming the file.
    """
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    drafter = load_drafter(run.init)
    settings = drafter.settings
    model, embedding = load_in_float(run.target)
    recipe = Recipe(fall=FALL, lr=run.lr, block_size=run.block_size, seed=run.seed)
    course = Course(drafter, borrowed(model, embedding, settings.taps), read_rows(run.rows, EVALUATED), recipe)
    _write_train_args(run, settings.taps, settings.mask_token_id)
    size = sum(parameter.numel() for parameter in drafter.parameters())
    say(
        f"drafter {size / 1e6:.2f}M params, target {run.target.name}, block_size={run.block_size}, "
        f"ready in {time.monotonic() - started:.1f}s"
    )
    tokens, since = 0, time.monotonic()
    for number in range(1, run.steps + 1):
        begun = time.monotonic()
        step = course.step()
        tokens += step.tokens
        time.sleep(max(0.0, run.min_step - (time.monotonic() - begun)))
        if number % run.log_every == 0 or number == run.steps:
            now = time.monotonic()
            say(
                f"step={number}/{run.steps} loss={step.loss:.4f} lr={step.lr:.2e} block_size={run.block_size} "
                f"tok/s={tokens / (now - since) / 1000:.1f}K"
            )
            tokens, since = 0, now
        if number % run.save_every == 0 or number == run.steps:
            say(f"saved checkpoint: {save(run, course, model)}")
    say("training finished")


def save(run: Run, course: Course, model: Target) -> Path:
    """Write `step_N/checkpoint.pt`: weights and frozen target parts in bfloat16, optimizer state, step, settings."""
    weights = course.drafter.state_dict() | course.frozen() | {"verifier_norm.weight": model.norm.weight}
    settings = course.drafter.settings
    content: dict[str, Any] = {
        "model_state_dict": {name: value.to(torch.bfloat16, copy=True) for name, value in weights.items()},
        "optimizer_state_dict": course.optimizer.state_dict(),
        "step": course.done,
        "args": {
            "block_size": run.block_size,
            "target_layer_ids": list(settings.taps),
            "mask_token_id": settings.mask_token_id,
            "num_target_layers": len(model.layers),
            "num_hidden_layers": settings.num_hidden_layers,
            "num_attention_heads": settings.num_attention_heads,
            "num_key_value_heads": settings.num_key_value_heads,
            "head_dim": settings.head_dim,
            "rope_theta": settings.rope_theta,
            "rms_norm_eps": settings.rms_norm_eps,
            "layer_types": ["full_attention"] * settings.num_hidden_layers,
            "target": run.target.name,
            "max_steps": run.steps,
            "lr": run.lr,
            "seed": run.seed,
        },
    }
    folder = run.out / f"step_{course.done}"
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / "checkpoint.pt"
    temporary = folder / "checkpoint.pt.tmp"
    torch.save(content, temporary)
    os.replace(temporary, final)
    return final


def _write_train_args(run: Run, taps: tuple[int, ...], mask_token_id: int) -> None:
    settings = {
        "block_size": run.block_size,
        "max_steps": run.steps,
        "save_every": run.save_every,
        "target": run.target.name,
        "target_layer_ids": list(taps),
        "mask_token_id": mask_token_id,
        "num_gpus": 0,
    }
    temporary = run.train_args.with_name(f"{run.train_args.name}.tmp")
    temporary.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, run.train_args)
