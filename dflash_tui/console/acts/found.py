"""A checkpoint wherever it lies: on which host, which of its files, and what it is called."""

from __future__ import annotations

import asyncio
import difflib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_tui.checkpoints.dcp_metadata import METADATA
from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete
from dflash_tui.checkpoints.identity import quick_id
from dflash_tui.checkpoints.needed import evaluation_files
from dflash_tui.checkpoints.opening import read_directories, weight_file
from dflash_tui.console.errors import BadArgument, ConsoleError
from dflash_tui.hosts.base import FileMissing, Host, Stat
from dflash_tui.watch.remote_files import RemoteFiles

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

SIDECARS = ("config.json",)  # what a raw checkpoint can't tell may lie beside it

_SHORT = 12  # digits of a quick id in a folder's name
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_HUB = re.compile(r"models--(.+?)--(.+)")
_PLAIN = ("model", "pytorch_model", "checkpoint", "drafter", "weights", "training_state")
_INDEX = ".index.json"


@dataclass(frozen=True)
class Found:
    """A checkpoint where it lies: the files that an evaluation needs of it, with what they are there. `others` are more
    files of its folder."""

    host: Host
    folder: str
    stats: Mapping[str, Stat]
    path: str
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The files, the weights first."""
        return tuple(self.stats)

    @property
    def size(self) -> int:
        """Bytes of these files."""
        return sum(stat.size for stat in self.stats.values())


def placed(console: Console, model: str, what: str = "model", otherwise: Host | None = None) -> tuple[Host, str]:
    """Host and path of ``HOST:PATH``; without a host, on `otherwise` (the evaluation host). Raises BadArgument, which
    calls it `what`."""
    name, colon, path = ("", "", model) if model.startswith(("/", "~")) else model.partition(":")
    if name and not colon:
        name, path = "", model
    if not path.startswith("/"):
        raise BadArgument(
            f"{what} {model!r}: found the path {path!r}, expected an absolute one, as in HOST:/models/drafter; the "
            "host's own shell is not asked what ~ or a relative path means"
        )
    if not name:
        return otherwise or console.evaluation_host, path
    if name not in console.hosts:
        near = difflib.get_close_matches(name, list(console.hosts), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(console.hosts)}"
        raise BadArgument(f"{what} {model!r}: no host {name!r} in the config; {hint}")
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


async def find(host: Host, path: str) -> Found:
    """The checkpoint at a path: a folder, or a weights file. Raises ConsoleError without weights there, HostError."""
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
    sidecars = {sidecar: beside[sidecar] for sidecar in SIDECARS if sidecar in beside}
    return Found(host, folder, {name: found, **sidecars}, path)


async def _in_folder(host: Host, folder: str) -> Found:
    files = await _files(host, folder)
    try:
        weight_file(tuple(files))
    except CheckpointIncomplete:
        hint = await _snapshots(host, folder)
        raise ConsoleError(
            f"{host.name}:{folder}: no weights in it; expected *.safetensors, *.bin, *.pt or .metadata{hint}"
        ) from None
    except CheckpointError as error:
        raise ConsoleError(f"{host.name}:{folder}: {error}") from error
    needed = evaluation_files(tuple(files))
    others = tuple(name for name in files if name not in needed)
    return Found(host, folder, {name: files[name] for name in needed}, folder, others)


async def _files(host: Host, folder: str) -> dict[str, Stat]:
    """The files of a folder by name, hidden ones only where they describe a distributed checkpoint; a link to a file
    (as in the Hugging Face cache) is what it leads to, one to nothing is none."""
    stats: dict[str, Stat | None] = {entry.name: entry.stat for entry in await host.list(folder)}
    links = [name for name, stat in stats.items() if stat is not None and stat.kind == "link"]
    stats |= zip(links, await host.stat_many([posixpath.join(folder, name) for name in links]), strict=True)
    return {
        name: stat
        for name, stat in stats.items()
        if stat is not None and stat.kind == "file" and (not name.startswith(".") or name == METADATA)
    }


async def _snapshots(host: Host, folder: str) -> str:
    """The way on from the top of a model in the Hugging Face cache, whose weights lie two folders deeper."""
    try:
        below = [entry for entry in await host.list(posixpath.join(folder, "snapshots")) if entry.stat.kind == "folder"]
    except FileMissing:
        return ""
    newest = max(below, key=lambda entry: entry.stat.mtime, default=None)
    return "" if newest is None else f"; its newest snapshot is {posixpath.join(folder, 'snapshots', newest.name)}"


async def short_id(found: Found) -> str:
    """The beginning of the weights' quick id. Raises ConsoleError where they can't be read as weights."""
    remote = RemoteFiles(found.host, found.folder, {name: stat.size for name, stat in found.stats.items()})
    try:
        return (await asyncio.to_thread(lambda: quick_id(read_directories(remote))) or "unknown")[:_SHORT]
    except CheckpointError as error:
        raise ConsoleError(f"{found.host.name}:{found.path}: {error}") from error
