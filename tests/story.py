"""The acceptance story as evaluations: its result files by the product's importer, its log, arguments and checkpoint
header by the product's readers. What is adapted here (the cache's and the files' listing) only has its keys renamed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import Any

from dflash_tui.checkpoints.audit import audit
from dflash_tui.checkpoints.structure import Structure, TensorInfo, c_strides
from dflash_tui.records.codec import to_data
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.result import Evaluation
from dflash_tui.results.importers import import_file
from dflash_tui.watch.arguments import Arguments, training_facts
from dflash_tui.watch.fold import progress_of
from dflash_tui.watch.lines import LineSplitter
from tests.cases import case_root

READ_AT = "2026-05-21T09:40:00Z"


@dataclass(frozen=True)
class Story:
    """`full` and `quick` are the current results, the full one with its manifest's facts; `expected` the case's."""

    folder: Path
    full: Evaluation
    quick: Evaluation
    previous: Evaluation
    live: dict[str, Any]
    expected: dict[str, Any]


def stories() -> list[Path]:
    """Every folder of this kind among the cases."""
    return sorted(path.parent for path in (case_root() / "cases").glob("*/expected.json") if _is_story(path.parent))


def read(folder: Path) -> Story:
    """The story in a folder. Which result is which, its content says: the full one names how many prompts were asked
    for, the quick one is of the same checkpoint, the previous one is not."""
    results = [import_file(path, path.stem) for path in sorted(folder.glob("eval_*.json"))]
    full = next(result for result in results if result.prompts_asked_count is not None)
    quick = next(r for r in results if r is not full and r.checkpoint_name == full.checkpoint_name)
    previous = next(result for result in results if result.checkpoint_name != full.checkpoint_name)
    facts = facts_of(folder)
    live = next(fact.value for fact in facts if fact.kind == "train.live")
    expected = json.loads((folder / "expected.json").read_text())
    return Story(folder, replace(full, facts=(*full.facts, *facts)), quick, previous, live, expected)


def facts_of(folder: Path) -> tuple[Fact, ...]:
    """What a manifest of the story's evaluation would hold."""
    return (*_training(folder), *_header(folder), *_cache(folder), *_stat(folder))


def _is_story(folder: Path) -> bool:
    return (folder / "hidden_states.json").exists() and (folder / "stat.json").exists()


def _fact(kind: str, value: Any, path: Path, where: str = "") -> Fact:
    return Fact(kind, value, Source("", str(path), where), READ_AT)


def _training(folder: Path) -> tuple[Fact, ...]:
    """By the watch: its reading of the log and of the arguments. The log was last written when its last line says."""
    log, arguments = folder / "train.log", folder / "train_args.json"
    lines = LineSplitter().feed(log.read_bytes())
    stamp = progress_of(lines, 0.0).logged_at
    assert stamp is not None
    written = stamp.replace(tzinfo=UTC).timestamp()
    progress = progress_of(lines, written, modified_at=written)
    told = Arguments("ct200", str(arguments), json.loads(arguments.read_text()))
    return training_facts("ct200", str(log), progress, (), told, now=written)


def _header(folder: Path) -> tuple[Fact, ...]:
    """By the checkpoints' audit, of the tensors that the header lists."""
    path = folder / "checkpoint.header.json"
    header = json.loads(path.read_text())
    tensors = {
        name: TensorInfo(name, header["dtype"], tuple(shape), path.name, 0, c_strides(tuple(shape)), 0, 0)
        for name, shape in header["tensors"].items()
    }
    found = audit(Structure("zip", tensors, (path.name,), "model_state_dict"))
    return (_fact("weights.audit", to_data(found), path, "tensors"),)


def _cache(folder: Path) -> tuple[Fact, ...]:
    path = folder / "hidden_states.json"
    states = json.loads(path.read_text())
    return (
        _fact("prompts.asked", states["prompts_asked"], path, "prompts_asked"),
        _fact("prompts.present", list(states["present"]), path, "present"),
        _fact("cache.files", states["present"], path, "present"),
        _fact("cache.identity", states["identity"], path, "identity"),
    )


def _stat(folder: Path) -> tuple[Fact, ...]:
    path = folder / "stat.json"
    stat = json.loads(path.read_text())
    return (
        _fact("checkpoint.file", stat["checkpoint.pt"], path, "checkpoint.pt"),
        _fact("eval.block_size", stat["eval_block_size"], path, "eval_block_size"),
        _fact("eval.anchors", {"policy": "spaced", "per_prompt": 30}, path),
        _fact("baselines.configured", stat["baselines_configured"], path, "baselines_configured"),
        _fact("baselines.found", stat["baselines_found"], path, "baselines_found"),
    )
