"""The runs of a configured baseline drafter: which one a result is set against, and why there may be none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dflash_tui.records.manifest import Manifest
from dflash_tui.records.result import Evaluation
from dflash_tui.results.errors import ResultError
from dflash_tui.results.evaluation import from_run, read_manifest
from dflash_tui.results.importers.own import named
from dflash_tui.results.store import Store, StoredRun


def runs_of(store: Store, name: str) -> tuple[StoredRun, ...]:
    """Every run of a baseline, newest first."""
    return tuple(run for run in store.runs() if run.manifest is not None and run.manifest.baseline == name)


def beside(store: Store, name: str, current: Evaluation | None = None) -> Evaluation | None:
    """The finished run of a baseline that matches a result best, called by the baseline's name; None without one.

    Best is, in this order: of the same block size, on the same prompts, with as many blocks of each, on the same hidden
    states, by the same harness, the newest. Raises ResultError when its records can't be read.
    """
    finished = [run for run in runs_of(store, name) if run.finished and run.manifest is not None]
    if not finished:
        return None
    wanted = _manifest(current)
    best = max(finished, key=lambda run: _fit(run.manifest, wanted), default=finished[0])  # of equals the newest
    return named(from_run(best.folder), name)


def failure(store: Store, name: str, current: Evaluation) -> str | None:
    """Why the newest run of a baseline that was to stand beside a result has none, one sentence; None when it has
    finished or still works, and where there was no such run."""
    wanted = _manifest(current)
    for run in runs_of(store, name):
        if wanted is not None and not all(_fit(run.manifest, wanted)[:3]):
            continue
        if run.exit is None or run.finished:
            return None
        state, why = run.exit.state, run.exit.error or "see its log"
        return f"{run.run_id} was {why if why.startswith(f'{state} ') else f'{state}: {why}'}"
    return None


def holding(store: Store, asked: Manifest) -> str | None:
    """The finished run of a baseline that answers a request, as the same or as the quick part of a full one; None
    without one."""
    for run in runs_of(store, asked.baseline):
        if run.finished and run.manifest is not None and _holds(run.manifest, asked) and _readable(run):
            return run.run_id
    return None


def _holds(known: Manifest, asked: Manifest) -> bool:
    if known.request_id == asked.request_id:
        return True
    same = replace(
        known,
        preset=asked.preset,
        blocks_per_prompt=asked.blocks_per_prompt,
        prompts=known.prompts[: len(asked.prompts)],
    )
    return (known.preset, asked.preset) == ("full", "quick") and _measured_on(same) == _measured_on(asked)


def _measured_on(manifest: Manifest) -> tuple[object, ...]:
    """What a measurement depends on, apart from how many blocks it has."""
    prompts = tuple((prompt.id, prompt.sha256, prompt.features_id) for prompt in manifest.prompts)
    settings = replace(manifest.settings, sources={})
    weights, target = manifest.checkpoint.weights_id, manifest.target.config_sha256
    return weights, settings, manifest.block_size, manifest.anchors, target, prompts, manifest.harness


def _manifest(evaluation: Evaluation | None) -> Manifest | None:
    if evaluation is None or evaluation.origin != "run":
        return None
    manifest = read_manifest(Path(evaluation.path))
    if evaluation.prompts_asked is None:
        return manifest
    kept = tuple(prompt for prompt in manifest.prompts if prompt.id in evaluation.prompts_asked)
    return replace(manifest, prompts=kept)


def _fit(known: Manifest | None, wanted: Manifest | None) -> tuple[bool, ...]:
    if known is None or wanted is None:
        return ()
    have = {prompt.id: prompt for prompt in known.prompts}
    need = wanted.prompts
    texts = all(prompt.id in have and have[prompt.id].sha256 == prompt.sha256 for prompt in need)
    whole = (known.preset, wanted.preset) == ("full", "quick")
    return (
        known.block_size == wanted.block_size,
        texts and (whole or len(have) == len(need)),
        whole or (known.anchors, known.blocks_per_prompt) == (wanted.anchors, wanted.blocks_per_prompt),
        texts and all(have[prompt.id].features_id == prompt.features_id for prompt in need),
        known.harness == wanted.harness,
    )


def _readable(run: StoredRun) -> bool:
    try:
        from_run(run.folder)
    except ResultError:
        return False
    return True


def resolve(store: Store, reference: str, current: Evaluation | None = None) -> Evaluation:
    """`Store.resolve`, for which a baseline drafter's name means its run that matches `current` best. Raises what it
    raises."""
    if runs_of(store, reference) and reference not in store.pins.entries():
        found = beside(store, reference, current)
        if found is not None:
            return found
    return store.resolve(reference)
