"""Real-world logs beside the values that a right reading finds (`cases/logs`)."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.watch.fold import progress_of
from dflash_tui.watch.lines import LineSplitter
from dflash_tui.watch.progress import Progress
from tests.cases import all_are_expected, case_root

SUPPORTED = (
    "custom trainer",
    "transformers",
    "generic",
    "docker",
    "Ray",
    "json.dumps",
    "huggingface_hub/datasets",
    "SpecForge",
    "deepseek-ai/DeepSpec",
    "LLaMA-Factory",
    "ms-swift",
    "Axolotl",
    "MaxText",
)
"""Beginnings of `framework`: the kinds of log that are read wholly. Others are read as far as the floor goes."""

CASES = sorted((case_root() / "cases" / "logs").glob("*.json"))


def read(case: Path) -> tuple[dict[str, Any], Progress]:
    wanted = json.loads(case.read_text(encoding="utf-8"))
    splitter = LineSplitter()
    data = (case.parent / wanted["log"]).read_bytes()
    headless = bool(wanted["expected"].get("flags", {}).get("partial_head"))
    splitter = LineSplitter(0, None if headless else 1, partial_head=headless)
    lines = splitter.feed(data)
    return wanted, progress_of(lines, 1_800_000_000.0, pending=splitter.pending, modified_at=1_800_000_000.0)


def wrong(wanted: dict[str, Any], progress: Progress) -> list[str]:
    """One sentence for every expected value that was not found."""
    expected, flags = wanted["expected"], wanted["expected"].get("flags", {})
    metrics = dict(progress.metrics)
    speed = progress.throughput
    found: dict[str, Any] = {
        "step": progress.step,
        "total_steps": progress.total,
        "epoch": progress.epoch,
        "total_epochs": progress.epochs,
        "loss": progress.loss,
        "lr": progress.lr,
        "grad_norm": progress.grad_norm,
        "eta_s": progress.reported.eta_seconds,
        "elapsed_s": progress.reported.elapsed_seconds,
        "step_time_s": progress.reported.step_seconds,
        "steps_per_s": progress.reported.steps_per_second,
        "throughput": None if speed is None else {"value": speed.value, "unit": speed.unit, "scope": speed.scope},
        "segments": progress.segments,
        "acc": metrics.get("acc", metrics.get("acc_0", metrics.get("token_acc", metrics.get("train/acc_0")))),
        "acceptance_rate": metrics.get("acceptance_rate"),
        "ppl": metrics.get("ppl"),
        "train_loss_mean": metrics.get("train_loss_mean"),
        "last_finite_loss": progress.finite_loss,
    }
    problems: list[str] = []
    for key, value in expected.items():
        if key not in found or (key == "step" and "step_scope" in expected and progress.epoch_scope):
            continue
        seen = found[key]
        if value == "nan":
            if not progress.nan or seen is not None:
                problems.append(f"{key}: found {seen}, expected nan")
        elif value is None and key in ("step_time_s", "steps_per_s"):
            continue  # the log has none per step; what it has is another quantity
        elif not same(seen, value):
            problems.append(f"{key}: found {seen}, expected {value}")
    stamp = expected.get("timestamp")
    if isinstance(stamp, str) and re.match(r"\d{4}-", stamp) and not same_stamp(progress, stamp):
        problems.append(f"timestamp: found {progress.logged_at}, expected {stamp}")
    problems += wrong_flags(flags, progress)
    return problems


def wrong_flags(flags: dict[str, Any], progress: Progress) -> list[str]:
    trouble = " ".join(progress.trouble)
    saved = [item.path for item in progress.saved]
    checks = {
        "nan": progress.nan is flags.get("nan"),
        "first_bad_step": progress.nan_since == flags.get("first_bad_step"),
        "finished": progress.phase == "finished",
        "fatal": progress.phase == "failed" and bool(progress.error),
        "oom": "ran out of memory" in trouble,
        "disk_full": "disk is full" in trouble,
        "killed": "killed" in trouble,
        "resumed": progress.segments > 1,
        "resumed_from_step": progress.resumed_from == flags.get("resumed_from_step"),
        "step_went_back_from": progress.went_back_from == flags.get("step_went_back_from"),
        "evaluating": progress.phase == "evaluating",
        "phase": progress.phase == flags.get("phase"),
        "checkpoint_saved": saved == flags.get("checkpoint_saved"),
        "checkpoint_incomplete": not saved,
    }
    return [f"{key}: expected {flags[key]}" for key in flags if key in checks and not checks[key]]


def same(seen: Any, value: Any) -> bool:
    if isinstance(value, dict):
        return isinstance(seen, dict) and all(same(seen[key], value[key]) for key in value)
    if isinstance(value, (int, float)) and isinstance(seen, (int, float)):
        return math.isclose(seen, value, rel_tol=1e-9)
    return bool(seen == value)


def same_stamp(progress: Progress, wanted: str) -> bool:
    microseconds = re.sub(r"\.(\d{1,6})\d*", lambda match: "." + match[1].ljust(6, "0"), wanted)
    return progress.logged_at == datetime.fromisoformat(microseconds)


def supported(case: Path) -> bool:
    framework = str(json.loads(case.read_text(encoding="utf-8"))["framework"])
    return framework.removeprefix("modelscope/").startswith(SUPPORTED)


@pytest.mark.parametrize("case", [case for case in CASES if supported(case)], ids=lambda case: case.stem)
def test_reads_every_value_of_a_supported_log(case: Path) -> None:
    wanted, progress = read(case)
    assert wrong(wanted, progress) == []


def test_the_cases_are_there() -> None:
    assert sum(supported(case) for case in CASES) >= 20 or not all_are_expected()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_reads_any_log_cut_anywhere_as_it_reads_it_whole(case: Path) -> None:
    data = (case.parent / json.loads(case.read_text(encoding="utf-8"))["log"]).read_bytes()
    whole = LineSplitter()
    lines = whole.feed(data)
    for size in (1, 7, 64):
        pieces = LineSplitter()
        cut = [line for start in range(0, len(data), size) for line in pieces.feed(data[start : start + size])]
        assert cut == lines
        assert pieces.pending == whole.pending
