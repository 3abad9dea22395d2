"""What the name of a checkpoint tells: its run, its step or epoch; and which names belong to saves under way.

The forms are those that trainers write: `step_4000`, `{run}-step4000`, `epoch_1_step_4000`, `checkpoint-4000`,
`global_step4000`, `draft_step_4000`, `iter_0004000`, `epoch=2-step=300-v1.ckpt`, `model_004000.pt`, `epoch_3`,
`state_3`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_RUN = r"^(?:(?P<run>.+?)[-_.])??"
_EPOCH = r"(?:epoch|state)[-_=]?\d+"
_STEP = r"(?:global[-_]?step|draft[-_]step|checkpoint|ckpt|steps?|iter(?:ation)?)"
_ENDS = r"(?P<extra>(?:-v\d+|[-_][A-Za-z]\w*=[-+.\deE]+?)*)$"
_OF_FOLDER = re.compile(rf"{_RUN}(?:{_EPOCH}[-_])?{_STEP}[-_=]?(?P<step>\d{{1,15}}){_ENDS}", re.I)
_OF_FILE = re.compile(rf"{_RUN}(?:{_EPOCH}[-_])?(?:{_STEP}|model|drafter)[-_=]?(?P<step>\d{{1,15}}){_ENDS}", re.I)
_OF_EPOCH = re.compile(rf"{_RUN}(?:(?:epoch|state)[-_=]?)?(?P<epoch>\d{{1,6}}){_ENDS}", re.I)
_NO_RUN = frozenset(("checkpoint", "checkpoints", "ckpt", "model", "drafter", "draft", "weights", "global", "save"))

_TEMPORARY = re.compile(
    r"(^|/)(\.tmp|\.reserving|\.incomplete|_?tmp[-_])|\.(tmp|part|partial|incomplete)([-._\d]\w*)?(/|$)"
    r"|(^|/)\.[^/]+\.(safetensors|pt|pth|bin|ckpt|json|distcp)\.\w{6}$",  # rsync's, until a file is whole
    re.I,
)


@dataclass(frozen=True)
class Named:
    """What a name says. `kind` tells what `number` counts; `run` is "" where no run is named."""

    kind: Literal["step", "epoch"]
    number: int
    run: str = ""

    @property
    def step(self) -> int | None:
        """The training's step, where it is that which is named."""
        return self.number if self.kind == "step" else None


def read_name(name: str, *, file: bool = False) -> Named | None:
    """What a folder's name says, or (with `file`) a file's without its ending; None when it has no number of a save.

    A number alone is an epoch, as speculators names its folders.
    """
    stepped = (_OF_FILE if file else _OF_FOLDER).match(name.removesuffix(".ckpt"))
    if stepped is not None:
        return Named("step", int(stepped["step"]), _run(stepped["run"]))
    counted = None if file and name.isdigit() else _OF_EPOCH.match(name.removesuffix(".ckpt"))
    return None if counted is None else Named("epoch", int(counted["epoch"]), _run(counted["run"]))


def is_temporary(name: str) -> bool:
    """Whether a name says that its writer has not finished (`.tmp…`, `.part`, an `.incomplete` marker, rsync's)."""
    return bool(_TEMPORARY.search(name))


def _run(said: str | None) -> str:
    return "" if said is None or said.lower() in _NO_RUN else said
