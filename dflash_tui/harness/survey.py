"""What an evaluation host has, in one answer and without torch: machine, target, prompts and their hidden states,
the checkpoint's structure, settings and identity. What is wrong comes back as sentences, not as a traceback."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from dflash_tui.checkpoints.audit import audit
from dflash_tui.checkpoints.errors import CheckpointError, SettingsMissing
from dflash_tui.checkpoints.files import LocalFiles, local_files
from dflash_tui.checkpoints.identity import quick_id
from dflash_tui.checkpoints.opening import read_configs, read_json, read_structure
from dflash_tui.checkpoints.settings import resolve_settings
from dflash_tui.checkpoints.structure import Structure
from dflash_tui.harness import caches, capturable, machine, memory, rundir
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.identity import identify
from dflash_tui.harness.neighbours import working
from dflash_tui.harness.process import boot_id
from dflash_tui.harness.prompts import Prompt, read_prompts
from dflash_tui.harness.target_files import TargetFiles, open_target
from dflash_tui.records import codec
from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.requests import SurveyRequest
from dflash_tui.records.settings import DrafterSettings
from dflash_tui.records.survey import (
    Survey,
    SurveyedCheckpoint,
    SurveyedHost,
    SurveyedTarget,
    SurveyProblem,
)


class Problems:
    """Collects what is wrong: `severity` "error" means that an evaluation cannot run, "warn" that it will say less."""

    def __init__(self) -> None:
        self.found: list[SurveyProblem] = []

    def add(self, severity: Literal["error", "warn"], about: str, sentence: str) -> None:
        """Note one problem of the thing `about`."""
        self.found.append(SurveyProblem(severity, about, sentence))

    @contextlib.contextmanager
    def noting(self, about: str, place: str = "") -> Iterator[None]:
        """Note what the block raises as an error about `about`, and go on after it. `place` leads a sentence that
        does not say where."""
        try:
            yield
        except (HarnessError, CheckpointError) as error:
            said = str(error)
            self.add("error", about, said if place in said else f"{place}: {said}")
        except OSError as error:
            self.add("error", about, f"{error.filename or about}: {error.strerror}")


def answer(request: bytes) -> str:
    """The survey as JSON text. Raises HarnessError when the request itself is not one."""
    try:
        wanted = codec.loads(SurveyRequest, request, "survey request")
    except codec.RecordError as error:
        raise HarnessError(str(error)) from error
    return codec.dumps(_plain(survey(wanted)))


def survey(wanted: SurveyRequest) -> Survey:
    """All that was asked about; what cannot be read is None and has its problem."""
    problems = Problems()
    host = _host(wanted.space_at, problems)
    target: TargetFiles | None = None
    if wanted.target is not None:
        with problems.noting("target"):
            target = open_target(Path(wanted.target))
    checkpoint: SurveyedCheckpoint | None = None
    held = 0
    if wanted.checkpoint is not None:
        with problems.noting("checkpoint", wanted.checkpoint):
            checkpoint, held = _checkpoint(wanted, Path(wanted.checkpoint), target, problems)
    settings = wanted.settings if checkpoint is None else checkpoint.settings
    prompts: tuple[Prompt, ...] = ()
    if wanted.prompts_path is not None:
        with problems.noting("prompts"):
            prompts = _asked(wanted, wanted.prompts_path)
    identity = "" if target is None else target.config_sha256
    taps = () if settings is None else settings.taps
    refused = "" if target is None else capturable.refusal(target, prompts, taps)
    return Survey(
        version=1,
        host=host,
        target=None if target is None else _target(target, problems),
        checkpoint=checkpoint,
        prompts=tuple(caches.asked(prompt) for prompt in prompts),
        memory_needed=None if settings is None else memory.drafting(settings, (), held),
        problems=tuple(problems.found),
        working=() if wanted.space_at is None else tuple(working(Path(wanted.space_at) / rundir.RUNS)),
        caches=tuple(
            caches.look_through(folder, prompts, identity, settings, refused, held) for folder in wanted.hidden_states
        ),
        capture_refused=refused,
    )


def _asked(wanted: SurveyRequest, path: str) -> tuple[Prompt, ...]:
    """The first prompts of the set, or those that are named. Raises HarnessError naming the ones that are not there."""
    known = read_prompts(Path(path))
    if not wanted.prompts:
        return known[: wanted.prompts_asked]
    by_id = {prompt.id: prompt for prompt in known}
    if strangers := [name for name in wanted.prompts if name not in by_id]:
        raise HarnessError(f"{path}: no prompt {', '.join(strangers[:8])} in it, which was asked for by name")
    return tuple(by_id[name] for name in wanted.prompts)


def _host(space_at: str | None, problems: Problems) -> SurveyedHost:
    try:
        torch: str | None = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = None
        problems.add(
            "error",
            "torch",
            f"{sys.executable} (Python {platform.python_version()}) has no torch; install it with: "
            f"{sys.executable} -m pip install torch --index-url https://download.pytorch.org/whl/cpu",
        )
    free: int | None = None
    if space_at is not None:
        with problems.noting("space"):
            place = Path(space_at)
            while not place.exists() and place != place.parent:
                place = place.parent
            space = os.statvfs(place)
            free = space.f_bavail * space.f_frsize
    return SurveyedHost(
        hostname=socket.gethostname(),
        boot_id=boot_id(),
        python=platform.python_version(),
        executable=sys.executable,
        torch=torch,
        platform=platform.platform(),
        cpus=os.cpu_count(),
        cpus_usable=machine.cpus_usable(),
        memory_total=machine.memory_total(),
        memory_available=machine.memory_left(),
        memory_limit=machine.memory_limit(),
        loadavg=os.getloadavg(),
        free_bytes=free,
    )


def _target(target: TargetFiles, problems: Problems) -> SurveyedTarget:
    weights = {info.file for info in target.tensors.values()}
    for name in ("embed_tokens.weight", *(() if target.tied else ("lm_head.weight",))):
        with problems.noting("target"):
            target.info(name)
    return SurveyedTarget(
        path=os.fspath(target.folder),
        name=target.name,
        config_sha256=target.config_sha256,
        bytes=sum((target.folder / name).stat().st_size for name in weights),
        mtime=max((target.folder / name).stat().st_mtime for name in (*weights, "config.json")),
    )


def _checkpoint(
    wanted: SurveyRequest, path: Path, target: TargetFiles | None, problems: Problems
) -> tuple[SurveyedCheckpoint, int]:
    """The checkpoint, and the memory that its weights take."""
    files = local_files(path)
    structure = read_structure(files)
    configs = [(os.fspath(path / name), data) for name, data in read_configs(files)] if path.is_dir() else []
    if path.is_file() and (path.parent / "config.json").is_file():
        configs = [(os.fspath(path.parent / "config.json"), read_json(LocalFiles(path.parent), "config.json"))]
    if wanted.drafter_config is not None:
        with problems.noting("drafter config"):
            own = Path(wanted.drafter_config)
            configs.append((wanted.drafter_config, read_json(LocalFiles(own.parent), own.name)))
    settings: DrafterSettings | None = None
    found = audit(structure, configs[0][1] if configs else None)
    _check(path, found, problems)
    if found.family == "dflash":
        with problems.noting("drafter settings"):
            settings = _settings(structure, configs, wanted, target)
    identity: str | None = None
    if wanted.weights_id and target is not None and found.family == "dflash" and not found.missing:
        with problems.noting("weights", os.fspath(path)):
            weights = identify(structure, files, target)
            identity = weights.sha256
            found = replace(found, embedding=weights.embedding, head=weights.head)
    surveyed = SurveyedCheckpoint(
        path=os.fspath(path),
        container=structure.container,
        files=structure.files,
        size=sum(files.size(name) for name in structure.files),
        step=structure.step,
        args=structure.args,
        sources=dict(structure.sources),
        quick_id=quick_id(structure.directory),
        weights_id=identity,
        audit=found,
        settings=settings,
    )
    return surveyed, memory.copied(structure)


def _check(path: Path, found: Audit, problems: Problems) -> None:
    if found.family != "dflash":
        problems.add(
            "error", "checkpoint", f"{path}: its keys are those of {found.family}; only dflash v1 is evaluated"
        )
    for names, what in ((found.missing, "tensors are missing"), (found.mismatched, "tensors have an unexpected shape")):
        if names:
            problems.add("error", "checkpoint", f"{path}: {len(names)} {what}: {'; '.join(names[:4])}")


def _settings(
    structure: Structure,
    configs: list[tuple[str, dict[str, Any]]],
    wanted: SurveyRequest,
    target: TargetFiles | None,
) -> DrafterSettings:
    """`resolve_settings`; where only the vocabulary's size is unknown it is the target's, whose head is used. Raises
    CheckpointError, HarnessError naming the fields that nothing gives of a drafter that belongs to no training."""
    try:
        return resolve_settings(structure, configs, wanted.overrides)
    except SettingsMissing as error:
        size = None if target is None else target.text.get("vocab_size")
        if error.fields == ("vocab_size",) and target is not None and isinstance(size, int):
            described = (os.fspath(target.folder / "config.json"), {"vocab_size": size})
            return resolve_settings(structure, [*configs, described], wanted.overrides)
        if not wanted.foreign:
            raise
        looked = ", ".join([name for name, _ in configs] or ["no config beside it"])
        raise HarnessError(
            f"{wanted.checkpoint}: nothing says its {', '.join(error.fields)} (looked in {looked} and the checkpoint's "
            "own args; [drafter] of the config is the watched training's); put its config.json beside the weights, or "
            "name one: --drafter-config PATH, for a [[baseline]] its key config"
        ) from error


def _plain(value: Any) -> Any:
    """JSON data of whatever a checkpoint's args hold: what JSON cannot say becomes its text."""
    value = codec.to_data(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
