"""How the demo's target is trained: the harness's own Qwen3 stack, from random weights, on instructed programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dflash_tui.demo.muon import Muon
from dflash_tui.demo.training import Row
from dflash_tui.harness.target import Target

EMBEDDING = "embed_tokens.weight"


@dataclass(frozen=True)
class Pretraining:
    """What one training of a target does; `lr` rises over 30 steps and falls by a cosine to a twentieth."""

    steps: int
    lr: float = 3e-3
    sequences: int = 8
    seed: int = 0
    warmup: int = 30


def pretrain(
    model: Target, vocabulary: int, rows: Iterator[Row], recipe: Pretraining, say: Callable[[int, float], None]
) -> dict[str, Tensor]:
    """Train `model` in place, with a tied embedding of `vocabulary` rows; `say` is told step and loss of every 25th.

    The loss is that of the completions alone. Returns all weights by their bare names, embedding included.
    """
    width = model.norm.weight.shape[0]
    embedding = nn.Parameter(torch.empty(vocabulary, width))
    named = [(EMBEDDING, embedding), *model.named_parameters()]
    _initialise(named, recipe.seed)
    optimizer = Muon(named, recipe.lr)
    parameters = [parameter for _, parameter in named]
    recent: list[float] = []
    for number in range(1, recipe.steps + 1):
        batch = [next(rows) for _ in range(recipe.sequences)]
        optimizer.zero_grad()
        recent.append(_backward(model, embedding, batch))
        nn.utils.clip_grad_norm_(parameters, 1.0)
        fall = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * number / recipe.steps))
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * min(1.0, number / recipe.warmup) * fall
        optimizer.step()
        if number % 25 == 0 or number == recipe.steps:
            say(number, sum(recent) / len(recent))
            recent = []
    return {name: parameter.detach() for name, parameter in named}


def answers_exactly(model: Target, embedding: Tensor, row: Row) -> bool:
    """Whether the row's completion is the target's greedy one: by induction, if every next token is its argmax."""
    with torch.inference_mode():
        logits = _logits(model, embedding, row)
    return bool((logits.argmax(-1) == torch.tensor(row.completion)).all())


def _backward(model: Target, embedding: Tensor, batch: Sequence[Row]) -> float:
    count = sum(len(row.completion) for row in batch)
    total = 0.0
    for row in batch:
        loss = F.cross_entropy(_logits(model, embedding, row), torch.tensor(row.completion), reduction="sum") / count
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total


def _logits(model: Target, embedding: Tensor, row: Row) -> Tensor:
    """The logits [n, V] that predict the row's n completion tokens."""
    fed = torch.tensor((row.prompt + row.completion)[:-1])
    states, _, _ = model(F.embedding(fed, embedding).float(), 0, None, (0,))
    return F.linear(states[len(row.prompt) - 1 :], embedding.float())


def _initialise(named: Sequence[tuple[str, nn.Parameter]], seed: int) -> None:
    """Normal weights; what writes to the residual stream starts small, norms start at one."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in named:
            if parameter.ndim == 2:
                small = name.endswith(("o_proj.weight", "down_proj.weight"))
                deviation = 0.05 if name == EMBEDDING else 0.016 if small else 0.08
                parameter.copy_(torch.randn(parameter.shape, generator=noise) * deviation)
