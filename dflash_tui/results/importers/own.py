"""Files that this program wrote: any record of a run folder, and a ``results.json`` that lost its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from dflash_tui.records.codec import RecordError, from_data
from dflash_tui.records.result import METRICS, Evaluation, Results
from dflash_tui.results.errors import ResultDamaged

EXPECTED = "'run_id', 'horizon', 'pooled' and 'per_prompt' (our own results.json)"


def run_around(path: Path, content: bytes) -> Path | None:
    """The run folder that `path` is a record of: its manifest, or a file beside it that names the same run."""
    folder = path.parent
    if not (folder / "manifest.json").is_file():
        return None
    if path.name == "blocks.jsonl":  # a block does not name its run
        return folder
    try:
        here, manifest = json.loads(content), json.loads((folder / "manifest.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(here, dict) or not isinstance(manifest, dict):
        return None
    run = here.get("run_id")
    return folder if isinstance(run, str) and run == manifest.get("run_id") else None


def recognises(data: Any) -> bool:
    """True for the keys of ``results.json``."""
    return isinstance(data, dict) and {"run_id", "horizon", "pooled", "per_prompt"} <= data.keys()


def read(data: dict[str, Any], path: Path, name: str, sha256: str) -> Evaluation:
    """Scores without their manifest: what they were measured on is unrecorded. Raises ResultDamaged."""
    try:
        results = from_data(Results, data, str(path))
    except RecordError as error:
        raise ResultDamaged(str(error)) from error
    for place, score in (("pooled", results.pooled), *results.per_prompt.items()):
        wrong = [m for m in METRICS if not 0 <= score.streak.get(m, -1) <= results.horizon]
        if wrong:
            raise ResultDamaged(
                f"{path}: streak {wrong[0]} of {place} is {score.streak.get(wrong[0])}, expected 0 to horizon"
            )
    return Evaluation(
        name=name,
        origin="import",
        path=str(path),
        sha256=sha256,
        pooled=results.pooled,
        per_prompt=results.per_prompt,
        block_size=results.horizon + 1,
        horizon=results.horizon,
        prompts_present=tuple(results.per_prompt),
        prompt_count=len(results.per_prompt),
    )


def named(evaluation: Evaluation, name: str) -> Evaluation:
    """The same evaluation under the name that it was imported as."""
    return replace(evaluation, name=name)
