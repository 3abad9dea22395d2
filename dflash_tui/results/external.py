"""A run of a script of the user's own as an evaluation: what its result file says, with what is known of the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dflash_tui.records.external import ExternalRequest, Output
from dflash_tui.records.manifest import Manifest
from dflash_tui.records.result import Evaluation
from dflash_tui.results.errors import NothingMeasured, NotRecognised, ResultDamaged
from dflash_tui.results.evaluation import checkpoint_name, digest, facts_of, outputs_of, unmeasured
from dflash_tui.results.importers import import_as


def from_external(folder: Path, manifest: Manifest) -> Evaluation:
    """The first of the script's result files that an importer reads; the manifest knows better which checkpoint it was.

    Raises NothingMeasured while there is none, NotRecognised when none is of a known shape, ResultDamaged.
    """
    request, outputs = manifest.external, outputs_of(folder)
    assert request is not None
    if not outputs:
        raise NothingMeasured(f"{folder}: {unmeasured(folder, 'the script has written no results')}")
    found = _imported(folder, manifest.run_id, request, outputs)
    checkpoint, facts = manifest.checkpoint, facts_of(folder, manifest)
    said = found.block_size is not None
    asked = manifest.prompts or None
    return replace(
        found,
        name=manifest.run_id,
        origin="run",
        path=str(folder),
        sha256=digest(folder),
        preset=manifest.preset,
        training=checkpoint.training or None,
        step=checkpoint.step,
        checkpoint_name=checkpoint_name(checkpoint),
        checkpoint_path=f"{checkpoint.host}:{checkpoint.path}" if checkpoint.host else checkpoint.path,
        run_dir=next((str(f.value) for f in reversed(facts) if f.kind == "run.directory"), None),
        weights_id=checkpoint.weights_id,
        block_size=found.block_size if said else manifest.block_size or None,
        horizon=found.horizon if said else manifest.block_size - 1 if manifest.block_size else None,
        prompts_asked=tuple(prompt.id for prompt in asked) if asked else found.prompts_asked,
        prompts_asked_count=len(asked) if asked else found.prompts_asked_count,
        prompt_hashes={prompt.id: prompt.sha256 for prompt in asked or ()},
        harness=manifest.harness,
        created_at=manifest.created_at,
        request_id=manifest.request_id,
        facts=(*facts, *found.facts),
    )


def _imported(folder: Path, name: str, request: ExternalRequest, outputs: tuple[Output, ...]) -> Evaluation:
    refused: list[str] = []
    for output in outputs:
        path = folder / output.name
        if not path.exists():
            raise ResultDamaged(f"{path}: has not come home; fetch the run again with: dflash-tui show {name}")
        try:
            return import_as(path, name, request.import_as)
        except NotRecognised as error:
            refused.append(str(error))
    raise NotRecognised("; ".join(refused[:3]))
