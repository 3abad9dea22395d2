"""Averages of vanilla, DDTree top-4 and top-8 streaks in one JSON object, per prompt where it keeps them.

Only the three averages have to be there. Whatever else a file does not say stays unrecorded; the checkpoint's name
is asked for its run and step when nothing else says them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.result import Evaluation, Score
from dflash_tui.results.errors import ResultDamaged

_AVERAGES = {"top1": "avg_vanilla_streak", "top4": "avg_ddtree4_streak", "top8": "avg_ddtree8_streak"}
_MOST = 1_000_000_000  # of anything counted or averaged here: more is damage, and NaN is not less
EXPECTED = ", ".join(map(repr, _AVERAGES.values()))
_STEP = re.compile(r"(?<![A-Za-z])(?:global)?[_-]?step[_-]?(\d+)(k?)(?![A-Za-z0-9])", re.IGNORECASE)
_PLAIN = re.compile(
    r"^(checkpoint|ckpt|model|drafter|draft|weights|pytorch|final|latest|best|epoch\d*|\d+)$", re.IGNORECASE
)


def recognises(data: Any) -> bool:
    """True when all three averages are there."""
    return isinstance(data, dict) and data.keys() >= set(_AVERAGES.values())


def read(data: dict[str, Any], path: Path, name: str, sha256: str) -> Evaluation:
    """The evaluation that the object describes. Raises ResultDamaged naming the key that is wrong."""
    checkpoint = _text(data, "checkpoint", path)
    per_prompt = _per_prompt(data, path)
    size = _count(data, "block_size", path)
    if size is not None and size < 2:
        raise ResultDamaged(f"{path}: block_size is {size}, expected at least 2 (an anchor and a draft)")
    requested, measured = _count(data, "num_prompts_requested", path), _count(data, "num_prompts", path)
    blocks_each = _count(data, "max_blocks", path)
    total = _count(data, "total_blocks", path)
    if total is None:
        total = sum(score.blocks for score in per_prompt.values())
    present = len(per_prompt) or measured
    training, step = _run_and_step(checkpoint)
    stated = _count(data, "step", path)
    return Evaluation(
        name=name,
        origin="import",
        path=str(path),
        sha256=sha256,
        pooled=_score(data, _AVERAGES, total, f"{path}: "),
        per_prompt=per_prompt,
        preset=next((p for p, asked in PRESETS.items() if asked == (requested or measured, blocks_each)), None),
        training=training,
        step=stated if stated is not None else step,
        checkpoint_name=_base(checkpoint) if checkpoint else None,
        checkpoint_path=checkpoint,
        block_size=size,
        horizon=size - 1 if size is not None else None,
        prompts_present=tuple(per_prompt) or None,
        prompts_asked_count=requested,
        prompt_count=present,
        facts=_facts(path, {"eval.block_size": ("block_size", size)}),
    )


def _facts(path: Path, found: dict[str, tuple[str, Any]]) -> tuple[Fact, ...]:
    """`read_at` stays empty: a file is the same whenever it is read."""
    return tuple(
        Fact(kind, value, Source("", str(path), key), "") for kind, (key, value) in found.items() if value is not None
    )


def _per_prompt(data: dict[str, Any], path: Path) -> dict[str, Score]:
    prompts = data.get("per_prompt")
    if prompts is None:
        return {}
    if not isinstance(prompts, dict):
        raise ResultDamaged(f"{path}: per_prompt is a {type(prompts).__name__}, expected an object of prompts")
    scores = {}
    for prompt, values in prompts.items():
        place = f"{path}: per_prompt.{prompt}."
        if not isinstance(values, dict):
            raise ResultDamaged(f"{place[:-1]} is a {type(values).__name__}, expected an object")
        keys = {metric: key.removeprefix("avg_") for metric, key in _AVERAGES.items()}
        keys = {metric: key if key in values else f"avg_{key}" for metric, key in keys.items()}
        blocks = next((b for key in ("blocks", "num_blocks") if (b := _number(values, key, place)) is not None), 0)
        scores[prompt] = _score(values, keys, int(blocks), place)
    return scores


def _score(values: dict[str, Any], keys: dict[str, str], blocks: int, place: str) -> Score:
    """`blocks` 0 means that their number is unrecorded."""
    streak = {}
    for metric, key in keys.items():
        number = _number(values, key, place)
        if number is None:
            raise ResultDamaged(f"{place}{key} is missing, expected a mean streak")
        streak[metric] = number
    return Score(blocks=blocks, streak=streak, tau=streak["top1"] + 1)


def _number(values: dict[str, Any], key: str, place: str) -> float | None:
    number = values.get(key)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= _MOST:
        raise ResultDamaged(f"{place}{key} is {str(number)[:40]!r}, expected a number from 0 to {_MOST}")
    return float(number)


def _count(data: dict[str, Any], key: str, path: Path) -> int | None:
    number = _number(data, key, f"{path}: ")
    if number is not None and number != int(number):
        raise ResultDamaged(f"{path}: {key} is {number}, expected a whole number")
    return None if number is None else int(number)


def _text(data: dict[str, Any], key: str, path: Path) -> str | None:
    text = data.get(key)
    if text is not None and not isinstance(text, str):
        raise ResultDamaged(f"{path}: {key} is a {type(text).__name__}, expected a text")
    return text or None


def _base(checkpoint: str) -> str:
    parts = [part for part in checkpoint.replace("\\", "/").split("/") if part]
    return parts[-1] if parts else checkpoint


def _run_and_step(checkpoint: str | None) -> tuple[str | None, int | None]:
    """`checkpoint_v4_step4k.pt` → ("v4", 4000): the words before the step that are no common ones. A file without a
    step in its own name is asked for its folder's (`step_4000/checkpoint.pt`)."""
    for part in [part for part in (checkpoint or "").replace("\\", "/").split("/") if part][:-3:-1]:
        stem = re.sub(r"\.(pt|pth|bin|ckpt|safetensors)$", "", part, flags=re.IGNORECASE)
        if (found := _STEP.search(stem)) is not None:
            words = [w for w in re.split(r"[_-]+", stem[: found.start()]) if w and not _PLAIN.match(w)]
            return ("_".join(words) or None), int(found[1]) * (1000 if found[2] else 1)
    return None, None
