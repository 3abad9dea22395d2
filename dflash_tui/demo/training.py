"""DFlash training as such: rows of target text in, gradient steps on the harness's own drafter out."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from dflash_tui.demo.errors import DemoError
from dflash_tui.demo.muon import Muon
from dflash_tui.harness.drafter import Drafter
from dflash_tui.records.settings import DrafterSettings


@dataclass(frozen=True)
class Row:
    """One training text: token ids of the prompt and of the target's own greedy answer, end mark included."""

    task: str
    prompt: tuple[int, ...]
    completion: tuple[int, ...]


def read_rows(path: Path, names: Sequence[str]) -> list[Row]:
    """Rows of the named tasks in a JSONL file, in file order; raises `DemoError` when there is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DemoError(f"{path}: cannot be read ({error.strerror})") from error
    rows = [Row(row["task"], tuple(row["prompt"]), tuple(row["completion"])) for row in map(json.loads, lines)]
    chosen = [row for row in rows if row.task in names]
    if not chosen:
        raise DemoError(f"{path}: none of its {len(rows)} rows is of {', '.join(names)}; build the rows again")
    return chosen


@dataclass(frozen=True)
class Recipe:
    """What one training does.

    Slot k of a block weighs exp(−(k − 1)/gamma); `lr` rises over `warmup` steps and falls by a cosine to a tenth in
    `fall` steps, where it stays.
    """

    fall: int
    lr: float
    block_size: int
    gamma: float = 5.0
    sequences: int = 8
    anchors: int = 8
    warmup: int = 10
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """What a step says of itself: mean weighted cross-entropy in nats, learning rate, tokens of the rows it read."""

    loss: float
    lr: float
    tokens: int


@dataclass(frozen=True)
class TargetParts:
    """What a drafter borrows: `features` maps token ids [T] to tapped states [T, K·D]; the other two are [V, D]."""

    features: Callable[[Tensor], Tensor]
    embedding: Tensor
    head: Tensor


class Course:
    """A training under way: drafter, optimizer, and the target states of every row met so far, kept in memory."""

    def __init__(self, drafter: Drafter, target: TargetParts, rows: Sequence[Row], recipe: Recipe) -> None:
        self.drafter = drafter
        self.optimizer = Muon(drafter.named_parameters(), recipe.lr)
        self.recipe = recipe
        self.done = 0
        self._target = target
        self._rows = rows
        self._features: dict[int, Tensor] = {}
        self._random = random.Random(recipe.seed)
        self._order: list[int] = []

    def step(self) -> Step:
        """One gradient step over `sequences` rows with `anchors` random anchors each."""
        recipe = self.recipe
        picked = [self._next() for _ in range(recipe.sequences)]
        self.optimizer.zero_grad()
        total = 0.0
        for index in picked:
            loss = self._loss(index) / len(picked)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), 1.0)
        self.done += 1
        fall = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, self.done / recipe.fall)))
        lr = recipe.lr * min(1.0, self.done / recipe.warmup) * fall
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        return Step(total, lr, sum(len(self._rows[i].prompt) + len(self._rows[i].completion) for i in picked))

    def frozen(self) -> dict[str, Tensor]:
        """Embedding and head as a checkpoint names them; both stay the target's."""
        return {"embed_tokens.weight": self._target.embedding, "lm_head.weight": self._target.head}

    def _next(self) -> int:
        if not self._order:
            self._order = self._random.sample(range(len(self._rows)), len(self._rows))
        return self._order.pop()

    def _loss(self, index: int) -> Tensor:
        row, block = self._rows[index], self.recipe.block_size
        tokens = torch.tensor(row.prompt + row.completion)
        if index not in self._features:
            with torch.no_grad():
                self._features[index] = self._target.features(tokens).half()
        choices = range(len(row.prompt), len(tokens) - 1)
        anchors = torch.tensor(sorted(self._random.sample(choices, min(self.recipe.anchors, len(choices)))))
        slots = anchors[:, None] + torch.arange(block)
        ids = torch.full_like(slots, self.drafter.settings.mask_token_id)
        ids[:, 0] = tokens[anchors]
        context = self.drafter.context(self._features[index][: int(anchors[-1])])
        hidden = self.drafter(F.embedding(ids, self._target.embedding), anchors, context)[:, 1:]
        inside = slots[:, 1:] < len(tokens)
        weights = torch.exp(-torch.arange(block - 1) / self.recipe.gamma).expand(len(anchors), -1)[inside]
        logits = self.drafter.logits(hidden[inside], self._target.head)
        losses = F.cross_entropy(logits, tokens[slots[:, 1:][inside]], reduction="none")
        return (losses * weights).sum() / weights.sum()


def init_from_target(drafter: Drafter, weights: dict[str, Tensor], last: int, seed: int) -> None:
    """Start a drafter from its target: layers are the target's block `last`, `fc` passes the last tap on, with noise.

    `weights` are the target's, by their bare names (`layers.5.input_layernorm.weight`).
    """
    settings: DrafterSettings = drafter.settings
    noise = torch.Generator().manual_seed(seed)
    state = drafter.state_dict()
    for name, value in state.items():
        if name.startswith("layers."):
            value.copy_(weights[f"layers.{last}.{name.split('.', 2)[2]}"])
        elif name == "fc.weight":
            size = settings.hidden_size
            value.copy_(torch.randn(value.shape, generator=noise) * (0.1 / size**0.5))
            value[:, -size:] += torch.eye(size)
        else:
            source = {"norm.weight": "norm", "hidden_norm.weight": f"layers.{last}.input_layernorm"}[name]
            value.copy_(weights[f"{source}.weight"])
