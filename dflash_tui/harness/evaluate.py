"""An evaluation, from its manifest to its results: every file that a run directory gains beside the request."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dflash_tui.harness import rundir
from dflash_tui.harness.draft import draft
from dflash_tui.harness.drafter import Drafter
from dflash_tui.harness.errors import ForeignFeatures, HarnessError, PromptRefused, Refused, WrongModel
from dflash_tui.harness.features import FeaturesHeader, check_identity
from dflash_tui.harness.identity import identify
from dflash_tui.harness.load import audit_data, build, check_audit, open_checkpoint
from dflash_tui.harness.rundir import Progress
from dflash_tui.harness.shared import Shared
from dflash_tui.harness.vocabulary import Vocabulary
from dflash_tui.measure.anchors import spaced
from dflash_tui.measure.summary import summarise
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.manifest import Manifest, PromptRef


@dataclass(frozen=True)
class PlannedPrompt:
    """A prompt whose hidden states passed the checks that a header allows, and where it will be drafted."""

    id: str
    header: FeaturesHeader
    anchors: tuple[int, ...]


def evaluate(run_dir: Path, shared: Shared) -> None:
    """Carry out the request in `run_dir`; `shared` is what other evaluations of this process have read.

    Raises HarnessError with the sentence for exit.json, which the caller writes (`process.carry_out`). Nothing that was
    there before is changed."""
    manifest = rundir.read_manifest(run_dir)
    torch.set_num_threads(manifest.threads)
    _check_request(manifest)
    rundir.say(run_dir, f"evaluating {manifest.checkpoint.path}, preset {manifest.preset}, on {socket.gethostname()}")
    _note(run_dir, "harness.versions", {"python": platform.python_version(), "torch": torch.__version__}, run_dir)
    before = shared.opened
    planned = [plan for prompt in manifest.prompts if (plan := _plan(run_dir, manifest, prompt, shared)) is not None]
    if not planned:
        raise HarnessError(f"{manifest.hidden_states}: no prompt has usable hidden states; {rundir.LOG} says why")
    if common := sum(plan.header.path in before for plan in planned):
        rundir.say(run_dir, f"hidden-state files that a run before it has opened: {common} of {len(planned)}")
    with Progress(run_dir, sum(len(plan.anchors) for plan in planned)) as progress:
        progress.report("loading")
        drafter, vocabulary = _load(run_dir, manifest, shared)
        blocks: list[BlockRecord] = []
        for plan in planned:
            try:
                blocks += _draft(run_dir, manifest, plan, drafter, vocabulary, shared, progress)
            except PromptRefused as error:
                progress.total -= len(plan.anchors)
                _refuse(run_dir, plan.id, plan.header.path, error)
        if not blocks:
            raise HarnessError(f"{manifest.hidden_states}: every prompt's hidden states were refused; see {rundir.LOG}")
        rundir.write(run_dir / rundir.RESULTS, summarise(manifest.run_id, manifest.block_size - 1, blocks))
        progress.report("done")
    rundir.say(run_dir, f"finished: {len(blocks)} blocks of {len({block.prompt for block in blocks})} prompts")


def _check_request(manifest: Manifest) -> None:
    if manifest.external is not None:
        raise Refused(f"{rundir.MANIFEST}: asks for a script of the user's own; carry it out with: external")
    if manifest.anchors != "spaced":
        raise Refused(f"{rundir.MANIFEST}: anchors {manifest.anchors!r}; this harness knows the policy 'spaced'")
    if manifest.block_size < 2:
        raise Refused(
            f"{rundir.MANIFEST}: block_size {manifest.block_size}; a block is an anchor and at least one slot"
        )
    if manifest.settings.sample_from_anchor:
        raise Refused(
            f"{manifest.checkpoint.path}: sample_from_anchor is set: slot 0 predicts the next token too, "
            "which this harness does not evaluate"
        )


def _plan(run_dir: Path, manifest: Manifest, prompt: PromptRef, shared: Shared) -> PlannedPrompt | None:
    if prompt.features is None:
        return None
    path = Path(manifest.hidden_states) / prompt.features
    try:
        header = shared.header(path)
        check_identity(header, manifest.settings, prompt.sha256, manifest.target.config_sha256)
        if prompt.features_id is not None and prompt.features_id != header.header_id:
            raise PromptRefused(f"{path}: is not the file that was there when this run was planned; evaluate again")
    except PromptRefused as error:
        _refuse(run_dir, prompt.id, path, error)
        return None
    tokens, horizon = header.completion_len, manifest.block_size - 1
    anchors = spaced(header.prompt_len, tokens, horizon, manifest.blocks_per_prompt)
    if not anchors:
        rundir.say(
            run_dir, f"{prompt.id}: left out: a completion of {tokens} tokens leaves no anchor a horizon of {horizon}"
        )
        _note(run_dir, "prompts.short", {"prompt": prompt.id, "tokens": tokens, "horizon": horizon}, path)
        return None
    return PlannedPrompt(prompt.id, header, anchors)


def _load(run_dir: Path, manifest: Manifest, shared: Shared) -> tuple[Drafter, Vocabulary]:
    target = shared.target(Path(manifest.target.path))
    if manifest.target.config_sha256 and target.config_sha256 != manifest.target.config_sha256:
        raise HarnessError(f"{target.folder}/config.json: has changed since this run was planned; evaluate again")
    checkpoint = open_checkpoint(run_dir / manifest.checkpoint.linked, shared.maps)
    found = audit_data(checkpoint, manifest.settings)
    rundir.write(run_dir / rundir.AUDIT, found)
    check_audit(checkpoint, found)
    weights = identify(checkpoint.structure, checkpoint.files, target)
    rundir.write(run_dir / rundir.AUDIT, replace(found, embedding=weights.embedding, head=weights.head))
    _note(run_dir, "weights.id", weights.sha256, checkpoint.path)
    wanted = manifest.checkpoint.weights_id
    if wanted is not None and wanted != weights.sha256:
        raise WrongModel(
            f"WRONG_MODEL: {checkpoint.path} holds weights {weights.sha256[:16]}, the manifest asks for {wanted[:16]}; "
            "the file was replaced or another one was linked"
        )
    for name, state in (("embedding", weights.embedding), ("head", weights.head)):
        if state == "own":
            rundir.say(run_dir, f"the checkpoint's own {name} differs from the target's and is used")
    return build(checkpoint, manifest.settings, target, weights)


def _draft(
    run_dir: Path,
    manifest: Manifest,
    plan: PlannedPrompt,
    drafter: Drafter,
    vocabulary: Vocabulary,
    shared: Shared,
    progress: Progress,
) -> list[BlockRecord]:
    features = shared.features(plan.header, manifest.settings, vocabulary.embedding.shape[0], max(plan.anchors))
    total = len(plan.anchors)
    if total < manifest.blocks_per_prompt:
        rundir.say(
            run_dir, f"{plan.id}: {total} of {manifest.blocks_per_prompt} blocks: the completion has no more anchors"
        )
    progress.report("context", plan.id, 0, total)
    blocks: list[BlockRecord] = []
    groups = draft(drafter, vocabulary, plan.id, features.tokens, features.hidden, plan.anchors, manifest.block_size)
    for group in groups:
        rundir.append(run_dir / rundir.BLOCKS, list(group))
        blocks += group
        progress.done += len(group)
        progress.report("drafting", plan.id, len(blocks), total)
    return blocks


def _refuse(run_dir: Path, prompt: str, path: Path, error: PromptRefused) -> None:
    rundir.say(run_dir, f"{prompt}: left out: {error}")
    foreign = isinstance(error, ForeignFeatures)
    _note(run_dir, "cache.refused", {"prompt": prompt, "reason": str(error), "foreign": foreign}, path)


def _note(run_dir: Path, kind: str, value: object, path: Path) -> None:
    fact = Fact(kind, value, Source(socket.gethostname(), os.fspath(path)), rundir.now())
    rundir.append(run_dir / rundir.FACTS, [fact])
