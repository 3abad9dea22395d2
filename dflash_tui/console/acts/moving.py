"""A transfer from the question what moves to the end that is told: one at a time into a folder, newest first."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts.routing import chosen, wanted_route
from dflash_tui.console.acts.slimming import Cargo, Mode, lies_whole, load_up
from dflash_tui.console.errors import TROUBLE, AlreadyMoving, ConsoleError
from dflash_tui.console.quantities import megabytes
from dflash_tui.hosts.base import Host, HostError
from dflash_tui.transfer.choice import Wanted
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import DestinationTaken, SourceChanged
from dflash_tui.transfer.move import Moved, move
from dflash_tui.transfer.plan import TransferPlan, kept_of, make_plan
from dflash_tui.transfer.progress import TransferProgress

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

FULL = "-full"
"""What the name of a full copy's folder ends with: a slim one's is without."""

COPIES = 20
KEPT_SECONDS = 3.0
READINGS = 3
"""Times that a checkpoint is read which is written again while it is looked at."""


@dataclass(frozen=True)
class Load:
    """What is asked to move: the checkpoint of `names` below `folder` of `source`, `size` bytes in all, as `mode` says;
    `step` of the training, None for others; `route` None: as the config says. `once`: it is not asked to move where
    another job of this console moves it already."""

    source: Host
    folder: str
    names: tuple[str, ...]
    size: int
    step: int | None = None
    mode: Mode = "slim"
    route: Wanted | None = None
    once: bool = False


@dataclass(frozen=True)
class Brought:
    """What lies at the destination now, or would: `moved` is None where nothing was asked to move. `route` is what
    carried last."""

    cargo: Cargo
    plan: TransferPlan
    moved: Moved | None
    route: str = ""

    @property
    def folder(self) -> str:
        """Where it lies."""
        return self.plan.destination_folder

    @property
    def sha256(self) -> str:
        """Of the weights' file, or the index of several."""
        name = self.cargo.names[0]
        if self.moved is not None:
            return self.moved.sha256.get(name, "")
        return next((file.present for file in self.plan.files if file.name == name), "")


async def carry(
    console: Console, job: str, load: Load, wanted: str, destination: Host | None = None, *, dry_run: bool = False
) -> Brought:
    """Move a checkpoint to `wanted` of a host (the evaluation host), or to a folder beside it where that has others of
    their names. Emits the transfer's events. With `dry_run` it is planned only. Raises TROUBLE."""
    destination = destination or console.evaluation_host
    name = posixpath.basename(wanted)
    if load.once and (lock := console.folders.get((destination.name, wanted))) is not None and lock.locked():
        raise AlreadyMoving(f"{name} is already moving to {destination.name}")
    under_way: list[TransferPlan] = []
    straight = wanted_route(console, load.route) == "direct" or "local" in (load.source.name, destination.name)
    between = () if straight else ("here",)  # `local` is this machine itself
    console.emit(
        happened.TransferStarted(job, load.step, name, (load.source.name, *between, destination.name), load.size)
    )
    try:
        async with _turn(console, destination, wanted, load.step):
            return await _carry(console, job, load, wanted, destination, dry_run, under_way)
    except TROUBLE as error:
        console.emit(happened.TransferEnded(job, error=str(error)))
        raise
    except asyncio.CancelledError:
        kept, said = await _kept(under_way, destination)
        console.emit(happened.TransferEnded(job, error=f"stopped{said}", stopped=True, kept=kept))
        raise


async def _kept(under_way: list[TransferPlan], destination: Host) -> tuple[int, str]:
    """How many bytes a later transfer would go on from after this one was stopped, and that in words."""
    if not under_way:
        return 0, " before anything moved"
    try:
        async with asyncio.timeout(KEPT_SECONDS):
            kept = await kept_of(under_way[-1], destination)
    except (HostError, TimeoutError):
        return 0, f"; {destination.name} does not answer how much of it is kept"
    if not kept:
        return 0, f"; nothing of it is kept, because only whole files and pieces of {CHUNK >> 20} MiB are"
    return kept, f"; {megabytes(kept)} that arrived are kept and continued next time"


@asynccontextmanager
async def _turn(console: Console, destination: Host, wanted: str, step: int | None) -> AsyncIterator[None]:
    """Two of one checkpoint would take each other's unfinished piece; of others a few run at a time."""
    lock = console.folders.setdefault((destination.name, wanted), asyncio.Lock())
    async with lock, console.pace.admitted(float(step or 0)):
        yield


async def _carry(
    console: Console,
    job: str,
    load: Load,
    wanted: str,
    destination: Host,
    dry_run: bool,
    under_way: list[TransferPlan],
) -> Brought:
    cargo, plan = await _read_and_plan(console, load, destination, wanted)
    present = sum(file.size for file in plan.files if file.present)
    console.emit(
        happened.TransferPlanned(
            job, plan.total, cargo.original, cargo.kept, cargo.left, cargo.why, plan.resumable, present
        )
    )
    for note in cargo.notes:
        console.emit(happened.Noticed("info", note))
    if plan.same_host and dry_run:
        return Brought(cargo, plan, None, "same host")
    last = ""

    def tell(progress: TransferProgress) -> None:
        nonlocal last
        last = progress.route or last
        console.emit(happened.TransferAdvanced(job, progress))

    async with chosen(console, load.source, destination, plan.destination_folder, load.route) as chooser:
        if dry_run:
            engine, _ = await chooser.choose(plan.to_move)
            return Brought(cargo, plan, None, engine.route)
        if wanted_route(console, load.route) == "direct" and plan.to_move and not plan.same_host:
            await chooser.choose(plan.to_move)  # fails before anything is said to move
        under_way.append(plan)
        moved = await move(plan, load.source, destination, tell, chooser=chooser, pace=console.pace.lane())
    if moved.notice:
        console.emit(happened.Noticed("warn", moved.notice))
    name = cargo.names[0]
    console.emit(
        happened.TransferEnded(
            job,
            path=posixpath.join(plan.destination_folder, name),
            sha256=moved.sha256.get(name, ""),
            seconds=moved.seconds,
            already_there=moved.already_there,
            bytes=moved.bytes,
            how=moved.how.get(name, ""),
        )
    )
    return Brought(cargo, plan, moved, last or ("same host" if plan.same_host else ""))


async def _read_and_plan(console: Console, load: Load, destination: Host, wanted: str) -> tuple[Cargo, TransferPlan]:
    """What to bring, and how. Raises SourceChanged when it was written again in all READINGS looks."""
    for reading in range(1, READINGS + 1):
        try:
            for folder in (wanted, f"{wanted}{FULL}") if load.mode == "slim" else ():
                if await lies_whole(load.source, load.folder, load.names, destination, folder):
                    cargo = await _loaded(console, load, destination, whole=folder)
                    plan = await _plan(load, cargo, destination, folder)
                    # A record outlives what was removed by hand.
                    if all(file.present for file in plan.files if file.name in load.names):
                        return cargo, plan
            cargo = await _loaded(console, load, destination)
            return cargo, await _plan(load, cargo, destination, wanted)
        except SourceChanged as error:
            if reading == READINGS:
                raise
            console.emit(happened.Noticed("info", f"{error.args[0].removesuffix('; plan again')}; it is read again"))
    raise AssertionError("the last reading returns or raises")


async def _loaded(console: Console, load: Load, destination: Host, *, whole: str = "") -> Cargo:
    return await load_up(console, load.source, load.folder, load.names, load.mode, destination, whole=whole)


async def _plan(load: Load, cargo: Cargo, destination: Host, wanted: str) -> TransferPlan:
    """A step number that came again with other bytes (a restarted run) gets a folder of its own."""
    for copy in range(1, COPIES):
        folder = wanted if copy == 1 else f"{wanted}-{copy}"
        try:
            return await make_plan(load.source, load.folder, cargo.outputs, destination, folder, read=cargo.read)
        except DestinationTaken:
            continue
    raise ConsoleError(f"{destination.name}:{wanted}: {COPIES} other checkpoints have that name; move some away")
