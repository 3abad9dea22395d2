"""Bring a checkpoint to the evaluation host."""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_tui.checkpoints.needed import evaluation_files
from dflash_tui.console import events as happened
from dflash_tui.console.errors import TROUBLE, ConsoleError
from dflash_tui.hosts.base import Host
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.transfer.errors import DestinationTaken
from dflash_tui.transfer.plan import TransferPlan, make_plan
from dflash_tui.transfer.relay import Moved, move
from dflash_tui.watch.saved import CheckpointLister
from dflash_tui.watch.training import Snapshot, read_once

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

SIDECARS = ("config.json",)  # what a raw checkpoint can't tell may lie beside it
COPIES = 20


@dataclass(frozen=True)
class Fetched:
    """Where the checkpoint lies on the evaluation host. `names` are relative to `folder`; `bytes` as moved now."""

    checkpoint: SavedCheckpoint
    host: str
    folder: str
    names: tuple[str, ...]
    bytes: int
    sha256: str
    seconds: float
    already_there: bool


@dataclass(frozen=True)
class Load:
    """What moves: `names` below `folder` of `source`, `size` bytes in all; `step` of the training, None for others."""

    source: Host
    folder: str
    names: tuple[str, ...]
    size: int
    step: int | None = None


async def snapshot_of(console: Console) -> Snapshot:
    """The training as it is now: log tail, checkpoints, facts, the host's clock."""
    training, host = console.config.training, console.training_host
    if console.lister is None:
        console.lister = CheckpointLister(host, training.checkpoints)
    return await read_once(host, training.log, training.checkpoints, training.arguments, lister=console.lister)


def listed(snapshot: Snapshot) -> tuple[SavedCheckpoint, ...]:
    """The checkpoints, newest last. Raises ConsoleError when the folder could not be looked into."""
    if snapshot.checkpoints_problem:
        raise ConsoleError(f"the checkpoints can't be listed: {snapshot.checkpoints_problem}")
    return snapshot.checkpoints


def newest(snapshot: Snapshot, step: int | None = None) -> SavedCheckpoint:
    """The newest complete checkpoint, or the one of `step`. Raises ConsoleError saying what there is."""
    found = listed(snapshot)
    complete = [item for item in found if item.completeness == "complete"]
    chosen = [item for item in complete if step is None or item.step == step]
    if chosen:
        return chosen[-1]
    if step is not None:
        known = ", ".join(_label(item) for item in complete) or "none"
        there = next((item for item in reversed(found) if item.step == step), None)
        if there is not None:
            raise ConsoleError(
                f"{there.host}:{there.path}: step {step} is there but {there.completeness}: {there.reason}; "
                f"complete: {known}"
            )
        raise ConsoleError(f"no checkpoint of step {step}; complete: {known}")
    if found:
        last = found[-1]
        raise ConsoleError(f"no complete checkpoint yet; newest {last.path} is {last.completeness}: {last.reason}")
    raise ConsoleError("no checkpoint has been saved yet: the folder that training.checkpoints names holds none")


def _label(checkpoint: SavedCheckpoint) -> str:
    """Its step, or the folder's name where it has none."""
    return posixpath.basename(checkpoint.folder.rstrip("/")) if checkpoint.step is None else str(checkpoint.step)


async def fetch(console: Console, *, step: int | None = None, job: str = "") -> Fetched:
    """Move the newest complete checkpoint (or that of `step`) to the evaluation host. Raises TROUBLE."""
    snapshot = await snapshot_of(console)
    return await bring(console, newest(snapshot, step), job or console.new_job())


def wanted_folder(console: Console, checkpoint: SavedCheckpoint) -> str:
    """Where a checkpoint will lie on the evaluation host."""
    step, folder = checkpoint.step, checkpoint.folder.rstrip("/")
    label = posixpath.basename(folder) if step is None else f"step_{step}"
    return posixpath.join(console.evaluation.root, "checkpoints", console.config.training.name, label)


async def bring(console: Console, checkpoint: SavedCheckpoint, job: str) -> Fetched:
    """Move what an evaluation reads of one checkpoint, after the transfers before it; emits the transfer's events."""
    async with console.wire:
        return await _bring(console, checkpoint, job)


async def _bring(console: Console, checkpoint: SavedCheckpoint, job: str) -> Fetched:
    source = console.training_host
    names = evaluation_files(await with_sidecars(source, checkpoint.folder, checkpoint.files))
    load = Load(source, checkpoint.folder, names, checkpoint.size, checkpoint.step)
    folder, moved = await _carry(console, job, load, wanted_folder(console, checkpoint))
    return Fetched(
        checkpoint=checkpoint,
        host=console.evaluation_host.name,
        folder=folder,
        names=tuple(names),
        bytes=moved.bytes,
        sha256=moved.sha256.get(names[0], ""),
        seconds=moved.seconds,
        already_there=moved.already_there,
    )


async def carry(console: Console, job: str, load: Load, wanted: str) -> tuple[str, Moved]:
    """Move files to the evaluation host, after the transfers before them: the folder that they lie in there (`wanted`,
    or one beside it where that has others of their names), and what crossed. Emits the transfer's events."""
    async with console.wire:
        return await _carry(console, job, load, wanted)


async def _carry(console: Console, job: str, load: Load, wanted: str) -> tuple[str, Moved]:
    source, destination, names = load.source, console.evaluation_host, load.names
    route = (source.name, "here", destination.name)
    console.emit(happened.TransferStarted(job, load.step, posixpath.basename(wanted), route, load.size))
    try:
        plan = await _plan(source, load.folder, names, destination, wanted)
        moved = await move(
            plan, source, destination, lambda progress: console.emit(happened.TransferAdvanced(job, progress))
        )
    except TROUBLE as error:
        console.emit(happened.TransferEnded(job, error=str(error)))
        raise
    except asyncio.CancelledError:
        console.emit(happened.TransferEnded(job, error="stopped; what arrived is kept and continued next time"))
        raise
    console.emit(
        happened.TransferEnded(
            job,
            path=posixpath.join(plan.destination_folder, names[0]),
            sha256=moved.sha256.get(names[0], ""),
            seconds=moved.seconds,
            already_there=moved.already_there,
            bytes=moved.bytes,
            how=moved.how.get(names[0], ""),
        )
    )
    return plan.destination_folder, moved


async def _plan(source: Host, folder: str, names: tuple[str, ...], destination: Host, wanted: str) -> TransferPlan:
    """A step number that came again with other bytes (a restarted run) gets a folder of its own."""
    for copy in range(1, COPIES):
        try:
            return await make_plan(source, folder, names, destination, wanted if copy == 1 else f"{wanted}-{copy}")
        except DestinationTaken:
            continue
    raise ConsoleError(f"{destination.name}:{wanted}: {COPIES} other checkpoints have that name; move some away")


async def with_sidecars(host: Host, folder: str, files: tuple[str, ...]) -> tuple[str, ...]:
    """The checkpoint's files and those small ones beside them that say what weights can't."""
    beside = {entry.name for entry in await host.list(folder) if entry.stat.kind == "file"}
    return (*files, *(name for name in SIDECARS if name in beside and name not in files))
