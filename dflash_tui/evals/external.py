"""An evaluation by the user's own script: planned, its run directory made, its unfinished predecessors put right."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from dflash_tui import __version__
from dflash_tui.evals import rundir
from dflash_tui.evals.errors import EvaluationError, EvaluationRefused
from dflash_tui.evals.placeholders import complete, filled, used
from dflash_tui.evals.plan import Origin
from dflash_tui.evals.preflight import SPARE_DISK, queue
from dflash_tui.hosts.base import CommandFailed, Host
from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.codec import RecordError, dumps, loads, to_data
from dflash_tui.records.external import ExternalLook, ExternalLooked, ExternalRequest
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.manifest import MANIFEST_VERSION, CheckpointRef, Manifest, PromptRef, TargetRef
from dflash_tui.records.survey import Survey

LOOK_SECONDS = 300.0  # old results are hashed, on a cold disk
RECOVER_SECONDS = 600.0
HARNESS = "external:"
"""Begins the name of every harness that is a script of the user's own; its hash follows."""

_AT_RUN = ("run_dir", "checkpoint")


@dataclass(frozen=True)
class Script:
    """The user's script as the config has it. `inputs` are paths on the evaluation host that it only reads."""

    command: tuple[str, ...]
    results: tuple[str, ...] = ()
    progress: str = ""
    import_as: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Every template in it."""
        return (*self.command, *self.results, *(value for _, value in self.environment))


@dataclass(frozen=True)
class ExternalPlan:
    """A manifest without its run, in which `run_dir` and `checkpoint` are not filled yet; the plan in words."""

    manifest: Manifest
    values: Mapping[str, object]
    lines: tuple[str, ...]
    warnings: tuple[str, ...]


async def look(host: Host, python: str, harness: str, script: Script, root: str) -> ExternalLooked:
    """What a run of the script would keep safe. Raises EvaluationRefused with every reason at once, HostError."""
    used(script.words)
    request = ExternalLook(script.command, root, script.results, script.inputs, dict(script.environment))
    found = await _ask(host, [python, harness, "external-look"], dumps(request).encode(), LOOK_SECONDS)
    try:
        looked = loads(ExternalLooked, found, f"{host.name}: external-look")
    except RecordError as error:
        raise EvaluationError(f"{error}; the harness and this dflash-tui disagree") from error
    if looked.problems:
        raise EvaluationRefused("; ".join(f"{host.name}: {problem}" for problem in looked.problems))
    return looked


async def recover(host: Host, python: str, harness: str, root: str) -> tuple[str, ...]:
    """Have the host put back what runs below `root` did not live to put back; a sentence for each. Raises
    EvaluationError where that can't be done, HostError."""
    said = await _ask(host, [python, harness, "recover", root], b"", RECOVER_SECONDS)
    return tuple(f"{host.name}: {line}" for line in said.decode("utf-8", "replace").splitlines() if line.strip())


def plan_external(
    script: Script,
    preset: str,
    values: Mapping[str, object],
    origin: Origin,
    found: Survey,
    looked: ExternalLooked,
    host: str,
    facts: Sequence[Fact],
    now: datetime,
) -> ExternalPlan:
    """Compose the request. `values` fill placeholders; threads, prompts, blocks and step are added here.

    Raises EvaluationError for a placeholder that can't be filled, EvaluationRefused where the host has no room.
    """
    machine = found.host
    if machine.free_bytes is not None and machine.free_bytes < SPARE_DISK:
        raise EvaluationRefused(f"{host}: {machine.free_bytes >> 20} MiB free where runs are kept")
    wanted = used(script.words)
    prompts, blocks = PRESETS[preset]
    checkpoint = found.checkpoint
    settings = checkpoint.settings if checkpoint else None
    step = origin.step if origin.step is not None or checkpoint is None else checkpoint.step
    known: dict[str, object] = {"prompts": prompts, "blocks": blocks, **values}
    known |= {} if step is None else {"step": step}
    if "block_size" not in known and settings is not None:
        known["block_size"] = settings.block_size
    for word in script.words:
        complete(word, {**known, **dict.fromkeys(_AT_RUN, "")})
    asked = tuple(PromptRef(item.id, item.sha256) for item in found.prompts) if "prompts_file" in wanted else ()
    manifest = Manifest(
        version=MANIFEST_VERSION,
        run_id="",
        created_at=_iso(now.timestamp()),
        preset=preset,
        anchors="",
        blocks_per_prompt=blocks if "blocks" in wanted else 0,
        block_size=int(str(known["block_size"])) if "block_size" in wanted else 0,
        checkpoint=CheckpointRef(
            host=origin.host,
            path=origin.path,
            linked="",
            step=step,
            training=origin.training,
            size=origin.size,
            mtime=origin.mtime,
            quick_id=checkpoint.quick_id if checkpoint else None,
            weights_id=checkpoint.weights_id if checkpoint else None,
            sha256=origin.sha256,
        ),
        drafter=settings,
        audit=checkpoint.audit if checkpoint else None,
        target=TargetRef(str(values["target"]), posixpath.basename(str(values["target"]).rstrip("/")),
                         found.target.config_sha256 if found.target else ""),
        prompts_path=str(values["prompts_file"]),
        prompts=asked,
        hidden_states=str(values["hidden_states"]),
        threads=int(str(values["threads"])),
        request_id="",
        harness=HARNESS + _identity(script, looked),
        tool_version=__version__,
        versions={"python": machine.python},
        external=ExternalRequest(
            template=script.command,
            command=script.command,
            script=looked.script,
            script_sha256=looked.script_sha256,
            results=script.results,
            inputs=script.inputs,
            progress=script.progress,
            import_as=script.import_as,
            environment=dict(script.environment),
            total=prompts * blocks,
        ),
    )  # fmt: skip
    manifest = replace(manifest, facts=(*_facts(manifest, origin, looked, wanted, host), *facts))
    manifest = replace(manifest, request_id=_request_id(manifest, {key: known[key] for key in wanted & known.keys()}))
    warnings = [*queue(found, host, manifest.request_id), *_doubts(found, looked)]
    return ExternalPlan(manifest, known, _words(manifest, looked, host), tuple(warnings))


async def create(host: Host, root: str, plan: ExternalPlan, folder: str, names: Sequence[str]) -> tuple[Manifest, str]:
    """The run directory with its link and its request; the manifest and the directory's path."""
    manifest, request = plan.manifest, plan.manifest.external
    assert request is not None
    moment = datetime.fromisoformat(manifest.created_at)
    training = manifest.checkpoint.training or posixpath.basename(folder.rstrip("/"))
    name = rundir.run_name(
        training, manifest.checkpoint.step, f"external-{manifest.preset}", manifest.block_size, moment
    )
    run_id, run_dir = await rundir.create_run(host, root, name if manifest.block_size else name.replace("-b0-", "-"))
    linked = await rundir.link_checkpoint(host, folder, names, run_dir)
    values = {**plan.values, "run_dir": f"{run_dir}/work", "checkpoint": f"{run_dir}/{linked.path}"}
    place = Source(host.name, run_dir)
    manifest = replace(
        manifest,
        run_id=run_id,
        checkpoint=replace(manifest.checkpoint, linked=linked.path, link_method=linked.method),
        external=replace(
            request,
            command=tuple(complete(word, values) for word in request.template),
            results=tuple(complete(word, values) for word in request.results),
            environment={key: complete(word, values) for key, word in request.environment.items()},
        ),
        facts=(
            *manifest.facts,
            Fact("link.method", linked.method, replace(place, where=linked.path), manifest.created_at),
            Fact("run.directory", run_dir, place, manifest.created_at),
        ),
    )
    await rundir.write_manifest(host, run_dir, manifest)
    return manifest, run_dir


def looked_for(script: Script, values: Mapping[str, object]) -> Script:
    """The script with what is known before there is a run, for `look`."""
    return replace(
        script,
        command=tuple(filled(word, values) for word in script.command),
        results=tuple(filled(word, values) for word in script.results),
        environment=tuple((key, filled(word, values)) for key, word in script.environment),
    )


def _identity(script: Script, looked: ExternalLooked) -> str:
    parts = [looked.script_sha256, script.command, script.results, sorted(script.environment)]
    return hashlib.sha256(dumps(parts).encode()).hexdigest()


def _request_id(manifest: Manifest, filled_in: Mapping[str, object]) -> str:
    """What makes two evaluations the same: weights, script, and whatever fills its placeholders."""
    checkpoint = manifest.checkpoint
    bytes_of = checkpoint.weights_id or checkpoint.sha256 or [checkpoint.host, checkpoint.path, checkpoint.mtime]
    asked = {
        "weights": bytes_of,
        "harness": manifest.harness,
        "preset": manifest.preset,
        "filled": {key: value for key, value in filled_in.items() if key != "threads"},
        "prompts": [prompt.sha256 for prompt in manifest.prompts],
        "target": manifest.target.config_sha256 if "target" in filled_in else None,
    }
    return hashlib.sha256(dumps(asked).encode()).hexdigest()


def _facts(
    manifest: Manifest, origin: Origin, looked: ExternalLooked, wanted: frozenset[str], host: str
) -> tuple[Fact, ...]:
    at, checkpoint, plan = manifest.created_at, Source(origin.host, origin.path), Source(host, "", "plan")
    file = {"size": origin.size, "mtime": _iso(origin.mtime), "inode": origin.inode}
    script = {"path": looked.script, "sha256": looked.script_sha256}
    facts = [
        Fact("checkpoint.file", file, checkpoint, at),
        Fact("harness.script", script, Source(host, looked.script or "harness.command"), at),
    ]
    if manifest.checkpoint.step is not None:
        facts.append(Fact("checkpoint.step", manifest.checkpoint.step, checkpoint, at))
    if manifest.block_size:
        facts.append(Fact("eval.block_size", manifest.block_size, plan, at))
    if manifest.drafter is not None:
        said = manifest.drafter.sources.get("block_size", "")
        facts.append(Fact("train.block_size", manifest.drafter.block_size, replace(checkpoint, where=said), at))
    if manifest.audit is not None and manifest.audit.family == "dflash":  # others' keys are only their scripts' matter
        facts.append(Fact("weights.audit", to_data(manifest.audit), checkpoint, at))
    if manifest.prompts:
        asked = [prompt.id for prompt in manifest.prompts]
        facts.append(Fact("prompts.asked", asked, Source(host, manifest.prompts_path), at))
    if "target" in wanted and manifest.target.config_sha256:
        target = {"name": manifest.target.name, "target_config_sha256": manifest.target.config_sha256}
        facts.append(Fact("target.identity", target, Source(host, manifest.target.path, "config.json"), at))
    return tuple(facts)


def _doubts(found: Survey, looked: ExternalLooked) -> list[str]:
    said = [problem.sentence for problem in found.problems if problem.about == "checkpoint"]
    doubts = [f"{sentence}; only your script knows whether it can read it" for sentence in said]
    if not looked.script:
        doubts.append(
            "which file is your script can't be told from harness.command, so only what harness.results names is kept "
            "safe"
        )
    if looked.unguarded:
        more = f" and {len(looked.unguarded) - 3} more" if len(looked.unguarded) > 3 else ""
        doubts.append(
            f"not kept safe (too many, too large, or not yours to put back): {', '.join(looked.unguarded[:3])}{more}; "
            "if the script writes there, name it under harness.results"
        )
    return doubts


def _words(manifest: Manifest, looked: ExternalLooked, host: str) -> tuple[str, ...]:
    request, checkpoint = manifest.external, manifest.checkpoint
    assert request is not None
    step = f"step {checkpoint.step} of {checkpoint.training}" if checkpoint.step is not None else checkpoint.path
    safe = [posixpath.basename(path) for path in looked.guarded]
    names = ", ".join(dict.fromkeys(safe[:6])) + (f" and {len(safe) - 6} more" if len(safe) > 6 else "")
    return (
        f"{step}, {manifest.preset}, by {looked.script or request.template[0]} on {host}",
        f"kept as they are while it runs: {names}" if safe else "no files at fixed paths were found to keep safe",
        f"{manifest.threads} {'thread' if manifest.threads == 1 else 'threads'}, nice 10",
    )


async def _ask(host: Host, argv: list[str], stdin: bytes, seconds: float) -> bytes:
    try:
        return (await host.run(argv, stdin=stdin, timeout=seconds)).stdout
    except CommandFailed as error:
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        raise EvaluationError(f"{host.name}: {lines[-1] if lines else error}") from error


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
