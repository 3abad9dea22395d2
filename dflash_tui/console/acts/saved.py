"""The training's checkpoints with what is worth knowing before one is moved: the size of their weights, their hash."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from dflash_tui.checkpoints.layouts import holds_weights
from dflash_tui.console import events as happened
from dflash_tui.console.acts.fetch import SOON, listed, snapshot_of
from dflash_tui.console.answers import ListedCheckpoint
from dflash_tui.hosts.base import FileMissing, HostError, Stat
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.record import Recorded, read_records

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

_AT_ONCE = 4


async def checkpoints(console: Console) -> tuple[ListedCheckpoint, ...]:
    """Every checkpoint of the training, newest last. What only a second look decides gets one a second later. Raises
    ConsoleError where they can't be listed, HostError."""
    snapshot = await snapshot_of(console, replace(SOON, every=True))
    found, lister = listed(snapshot), console.lister
    if lister is None:
        return ()
    if lister.unseen:
        seen = len(found) - lister.unseen
        sentence = f"{len(found):,} checkpoints are there; {seen:,} of them, the newest, were looked into"
        console.emit(happened.Noticed("info", sentence))
    copies = await _copies(console) if found else {}
    gate = asyncio.Semaphore(_AT_ONCE)
    now = console.clock() + snapshot.host_clock.ahead

    async def one(item: SavedCheckpoint) -> ListedCheckpoint:
        size, problem = None, ""
        if item.completeness == "complete":
            async with gate:
                size, problem = await lister.weights_size(item)
        return ListedCheckpoint(
            **{field.name: getattr(item, field.name) for field in fields(item)},
            age=now - item.mtime,
            weights_size=size,
            weights_problem=problem,
            sha256=_known(item, lister.stats(item), copies),
        )

    return tuple(await asyncio.gather(*(one(item) for item in found)))


async def _copies(console: Console) -> dict[str, Recorded]:
    """What the evaluation host's records say of whole files that came from the training's host, by their path there."""
    if console.config.evaluation is None:
        return {}
    copies: dict[str, Recorded] = {}
    try:
        host = console.evaluation_host
        folder = posixpath.join(console.evaluation.root, "checkpoints", console.config.training.name)
        for entry in await host.list(folder):
            if entry.stat.kind == "folder" and not entry.name.startswith("."):
                records = await read_records(host, posixpath.join(folder, entry.name))
                copies.update({item.path: item for item in records.values() if _is_whole(item, console)})
    except FileMissing:
        return {}  # nothing was fetched yet
    except (HostError, TransferError) as error:
        console.emit(happened.Noticed("warn", f"hashes of fetched copies are not known: {error}"))
    return copies


def _is_whole(item: Recorded, console: Console) -> bool:
    same_size = item.source is not None and item.here.size == item.source.size
    return same_size and item.host == console.training_host.name


def _known(item: SavedCheckpoint, stats: Mapping[str, Stat], copies: Mapping[str, Recorded]) -> str | None:
    """The hash of a copy of the one file with the weights, as long as that still is the file that was copied."""
    weights = [name for name in stats if holds_weights(name)]
    copy = copies.get(posixpath.join(item.folder, weights[0])) if len(weights) == 1 else None
    if copy is None or copy.source is None:
        return None
    stat, source = stats[weights[0]], copy.source
    same = source.size == stat.size and int(source.mtime) == int(stat.mtime) and source.inode in (0, stat.inode)
    return copy.sha256 if same else None
