"""The optimizer of the demo's two trainings: Muon for the matrices inside layers, AdamW for everything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonal(update: Tensor, rounds: int = 5) -> Tensor:
    """The nearest semi-orthogonal matrix to `update` [R, C], roughly: a quintic Newton-Schulz iteration.

    Coefficients from Jordan et al., "Muon: an optimizer for hidden layers" (2024), which bring every singular value to
    about 0.7 … 1.2 in five rounds.
    """
    a, b, c = _NEWTON_SCHULZ
    tall = update.shape[0] > update.shape[1]
    x: Tensor = update.T if tall else update
    x = x / (x.norm() + 1e-7)
    for _ in range(rounds):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Two kinds of parameter groups with one learning rate: `kind` "muon" or "adamw".

    Muon's update is scaled to the size of an AdamW update (0.2 · sqrt of the longer side, Liu et al., "Muon is scalable
    for LLM training", 2025), so that the same rate suits both.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], lr: float, momentum: float = 0.9) -> None:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in named:
            (matrices if parameter.ndim == 2 and "embed" not in name else others).append(parameter)
        groups: list[dict[str, Any]] = [
            {"params": matrices, "kind": "muon", "momentum": momentum},
            {"params": others, "kind": "adamw", "betas": (0.9, 0.95), "eps": 1e-8},
        ]
        super().__init__([group for group in groups if group["params"]], {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Apply one update from the gradients; `closure` is not supported."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    move = self._muon if group["kind"] == "muon" else self._adamw
                    parameter.sub_(move(parameter, parameter.grad, group), alpha=group["lr"])

    def _muon(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer: Tensor = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        ahead = gradient.lerp(buffer, group["momentum"])
        scale: float = 0.2 * max(parameter.shape) ** 0.5
        return orthogonal(ahead) * scale

    def _adamw(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state = self.state[parameter]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(parameter), exp_avg_sq=torch.zeros_like(parameter))
        state["step"] += 1
        first, second = group["betas"]
        mean: Tensor = state["exp_avg"].lerp_(gradient, 1 - first) / (1 - first ** state["step"])
        square: Tensor = state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        step: Tensor = mean / ((square / (1 - second ** state["step"])).sqrt() + group["eps"])
        return step
