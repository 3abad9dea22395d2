"""What a printed key means. A key counts by its whole name or the last segment of its path, never by a part of it:
``unscaled_loss``, ``loss scale`` and ``val_loss`` are not the training's loss."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dflash_tui.watch.numbers import counted, duration, integer, number
from dflash_tui.watch.reading import Announcement, Reading, Scope, Throughput

METRICS_LIMIT = 64

_NAMES: dict[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "iteration", "iter", "current_steps", "optimizer_step", "train_step",
             "training_step", "global_step/max_steps", "step/total"),
    "total": ("total_steps", "max_steps", "max_train_steps", "total_optimization_steps", "num_training_steps",
              "train_steps", "total_train_steps", "total_training_steps"),
    "epoch": ("epoch", "current_epoch"),
    "loss": ("loss", "train_loss", "training_loss", "lm_loss", "loss_train", "reduced_train_loss", "total_loss",
             "crossentropyloss", "train_loss_step", "loss/train"),
    "lr": ("lr", "learning_rate", "current_lr", "learningrate"),
    "grad_norm": ("grad_norm", "gradnorm", "gnorm", "total_grad_norm", "gradient_norm", "grad-norm"),
    "block_size": ("block_size", "draft_block_size", "block_length", "block_len", "blocksize"),
    "step_seconds": ("step_time", "step_time_s", "sec/step", "s/step", "s/it", "step_ms", "dt", "iter_time",
                     "optimizer_step_time_s", "elapsed_time_per_iteration", "time_per_step", "time/step", "time",
                     "seconds"),
    "steps_per_second": ("it/s", "steps/s", "step/s", "steps_per_second", "steps_per_sec", "iter/s", "train_speed"),
    "eta_seconds": ("eta", "remaining", "remaining_time", "time_left", "time_remaining"),
    "elapsed_seconds": ("elapsed", "elapsed_time", "total_time", "train_runtime"),
}  # fmt: skip
_MEANING = {name: meaning for meaning, names in _NAMES.items() for name in names}

_TOKENS = "|".join(
    (
        r"tok(?:en)?s?/s(?:ec(?:ond)?)?",
        r"tok(?:en)?s?_?/?(?:train_)?per_s(?:ec(?:ond)?)?",
        "tps",
        "tokens/train_per_sec",
        "train_tokens_per_second",
    )
)
_SAMPLES = r"(?:train_|global_)?(?:samples?|seqs?|examples?)(?:/s(?:ec)?|_per_s(?:ec(?:ond)?)?)"
_SPEED = re.compile(
    rf"(?:(?P<tok>{_TOKENS})|(?P<sam>{_SAMPLES}))(?P<one>_per_gpu|_per_device|/gpu|/device|\(per_gpu\))?"
)
_EVALUATION = re.compile(r"(?:eval|val|valid|validation|test|dev)(?:[_/ ].*|)|.*[_/ ](?:val|eval)[_/ ]?loss")
_TRAINING_PATHS = frozenset(
    ("train", "training", "optim", "optimizer", "perf", "profile", "throughput", "metrics", "stats", "time", "timing",
     "drafter", "dflash", "device")
)  # fmt: skip
_UNIT_IN_KEY = re.compile(r"\s*\(([^()]{1,24})\)$|_(ms)$")


@dataclass
class Collected:
    """Values by meaning, as a record's keys and values are put in one by one."""

    fields: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    speeds: dict[Scope, Throughput] = field(default_factory=dict)
    evaluation: bool = False
    finished: bool = False
    _micro_step: bool = False

    def put(self, key: str, value: str) -> None:
        """Take one printed key and its printed value (a list or an unreadable text says nothing)."""
        name = normal(key)
        if not name or name.endswith(".py"):
            return
        if _EVALUATION.fullmatch(name):
            self.evaluation = self.evaluation or number(_without_unit(value)) is not None
            self._metric(key, value)
            return
        if speed := _SPEED.fullmatch(_last(name)) or _SPEED.fullmatch(name):
            self._speed(speed, name, value)
            return
        meaning = _MEANING.get(name) or _MEANING.get(_last(name))
        if meaning is None or not self._field(meaning, name, key, value):
            self._metric(key, value)

    def reading(self) -> Reading | None:
        """What was collected; None when nothing was."""
        values = dict(self.fields)
        if "train_runtime" in self.metrics:
            # The trainer's closing record: its train_loss is the mean over the whole run, not the last loss.
            self.finished = True
        if self.finished and values.pop("loss", None) is not None:
            self.metrics.setdefault("train_loss_mean", self.fields["loss"])
        if self.speeds:
            values["throughput"] = self._throughput()
        if not values and not self.metrics:
            return None
        done = Announcement("finished", "the trainer printed its closing summary") if self.finished else None
        kept = tuple(list(self.metrics.items())[:METRICS_LIMIT])
        return Reading(**values, metrics=kept, evaluation=self.evaluation and "loss" not in values, announcement=done)

    def _field(self, meaning: str, name: str, key: str, value: str) -> bool:
        if meaning in ("step", "epoch"):
            return self._counter(meaning, name, value)
        if meaning in ("total", "block_size"):
            self._once(meaning, integer(value) if meaning == "total" else _block(value))
            return meaning in self.fields
        if meaning.endswith("_seconds"):
            seconds = _seconds(key, value)
            if name == "train_runtime" and seconds is not None:
                self.metrics["train_runtime"] = seconds
            self._once(meaning, seconds if seconds is None or math.isfinite(seconds) else None)
            return True
        if meaning == "steps_per_second" and normal(key, unit=True).endswith("s/it)"):
            slow = number(value)
            self._once("step_seconds", slow)
            return True
        found = number(value)
        if meaning == "loss" and found == -1.0:
            return True  # pipeline ranks without the last stage print -1 for "not mine"
        if found is None:
            return True  # null and n/a erase nothing
        if meaning not in ("loss", "grad_norm") and not math.isfinite(found):
            return True
        self._once(meaning, found)
        return True

    def _counter(self, meaning: str, name: str, value: str) -> bool:
        count, _, whole = value.partition("/")
        if meaning == "step":
            found = integer(count)
            if found is None:
                return False
            if self._micro_step and not name.startswith("iter"):
                del self.fields["step"]  # who prints both counts micro-batches in the one and steps in the other
            self._micro_step = name.startswith("iter") and "step" not in self.fields
            self._once("step", found)
            if whole:
                self._once("total", integer(whole))
            return True
        done = number(count)
        if done is None or not math.isfinite(done):
            return False
        self._once("epoch", done)
        if whole and (of := number(whole)) is not None and math.isfinite(of):
            self._once("epochs", of)
        return True

    def _once(self, meaning: str, value: Any) -> None:
        if value is not None:
            self.fields.setdefault(meaning, value)

    def _speed(self, speed: re.Match[str], name: str, value: str) -> None:
        found = number(_without_unit(value))
        if found is None or not math.isfinite(found):
            return
        scope: Scope = "unknown"
        if speed["one"]:
            scope = "per_gpu" if "gpu" in speed["one"] else "per_device"
        elif "global" in name or name.startswith("train_"):
            scope = "global"  # *global_samples_per_second*, and the HF Trainer's sums over all ranks
        elif "device" in name.split("/"):
            scope = "per_device"
        self.speeds.setdefault(scope, Throughput(found, "tok/s" if speed["tok"] else "samples/s", scope))

    def _throughput(self) -> Throughput:
        # Who prints a per-device speed beside a bare one means all devices by the bare one.
        if "unknown" in self.speeds and "per_gpu" in self.speeds:
            both = self.speeds["unknown"]
            return Throughput(both.value, both.unit, "global")
        scopes: tuple[Scope, ...] = ("global", "unknown", "per_gpu", "per_device")
        return next(self.speeds[scope] for scope in scopes if scope in self.speeds)

    def _metric(self, key: str, value: str) -> None:
        found = number(_without_unit(value))
        if found is not None and len(self.metrics) < METRICS_LIMIT:
            self.metrics.setdefault(" ".join(key.split())[:80], found)


def normal(key: str, *, unit: bool = False) -> str:
    """A key's comparable form: lower case, one underscore for spaces, no unit in parentheses, no training prefix."""
    name = key.strip().strip("'\"").lower()
    if not unit:
        name = _UNIT_IN_KEY.sub("", name)
    name = "_".join(name.strip("[]#:=|,; ").split())
    head, slash, rest = name.partition("/")
    return rest if slash and head in ("train", "training") and rest else name


def collect(items: Iterable[tuple[str, str]]) -> Reading | None:
    """A reading of keys and values in their order; the first of two equal meanings wins."""
    collected = Collected()
    for key, value in items:
        collected.put(key, value)
    return collected.reading()


def known(name: str) -> bool:
    """Whether a normal key means something here (used where words before a number may or may not be its key)."""
    return name in _MEANING or bool(_SPEED.fullmatch(name)) or bool(_EVALUATION.fullmatch(name))


def _last(name: str) -> str:
    head, slash, last = name.rpartition("/")
    return last if slash and all(part in _TRAINING_PATHS for part in head.split("/")) else name


def _block(value: str) -> int | None:
    size = counted(number(value))
    return size if size is not None and 2 <= size <= 4096 else None


_UNIT_IN_VALUE = re.compile(
    r"(?<=[\d.KMGTBkmgtb])\s*(?:gib|mib|kib|gb|mb|kb|b|ms|s|tok(?:en)?s?/s(?:ec)?|samples/s|it/s)$", re.I
)


def _without_unit(value: str) -> str:
    return _UNIT_IN_VALUE.sub("", value.strip())


def _seconds(key: str, value: str) -> float | None:
    if (said := duration(value)) is not None:
        return said
    found = number(value)
    if found is None:
        return None
    lowered = key.lower().rstrip()
    return found / 1000 if lowered.endswith("(ms)") or lowered.endswith("_ms") else found
