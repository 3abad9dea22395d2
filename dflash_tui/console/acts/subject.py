"""What is evaluated: a checkpoint of the watched training, or a drafter of none, wherever it lies."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts import fetch
from dflash_tui.console.acts.found import drafter_name, find, placed, short_id
from dflash_tui.console.acts.moving import Brought, Load, carry
from dflash_tui.console.acts.slimming import Mode
from dflash_tui.console.acts.survey import Asked, Weights, refuse_early, trained
from dflash_tui.console.checks.checkpoint import drafter
from dflash_tui.evals.errors import EvaluationRefused
from dflash_tui.evals.plan import Origin
from dflash_tui.hosts.base import Host
from dflash_tui.records.facts import Fact, Source

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


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


async def of_training(console: Console, step: int | None, job: str, asked: Asked | None) -> Subject:
    """The newest checkpoint (or that of `step`), brought to the evaluation host, with the training's facts as of now.
    What would make the evaluation that is `asked` impossible is found out before gigabytes move; None: it is left to
    others to judge, whose script may read what ours does not, so that they get the files as they are. Raises TROUBLE.
    """
    snapshot = await fetch.snapshot_of(console, fetch.until_settled(console, step))
    checkpoint = fetch.newest(snapshot, step)
    for problem in snapshot.problems:  # the evaluation goes on, but a caveat may lack its evidence
        console.emit(happened.Noticed("warn", f"not known of the training: {problem}"))
    if asked is not None and await refuse_early(console, fetch.wanted_folder(console, checkpoint), asked):
        items, _ = await drafter(console, checkpoint)
        if failed := [item.sentence for item in items if item.state == "fail"]:
            raise EvaluationRefused("; ".join(failed))
    fetched = await fetch.bring(console, checkpoint, job, "full" if asked is None else None)
    origin = Origin(
        host=checkpoint.host,
        path=checkpoint.path,
        training=console.config.training.name,
        step=checkpoint.step,
        size=checkpoint.size,
        mtime=checkpoint.mtime,
        inode=checkpoint.inode,
        sha256=fetched.sha256 if len(fetched.names) == 1 else None,
    )
    weights = trained(console, opened(fetched.folder, fetched.names))
    facts = (*snapshot.facts, _copied(console, fetched.brought, origin))
    return Subject(origin, fetched.folder, fetched.names, weights, facts)


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
    found = await find(host, path.rstrip("/") or "/")
    name = name or drafter_name(found.path)
    newest = max(stat.mtime for stat in found.stats.values())
    origin = Origin(host.name, found.path, "", None, found.size, newest, found.stats[found.names[0]].inode)
    if host.name == console.evaluation_host.name:
        return Subject(origin, found.folder, found.names, Weights(found.path, config, foreign=True), name=name)
    wanted = posixpath.join(
        console.evaluation.root, "checkpoints", "models", f"{drafter_name(found.path)}-{await short_id(found)}"
    )
    await refuse_early(console, wanted, asked)
    mode: Mode = "full" if console.config.transfer.mode == "full" else "slim"
    brought = await carry(console, job, Load(host, found.folder, found.names, found.size, mode=mode), wanted)
    folder, names = brought.folder, brought.cargo.names
    weights_there = Weights(opened(folder, names), config, foreign=True)
    return Subject(origin, folder, names, weights_there, (_copied(console, brought, origin),), name)


def _copied(console: Console, brought: Brought, origin: Origin) -> Fact:
    """What the copy is of the original, for the manifest."""
    at = datetime.fromtimestamp(console.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return fetch.copy_fact(brought, Source(origin.host, origin.path), at)


def opened(folder: str, names: Sequence[str]) -> str:
    """What the harness opens: the single weights file, or the folder of a format that has several files."""
    return posixpath.join(folder, names[0]) if len(names) == 1 else folder
