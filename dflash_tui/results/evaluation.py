"""An own run as an evaluation: its folder's records, and the quick result inside a full one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dflash_tui.measure.anchors import FULL_ANCHORS, PRESETS
from dflash_tui.measure.summary import by_prompt, score, summarise
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.codec import RecordError, loads, to_data
from dflash_tui.records.external import Journal, Output
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.manifest import MANIFEST_VERSION, CheckpointRef, Manifest
from dflash_tui.records.process import ExitRecord
from dflash_tui.records.result import METRICS, Evaluation, Results
from dflash_tui.results.errors import NothingMeasured, ResultDamaged, ResultError

RUN_FILES = ("manifest.json", "blocks.jsonl", "results.json", "audit.json", "facts.jsonl", "external.json")


def from_run(folder: Path) -> Evaluation:
    """The evaluation in a run folder (``manifest.json``, ``blocks.jsonl``; ``results.json``, ``audit.json`` and
    ``facts.jsonl`` where they are there). A run that still runs gives its blocks so far.

    A run of a script of the user's own is what its result file says. Raises ResultDamaged naming file and line,
    NothingMeasured without a block.
    """
    manifest = read_manifest(folder)
    if manifest.external is not None:
        from dflash_tui.results.external import from_external  # it reads through the importers, which know runs

        return from_external(folder, manifest)
    results = _results(folder, manifest)
    blocks = _blocks(folder / "blocks.jsonl", manifest.block_size - 1, ends_torn=results is None)
    if not blocks and results is None:
        raise NothingMeasured(f"{folder}: {unmeasured(folder, 'no block was measured')}")
    if not blocks:
        raise ResultDamaged(f"{folder / 'blocks.jsonl'}: holds no blocks, results.json beside it does; fetch it again")
    summary = summarise(manifest.run_id, manifest.block_size - 1, blocks)
    if results is not None:
        _agree(folder, results, summary)
    checkpoint = manifest.checkpoint
    facts = facts_of(folder, manifest)
    features = tuple(prompt.id for prompt in manifest.prompts if prompt.features is not None)
    return Evaluation(
        name=manifest.run_id,
        origin="run",
        path=str(folder),
        sha256=digest(folder),
        pooled=summary.pooled,
        per_prompt=summary.per_prompt,
        blocks=blocks,
        preset=manifest.preset,
        training=checkpoint.training or None,
        step=checkpoint.step,
        checkpoint_name=checkpoint_name(checkpoint),
        checkpoint_path=f"{checkpoint.host}:{checkpoint.path}" if checkpoint.host else checkpoint.path,
        run_dir=next((str(f.value) for f in reversed(facts) if f.kind == "run.directory"), None),
        weights_id=checkpoint.weights_id,
        block_size=manifest.block_size,
        horizon=manifest.block_size - 1,
        prompts_asked=tuple(prompt.id for prompt in manifest.prompts),
        prompts_present=features if results is None else tuple(summary.per_prompt),
        prompts_asked_count=len(manifest.prompts),
        prompt_count=len(summary.per_prompt),
        prompt_hashes={prompt.id: prompt.sha256 for prompt in manifest.prompts},
        anchors=manifest.anchors,
        harness=manifest.harness,
        created_at=manifest.created_at,
        request_id=manifest.request_id,
        facts=facts,
    )


def read_manifest(folder: Path) -> Manifest:
    """``manifest.json`` of a run folder. Raises ResultDamaged."""
    path = folder / "manifest.json"
    try:
        manifest = loads(Manifest, _read(path), str(path))
    except RecordError as error:
        raise ResultDamaged(str(error)) from error
    if manifest.version > MANIFEST_VERSION:
        raise ResultDamaged(
            f"{path}: version is {manifest.version}, this dflash-tui reads up to {MANIFEST_VERSION}; update it"
        )
    return manifest


def unmeasured(folder: Path, what: str) -> str:
    """That a run folder holds no values (`what` says so), with how the run has ended, else "yet", and where to look."""
    path, logged = folder / "exit.json", (folder / "log.txt").exists()
    ended: ExitRecord | None = None
    if path.exists():
        try:
            ended = loads(ExitRecord, _read(path), str(path))
        except RecordError as error:
            raise ResultDamaged(str(error)) from error
    look = "see log.txt there" if logged else "it has no log here"
    if ended is None:
        return f"{what} yet; {look}" if logged else f"{what} yet, its end is not known and {look}"
    if ended.state == "finished":
        return f"{what}, though it has finished; {look}"
    why = ended.error or "no reason was recorded"
    how = why if why.startswith(f"{ended.state} ") else f"{ended.state}: {why}"
    return f"{what}; it was {how}; {look}"


def quick_of(full: Evaluation) -> Evaluation:
    """The quick result inside a full one: the even anchors of each prompt's 30, of the first three prompts asked.

    Raises ResultError when the result keeps no blocks or is no full one, NothingMeasured when none of the three was
    measured.
    """
    if not full.blocks:
        raise ResultError(
            f"{full.name}: keeps no blocks, so its quick part can't be taken; evaluate with the quick preset"
        )
    if full.preset != "full":
        raise ResultError(f"{full.name}: preset is {full.preset}, a quick part can only be taken of full")
    first = (full.prompts_asked or tuple(full.per_prompt))[: PRESETS["quick"][0]]
    blocks: list[BlockRecord] = []
    for prompt, group in by_prompt(full.blocks).items():
        if prompt in first:
            blocks += sorted(group, key=lambda block: block.anchor)[:FULL_ANCHORS:2]
    if not blocks:
        raise NothingMeasured(f"{full.name}: none of its first prompts ({', '.join(first)}) was measured")
    return replace(with_blocks(full, blocks), name=f"{full.name} (quick part)", preset="quick", prompts_asked=first,
                   prompts_asked_count=len(first), request_id=None)  # fmt: skip


def with_blocks(evaluation: Evaluation, blocks: Sequence[BlockRecord]) -> Evaluation:
    """The same evaluation, measured on some of its blocks. Raises ValueError without blocks."""
    per_prompt = {prompt: score(group) for prompt, group in by_prompt(blocks).items()}
    return replace(
        evaluation,
        pooled=score(blocks),
        per_prompt=per_prompt,
        blocks=tuple(blocks),
        prompts_present=tuple(per_prompt),
        prompt_count=len(per_prompt),
    )


def digest(folder: Path) -> str:
    """SHA-256 over the names and hashes of a run's record files: what a run is identified by when it is pinned."""
    lines = [f"{name}\t{hashlib.sha256(_read(folder / name)).hexdigest()}\n" for name in record_files(folder)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def record_files(folder: Path) -> tuple[str, ...]:
    """The names of a run's record files that are there, a script's result files among them. Raises ResultDamaged."""
    return tuple(name for name in (*RUN_FILES, *(o.name for o in outputs_of(folder))) if (folder / name).exists())


def outputs_of(folder: Path) -> tuple[Output, ...]:
    """What a script of the user's own has written, as its journal says; () for any other run. Raises ResultDamaged."""
    path = folder / "external.json"
    if not path.exists():
        return ()
    try:
        return loads(Journal, _read(path), str(path)).outputs
    except RecordError as error:
        raise ResultDamaged(str(error)) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ResultDamaged(f"{path}: can't be read ({error.strerror})") from error


def _lines(path: Path) -> list[bytes]:
    return _read(path).split(b"\n") if path.exists() else []


def _results(folder: Path, manifest: Manifest) -> Results | None:
    path = folder / "results.json"
    if not path.exists():
        return None
    try:
        results = loads(Results, _read(path), str(path))
    except RecordError as error:
        raise ResultDamaged(str(error)) from error
    if results.run_id != manifest.run_id:
        raise ResultDamaged(f"{path}: run_id is {results.run_id!r}, its manifest says {manifest.run_id!r}")
    return results


def _blocks(path: Path, horizon: int, ends_torn: bool) -> tuple[BlockRecord, ...]:
    """`ends_torn`: the file may still be growing, so a last line without its newline is not read yet."""
    lines = _lines(path)
    if ends_torn and lines:
        lines[-1] = b""
    blocks: list[BlockRecord] = []
    seen: dict[tuple[str, int], int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            block = loads(BlockRecord, line, where)
        except RecordError as error:
            raise ResultDamaged(str(error)) from error
        if block.horizon != horizon or len(block.ranks) != horizon:
            raise ResultDamaged(
                f"{where}: found horizon {block.horizon} and {len(block.ranks)} ranks, expected {horizon} of each "
                "(block_size − 1 in manifest.json)"
            )
        if any(rank is not None and rank < 1 for rank in block.ranks):
            raise ResultDamaged(f"{where}: found rank {min(r for r in block.ranks if r is not None)}, ranks start at 1")
        first = seen.setdefault((block.prompt, block.anchor), number)
        if first != number:
            raise ResultDamaged(f"{where}: block {block.prompt} at {block.anchor} was already on line {first}")
        blocks.append(block)
    return tuple(blocks)


def _agree(folder: Path, results: Results, derived: Results) -> None:
    if results.pooled.blocks != derived.pooled.blocks:
        raise ResultDamaged(
            f"{folder / 'results.json'}: is about {results.pooled.blocks} blocks, blocks.jsonl beside it holds "
            f"{derived.pooled.blocks}; fetch the run's records again"
        )
    for metric in METRICS:
        stated, counted = results.pooled.streak.get(metric), derived.pooled.streak[metric]
        if stated is None or abs(stated - counted) > 1e-9:
            raise ResultDamaged(
                f"{folder / 'results.json'}: pooled.streak.{metric} is {stated}, blocks.jsonl beside it gives {counted}"
            )


def facts_of(folder: Path, manifest: Manifest) -> tuple[Fact, ...]:
    """Oldest first: what the manifest implies, its facts, then what the harness found. Raises ResultDamaged."""
    home, at = Source("", str(folder / "manifest.json")), manifest.created_at
    facts = [Fact("link.method", manifest.checkpoint.link_method, replace(home, where="checkpoint.link_method"), at)]
    if manifest.external is None:  # what a script used of the checkpoint only the script knows
        facts += [
            Fact("weights.audit", to_data(manifest.audit), replace(home, where="audit"), at),
            Fact("eval.block_size", manifest.block_size, replace(home, where="block_size"), at),
            Fact("eval.taps", list(manifest.settings.taps), replace(home, where="drafter.taps"), at),
        ]
    facts += manifest.facts
    path = folder / "facts.jsonl"
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            try:
                facts.append(loads(Fact, line, f"{path}:{number}"))
            except RecordError as error:
                raise ResultDamaged(str(error)) from error
    path = folder / "audit.json"
    if path.exists():
        try:
            audit = loads(Audit, _read(path), str(path))
        except RecordError as error:
            raise ResultDamaged(str(error)) from error
        facts.append(Fact("weights.audit", to_data(audit), Source("", str(path)), at))
    return tuple(facts)


def checkpoint_name(checkpoint: CheckpointRef) -> str:
    """The end of its path that tells it apart: ``step_4000/checkpoint.pt`` (its file is called so at every step)."""
    parts = [part for part in checkpoint.path.replace("\\", "/").split("/") if part]
    digits = any(character.isdigit() for character in parts[-1]) if parts else True
    return "/".join(parts[-1:] if digits else parts[-2:])
