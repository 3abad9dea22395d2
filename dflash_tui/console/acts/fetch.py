"""Bring a checkpoint to the evaluation host, or to another one."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts.found import SIDECARS, drafter_name, find, placed, short_id
from dflash_tui.console.acts.moving import FULL, Brought, Load, carry
from dflash_tui.console.acts.slimming import Mode, with_sidecars
from dflash_tui.console.errors import ConsoleError
from dflash_tui.hosts.base import Host
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.facts import Fact, Source
from dflash_tui.transfer.choice import Wanted
from dflash_tui.watch.saved import CheckpointLister, Wait
from dflash_tui.watch.training import Snapshot, read_once

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

LATEST = "latest"
SOON = Wait(patience=2.0)
"""For who only looks: a second look where it decides at once."""


@dataclass(frozen=True)
class Fetched:
    """Where a checkpoint lies on a host, and how it came there. `path` is what it is at its `source`; `names` are the
    files of the copy, relative to its folder, the weights first. `step` is None where it is of no watched training."""

    source: str
    path: str
    host: str
    names: tuple[str, ...]
    brought: Brought
    step: int | None = None

    @property
    def folder(self) -> str:
        """Where it lies."""
        return self.brought.folder

    @property
    def sha256(self) -> str:
        """Of the weights' file as it lies there."""
        return self.brought.sha256

    @property
    def already_there(self) -> bool:
        """Whether nothing had to move."""
        moved = self.brought.moved
        return moved.already_there if moved is not None else not self.brought.plan.to_move


async def snapshot_of(console: Console, wait: Wait | None = None) -> Snapshot:
    """The training as it is now: log tail, checkpoints, facts, the host's clock. With `wait`, checkpoints of which only
    a second look tells whether they are whole get one."""
    training, host = console.config.training, console.training_host
    if console.lister is None:
        console.lister = CheckpointLister(host, training.checkpoints)
    return await read_once(
        host, training.log, training.checkpoints, training.arguments, lister=console.lister, wait=wait
    )


def until_settled(console: Console, step: int | None = None, path: str = "") -> Wait:
    """The wait for what is to be taken: a checkpoint that may still be written is looked at twice, and that is said."""

    def told(path: str, seconds: float) -> None:
        where = f"{console.training_host.name}:{path}"
        sentence = f"{where}: nothing tells yet whether it is written to its end; looked at again for {seconds:.0f} s"
        console.emit(happened.Noticed("info", sentence))

    return Wait(step, path, told=told)


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


async def fetch(
    console: Console,
    *,
    what: str = LATEST,
    to: str = "",
    mode: Mode | None = None,
    route: Wanted | None = None,
    job: str = "",
    dry_run: bool = False,
) -> Fetched:
    """Move a checkpoint to the evaluation host, or to a folder in `to` (HOST:DIR). `what` is the newest complete one
    ("latest"), a step, or a path: on the training's host, or HOST:PATH. With `dry_run` nothing moves. Raises TROUBLE.
    """
    destination, folder = placed(console, to, "--to") if to else (console.evaluation_host, "")
    job = job or console.new_job()
    if "/" not in what:
        step = None if what == LATEST else _step(what)
        checkpoint = newest(await snapshot_of(console, until_settled(console, step)), step)
    else:
        host, path = placed(console, what, "checkpoint", console.training_host)
        path = path.rstrip("/") or "/"
        listed_there = await _of_the_training(console, host, path)
        if listed_there is None:
            return await _found(console, host, path, destination, folder, mode, route, job, dry_run)
        checkpoint = listed_there
    wanted = posixpath.join(folder, _folder_name(checkpoint, _mode(console, mode))) if to else ""
    return await bring(
        console, checkpoint, job, mode, route=route, destination=destination, wanted=wanted, dry_run=dry_run, once=True
    )


def _step(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise ConsoleError(f"{text[:40]!r}: found no step and no path; expected latest, a step such as 4000, or a path")
    return int(text)


async def _of_the_training(console: Console, host: Host, path: str) -> SavedCheckpoint | None:
    """The checkpoint of the watched training that lies at a path. Raises ConsoleError for one that is not whole."""
    if host.name != console.training_host.name or not path.startswith(console.config.training.checkpoints):
        return None
    found = listed(await snapshot_of(console, until_settled(console, path=path)))
    there = next((item for item in found if path in _paths(item)), None)
    if there is not None and there.completeness != "complete":
        raise ConsoleError(f"{there.host}:{there.path}: is {there.completeness}: {there.reason}")
    return there


def _paths(checkpoint: SavedCheckpoint) -> set[str]:
    """What a person may call it by: what is opened, its folder, any of its files."""
    files = {posixpath.join(checkpoint.folder, name) for name in checkpoint.files}
    return {checkpoint.path.rstrip("/"), checkpoint.folder.rstrip("/"), *files}


async def _found(
    console: Console,
    host: Host,
    path: str,
    destination: Host,
    folder: str,
    mode: Mode | None,
    route: Wanted | None,
    job: str,
    dry_run: bool,
) -> Fetched:
    """One that belongs to no watched training."""
    found = await find(host, path)
    name, mode = drafter_name(found.path), _mode(console, mode)
    if not folder:
        folder = posixpath.join(console.evaluation.root, "checkpoints", "models")
        name = f"{name}-{await short_id(found)}"
    wanted = posixpath.join(folder, _called(name, mode))
    load = Load(host, found.folder, (*found.names, *found.others), found.size, None, mode, route, once=True)
    brought = await carry(console, job, load, wanted, destination, dry_run=dry_run)
    return Fetched(host.name, found.path, destination.name, brought.cargo.names, brought)


def wanted_folder(console: Console, checkpoint: SavedCheckpoint, mode: Mode | None = None) -> str:
    """Where a checkpoint will lie on the evaluation host, brought as `mode` says (None: as the config does)."""
    name = _folder_name(checkpoint, _mode(console, mode))
    return posixpath.join(console.evaluation.root, "checkpoints", console.config.training.name, name)


def _folder_name(checkpoint: SavedCheckpoint, mode: Mode) -> str:
    step = checkpoint.step
    return _called(posixpath.basename(checkpoint.folder.rstrip("/")) if step is None else f"step_{step}", mode)


def _called(name: str, mode: Mode) -> str:
    """A full copy lies beside a slim one, never in its place."""
    return f"{name}{FULL}" if mode == "full" else name


def _mode(console: Console, mode: Mode | None) -> Mode:
    return mode or ("full" if console.config.transfer.mode == "full" else "slim")


async def bring(
    console: Console,
    checkpoint: SavedCheckpoint,
    job: str,
    mode: Mode | None = None,
    *,
    route: Wanted | None = None,
    destination: Host | None = None,
    wanted: str = "",
    dry_run: bool = False,
    once: bool = False,
) -> Fetched:
    """Move a checkpoint of the training, to the evaluation host unless another is named, after the transfers before it
    (with `once` AlreadyMoving is raised where one of them is of the same). Emits the transfer's events. `mode` None: as
    the config says. Raises TROUBLE."""
    source, destination = console.training_host, destination or console.evaluation_host
    names = await with_sidecars(source, checkpoint.folder, checkpoint.files, SIDECARS)
    mode = _mode(console, mode)
    load = Load(source, checkpoint.folder, names, checkpoint.size, checkpoint.step, mode, route, once)
    wanted = wanted or wanted_folder(console, checkpoint, mode)
    brought = await carry(console, job, load, wanted, destination, dry_run=dry_run)
    return Fetched(checkpoint.host, checkpoint.path, destination.name, brought.cargo.names, brought, checkpoint.step)


def copy_fact(brought: Brought, source: Source, at: str) -> Fact:
    """What the copy at the evaluation host is of the checkpoint at its source, for the manifest."""
    cargo = brought.cargo
    value = {
        "copy": cargo.copy,
        "folder": brought.folder,
        "bytes": brought.plan.total,
        "original": cargo.original,
        "sha256": brought.sha256,
        "kept": list(cargo.kept),
        "left": dict(cargo.left),
        "route": brought.route,
    }
    return Fact("checkpoint.copy", value, source, at)
