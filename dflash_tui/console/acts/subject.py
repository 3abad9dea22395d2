"""What is evaluated: a checkpoint of the watched training, or a drafter of none, wherever it lies."""

from __future__ import annotations

import asyncio
import difflib
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete
from dflash_tui.checkpoints.identity import quick_id
from dflash_tui.checkpoints.needed import evaluation_files
from dflash_tui.checkpoints.opening import read_directories, weight_file
from dflash_tui.console import events as happened
from dflash_tui.console.acts import fetch
from dflash_tui.console.acts.survey import Asked, Weights, refuse_early, trained
from dflash_tui.console.checks.checkpoint import drafter
from dflash_tui.console.errors import ConsoleError
from dflash_tui.evals.errors import EvaluationRefused
from dflash_tui.evals.plan import Origin
from dflash_tui.hosts.base import FileMissing, Host, Stat
from dflash_tui.records.facts import Fact
from dflash_tui.watch.remote_files import RemoteFiles

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

_SHORT = 12  # digits of a quick id in a folder's name
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_HUB = re.compile(r"models--(.+?)--(.+)")
_PLAIN = ("model", "pytorch_model", "checkpoint", "drafter", "weights", "training_state")
_INDEX = ".index.json"


@dataclass(frozen=True)
class Subject:
    """What is evaluated, as it lies on the evaluation host: `names` below `folder`. `facts` are the training's, as of
    now; a drafter of no training has none, and a `name`."""

    origin: Origin
    folder: str
    names: tuple[str, ...]
    weights: Weights
    facts: tuple[Fact, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class _Found:
    """A drafter where it lies: the files that an evaluation needs of it, with what they are there."""

    host: Host
    folder: str
    stats: Mapping[str, Stat]
    path: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.stats)

    @property
    def size(self) -> int:
        return sum(stat.size for stat in self.stats.values())


async def of_training(console: Console, step: int | None, job: str, asked: Asked | None) -> Subject:
    """The newest checkpoint (or that of `step`), brought to the evaluation host, with the training's facts as of now.
    What would make the evaluation that is `asked` impossible is found out before gigabytes move; None: it is left to
    others to judge. Raises TROUBLE."""
    snapshot = await fetch.snapshot_of(console)
    checkpoint = fetch.newest(snapshot, step)
    for problem in snapshot.problems:  # the evaluation goes on, but a caveat may lack its evidence
        console.emit(happened.Noticed("warn", f"not known of the training: {problem}"))
    if asked is not None and await refuse_early(console, fetch.wanted_folder(console, checkpoint), asked):
        items, _ = await drafter(console, checkpoint)
        if failed := [item.sentence for item in items if item.state == "fail"]:
            raise EvaluationRefused("; ".join(failed))
    fetched = await fetch.bring(console, checkpoint, job)
    origin = Origin(
        host=checkpoint.host,
        path=checkpoint.path,
        training=console.config.training.name,
        step=checkpoint.step,
        size=checkpoint.size,
        mtime=checkpoint.mtime,
        inode=checkpoint.inode,
        sha256=fetched.sha256 if len(checkpoint.files) == 1 else None,
    )
    weights = trained(console, opened(fetched.folder, fetched.names))
    return Subject(origin, fetched.folder, fetched.names, weights, snapshot.facts)


async def of_model(console: Console, model: str, config: str, job: str, asked: Asked) -> Subject:
    """`model` (HOST:PATH, or a path on the evaluation host): a folder or a weights file that belongs to no watched
    training. One that lies elsewhere is moved like a checkpoint. Raises TROUBLE."""
    host, path = placed(console, model)
    return await of_drafter(console, host, path, config, job, asked)


async def of_drafter(
    console: Console, host: Host, path: str, config: str, job: str, asked: Asked, name: str = ""
) -> Subject:
    """The drafter at `path` of a host, brought to the evaluation host. `config` (there) describes it where nothing
    beside it does; `name` is what it is called, else as its folder. Raises TROUBLE."""
    found = await _found(host, path.rstrip("/") or "/")
    name = name or drafter_name(found.path)
    newest = max(stat.mtime for stat in found.stats.values())
    origin = Origin(host.name, found.path, "", None, found.size, newest, found.stats[found.names[0]].inode)
    if host.name == console.evaluation_host.name:
        return Subject(origin, found.folder, found.names, Weights(found.path, config, foreign=True), name=name)
    wanted = posixpath.join(
        console.evaluation.root, "checkpoints", "models", f"{drafter_name(found.path)}-{await _short_id(found)}"
    )
    await refuse_early(console, wanted, asked)
    load = fetch.Load(host, found.folder, found.names, found.size)
    folder, _ = await fetch.carry(console, job, load, wanted)
    weights_there = Weights(opened(folder, found.names), config, foreign=True)
    return Subject(origin, folder, found.names, weights_there, name=name)


def opened(folder: str, names: Sequence[str]) -> str:
    """What the harness opens: the single weights file, or the folder of a format that has several files."""
    return posixpath.join(folder, names[0]) if len(names) == 1 else folder


def placed(console: Console, model: str, what: str = "model") -> tuple[Host, str]:
    """Host and path of ``HOST:PATH``; without a host, on the evaluation host. Raises ConsoleError, which calls it
    `what`."""
    name, colon, path = ("", "", model) if model.startswith(("/", "~")) else model.partition(":")
    if name and not colon:
        name, path = "", model
    if not path.startswith("/"):
        raise ConsoleError(
            f"{what} {model!r}: found the path {path!r}, expected an absolute one, as in HOST:/models/drafter; the "
            "host's own shell is not asked what ~ or a relative path means"
        )
    if not name:
        return console.evaluation_host, path
    if name not in console.hosts:
        near = difflib.get_close_matches(name, list(console.hosts), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(console.hosts)}"
        raise ConsoleError(f"{what} {model!r}: no host {name!r} in the config; {hint}")
    return console.host(name), path


def drafter_name(path: str) -> str:
    """What a drafter is called that has no name: its repository in a Hugging Face cache, else its folder, or its file
    where that says more than any weights file does."""
    parts = [part for part in path.split("/") if part]
    hub = next((match for part in parts if (match := _HUB.fullmatch(part))), None)
    if hub is not None:
        return _UNSAFE.sub("-", f"{hub[1]}-{hub[2]}")
    stem, dot, ending = (parts[-1] if parts else "drafter").rpartition(".")
    weights = dot and ending.lower() in ("safetensors", "pt", "pth", "bin", "ckpt", "json")
    name = parts[-1] if parts else "drafter"
    if weights:
        stem = stem.removesuffix(".safetensors.index").removesuffix(".bin.index")
        name = parts[-2] if stem in _PLAIN and len(parts) > 1 else stem
    return _UNSAFE.sub("-", name).strip("-.") or "drafter"


async def _found(host: Host, path: str) -> _Found:
    """Raises ConsoleError where no weights lie there, HostError."""
    try:
        found = await host.stat(path)
    except FileMissing:
        raise ConsoleError(f"{host.name}:{path}: does not exist; name a drafter's folder or its weights file") from None
    if found.kind == "folder":
        return await _in_folder(host, path)
    if found.kind != "file":
        raise ConsoleError(f"{host.name}:{path}: is neither a file nor a folder; name a drafter's weights")
    folder, name = posixpath.split(path)
    if name.endswith(_INDEX):
        return await _in_folder(host, folder)
    beside = await _files(host, folder)
    sidecars = {sidecar: beside[sidecar] for sidecar in fetch.SIDECARS if sidecar in beside}
    return _Found(host, folder, {name: found, **sidecars}, path)


async def _in_folder(host: Host, folder: str) -> _Found:
    files = await _files(host, folder)
    try:
        weight_file(tuple(files))
    except CheckpointIncomplete:
        hint = await _snapshots(host, folder)
        raise ConsoleError(
            f"{host.name}:{folder}: no weights in it; expected *.safetensors, *.bin or *.pt{hint}"
        ) from None
    except CheckpointError as error:
        raise ConsoleError(f"{host.name}:{folder}: {error}") from error
    return _Found(host, folder, {name: files[name] for name in evaluation_files(tuple(files))}, folder)


async def _files(host: Host, folder: str) -> dict[str, Stat]:
    """The files of a folder by name; a link to a file (as in the Hugging Face cache) is what it leads to, one to
    nothing is none."""
    found: dict[str, Stat] = {}
    for entry in await host.list(folder):
        stat = entry.stat
        if stat.kind == "link":
            try:
                stat = await host.stat(posixpath.join(folder, entry.name))
            except FileMissing:
                continue
        if stat.kind == "file" and not entry.name.startswith("."):
            found[entry.name] = stat
    return found


async def _snapshots(host: Host, folder: str) -> str:
    """The way on from the top of a model in the Hugging Face cache, whose weights lie two folders deeper."""
    try:
        below = [entry for entry in await host.list(posixpath.join(folder, "snapshots")) if entry.stat.kind == "folder"]
    except FileMissing:
        return ""
    newest = max(below, key=lambda entry: entry.stat.mtime, default=None)
    return "" if newest is None else f"; its newest snapshot is {posixpath.join(folder, 'snapshots', newest.name)}"


async def _short_id(found: _Found) -> str:
    """The beginning of the weights' quick id. Raises ConsoleError where they can't be read as weights."""
    remote = RemoteFiles(found.host, found.folder, {name: stat.size for name, stat in found.stats.items()})
    try:
        return (await asyncio.to_thread(lambda: quick_id(read_directories(remote))) or "unknown")[:_SHORT]
    except CheckpointError as error:
        raise ConsoleError(f"{found.host.name}:{found.path}: {error}") from error
