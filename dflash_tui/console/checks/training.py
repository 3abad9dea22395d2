"""Whether the training can be watched: its log, its checkpoints, its arguments, its GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from dflash_tui.checkpoints.listing import Listed, candidates
from dflash_tui.console.acts import fetch
from dflash_tui.console.answers import CheckItem
from dflash_tui.console.checks.items import Group, Items, bounded
from dflash_tui.console.checks.paths import other_kind, where
from dflash_tui.console.console import Console
from dflash_tui.console.quantities import ago, counted, megabytes
from dflash_tui.hosts.base import Entry, FileMissing, HostError, HostUnreachable
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.facts import Fact
from dflash_tui.watch.follow import TAIL
from dflash_tui.watch.lines import LineSplitter
from dflash_tui.watch.machine import read_machine
from dflash_tui.watch.parsers import bars, mappings
from dflash_tui.watch.prefixes import bare
from dflash_tui.watch.progress import Progress, line_age
from dflash_tui.watch.training import Snapshot

GROUP = Group("training")
SNAPSHOT_SECONDS = 120.0
ENOUGH_LINES = 20  # of a log in which a training that has begun would have said a step
NAMES = 3  # shown of many
NAMED = "step_N, checkpoint-N, global_stepN or epoch folders, or *.pt and *.safetensors files"


@dataclass(frozen=True)
class Training:
    """What was found. `newest` is the newest complete checkpoint, None where there is none or none could be seen;
    `facts` what the training says of itself."""

    items: Items
    newest: SavedCheckpoint | None = None
    facts: tuple[Fact, ...] = ()


async def look(console: Console) -> Training:
    """Look at the training's files and machine. Its host was reached."""
    training, host = console.config.training, console.training_host
    log = await bounded(GROUP, "log", lambda: _log_there(console))
    try:
        async with asyncio.timeout(SNAPSHOT_SECONDS):
            snapshot, lines = await fetch.snapshot_of(console, fetch.SOON), await _lines(console)
    except HostError as error:
        return Training([*log, GROUP.fail("checkpoints", str(error))])
    except TimeoutError:
        sentence = f"{host.name} did not show the log's end and {training.checkpoints} within {SNAPSHOT_SECONDS:.0f} s"
        return Training([*log, GROUP.fail("checkpoints", f"{sentence}; its disk may be overloaded")])
    if not log:
        log = [_log(snapshot, host.name, training.log, lines, console.clock())]
    checkpoints = await bounded(GROUP, "checkpoints", lambda: _checkpoints(console, snapshot))
    arguments = await bounded(GROUP, "arguments", lambda: _arguments(console, snapshot))
    gpus = await bounded(GROUP, "gpus", lambda: _gpus(console))
    complete = [item for item in snapshot.checkpoints if item.completeness == "complete"]
    return Training([*log, *checkpoints, *arguments, *gpus], complete[-1] if complete else None, snapshot.facts)


async def _log_there(console: Console) -> Items:
    """What is wrong with the path itself; nothing when it is a file that can be read."""
    path, host = console.config.training.log, console.training_host
    try:
        found = await host.stat(path)
    except FileMissing:
        return [GROUP.fail("log", await where(host, path, "the trainer's log (training.log)"))]
    if found.kind != "file":
        return [GROUP.fail("log", other_kind(host, path, found.kind, "the trainer's log (training.log)"))]
    try:
        await host.read(path, 0, min(1, found.size))
    except HostUnreachable:
        raise
    except HostError as error:
        return [GROUP.fail("log", f"{error}; expected a log that this user may read: let its owner run chmod a+r")]
    return []


async def _lines(console: Console) -> Sequence[str]:
    path, host = console.config.training.log, console.training_host
    try:
        size = (await host.stat(path)).size
        begin = max(0, size - TAIL)
        data = await host.read(path, begin, size - begin)
    except HostError:
        return ()
    return [line.text for line in LineSplitter().feed(data) if line.text.strip()]


def _log(snapshot: Snapshot, host: str, path: str, lines: Sequence[str], now: float) -> CheckItem:
    progress = snapshot.progress
    if progress is None:
        return GROUP.fail("log", snapshot.log_problem)
    age = line_age(progress, now)
    written = f", written {ago(age)}" if age is not None else ""
    if progress.step is not None:
        total = f" of {progress.total:,}" if progress.total else ""
        return GROUP.ok("log", f"{host}:{path}: step {progress.step:,}{total}, read as {_dialect(progress)}{written}")
    if not lines:
        return GROUP.warn("log", f"{host}:{path} is empty so far{written}")
    if read := _read(progress):
        sentence = f"{host}:{path}: {read} are read{written}, but no step is recognised, as in `{lines[-1][:100]}`"
        unknown = "ETA, speed, curve and how far a checkpoint is behind stay unknown"
        return GROUP.warn("log", f"{sentence}; {unknown}: let the trainer print its step, too")
    sentence = f"no step is recognised in the last {counted(len(lines), 'line')} of {host}:{path}{written}"
    if len(lines) < ENOUGH_LINES:
        return GROUP.warn("log", f"{sentence}; a training that has only begun says one soon")
    return GROUP.fail(
        "log",
        f"{sentence}; found `{lines[-1][:100]}`, expected lines such as `step 1200/20000 loss 2.01`, a dict, JSON or a "
        "progress bar: set training.log to the file that the trainer prints them to",
    )


def _read(progress: Progress) -> str:
    """What a log tells that tells no step; "" when it is nothing of a training."""
    told = {
        "epoch": progress.epoch is not None,
        "loss": progress.finite_loss is not None or progress.nan,
        "learning rate": progress.lr is not None,
    }
    if not told["loss"]:
        return ""
    *first, last = [name for name, is_told in told.items() if is_told]
    return f"{', '.join(first)} and {last}" if first else last


def _dialect(progress: Progress) -> str:
    """How the line with the newest step is read."""
    text = bare(progress.last_step_line.text) if progress.last_step_line else ""
    if any(not isinstance(piece, str) for piece in bars.split(text)):
        return "a progress bar"
    return "a dict or JSON" if mappings.read(text) is not None else "names and values"


async def _checkpoints(console: Console, snapshot: Snapshot) -> Items:
    path, host = console.config.training.checkpoints, console.training_host
    if snapshot.checkpoints_problem:
        try:
            found = await host.stat(path)
        except FileMissing:
            sentence = await where(host, path, "the folder that checkpoints are saved in (training.checkpoints)")
            return [GROUP.fail("checkpoints", sentence)]
        if found.kind != "folder":
            sentence = other_kind(host, path, found.kind, "the folder of training.checkpoints")
            return [GROUP.fail("checkpoints", sentence)]
        return [GROUP.fail("checkpoints", snapshot.checkpoints_problem)]
    entries = [entry for entry in await host.list(path) if not entry.name.startswith(".")]
    known = snapshot.checkpoints
    complete = [item for item in known if item.completeness == "complete"]
    items = [_newest(known, complete, entries, f"{host.name}:{path}")]
    partial = [item for item in known if item.completeness != "complete"]
    if partial and (not complete or known.index(partial[-1]) > known.index(complete[-1])):
        last = partial[-1]
        instead = f"step {complete[-1].step} is used until it is whole" if complete else "nothing else is complete yet"
        sentence = f"{host.name}:{last.path} is {last.completeness}: {last.reason}; {instead}"
        items.append(GROUP.warn("newest checkpoint", sentence))
    strange = [entry.name for entry in entries if entry.stat.kind == "folder" and not _understood(path, entry, known)]
    if strange and (complete or partial):
        more = f" and {len(strange) - NAMES} more" if len(strange) > NAMES else ""
        sentence = f"not understood as checkpoints in {host.name}:{path}: {', '.join(strange[:NAMES])}{more}"
        items.append(GROUP.ok("other names", sentence))
    return items


def _newest(
    known: Sequence[SavedCheckpoint], complete: Sequence[SavedCheckpoint], entries: Sequence[Entry], place: str
) -> CheckItem:
    if complete:
        last = complete[-1]
        step = f"step {last.step:,}" if last.step is not None else "no step in its name"
        return GROUP.ok(
            "checkpoints", f"{place}: {len(complete)} complete, newest {last.path} ({step}, {megabytes(last.size)})"
        )
    if known:
        return GROUP.warn("checkpoints", f"{place}: none is complete yet; eval and fetch wait for the first")
    if not entries:
        return GROUP.warn("checkpoints", f"{place} is empty; eval and fetch wait for the first checkpoint")
    names = ", ".join(entry.name for entry in entries[:NAMES])
    return GROUP.fail("checkpoints", f"{place} holds no checkpoint; found {names}, expected {NAMED}")


def _understood(root: str, entry: Entry, known: Sequence[SavedCheckpoint]) -> bool:
    if any(item.folder.rstrip("/").rpartition("/")[2] == entry.name for item in known):
        return True
    listed = Listed(entry.name, entry.stat.kind, entry.target, entry.stat.mtime)
    return bool(candidates(root, [listed], lambda _: []))


async def _arguments(console: Console, snapshot: Snapshot) -> Items:
    path, host = console.config.training.arguments, console.training_host
    if not path:
        sentence = (
            "training.arguments is not set; name the trainer's arguments (JSON), else only its log can tell that "
        )
        return [GROUP.ok("arguments", f"{sentence}it was trained at another block size")]
    problem = snapshot.arguments.problem if snapshot.arguments is not None else ""
    if problem:
        try:
            await host.stat(path)
        except FileMissing:
            sentence = await where(host, path, "the trainer's arguments as JSON (training.arguments)")
            return [GROUP.fail("arguments", sentence)]
        return [GROUP.fail("arguments", f"{host.name}:{problem.removeprefix(f'{host.name}: ')}")]
    sizes = [fact for fact in snapshot.facts if fact.kind == "train.block_size" and fact.source.path == path]
    if not sizes:
        sentence = f"{host.name}:{path} names no block size; expected a key such as block_size"
        return [GROUP.warn("arguments", f"{sentence}, else the training's own stays unknown")]
    return [GROUP.ok("arguments", f"{host.name}:{path}: block size {sizes[0].value} ({sizes[0].source.where})")]


async def _gpus(console: Console) -> Items:
    machine = await read_machine(console.training_host, console.config.training.checkpoints)
    free = f"; {megabytes(machine.free)} free where checkpoints go" if machine.free is not None else ""
    if not machine.gpu:
        return [GROUP.warn("gpus", f"{machine.gpus}; the screen shows no GPUs then{free}")]
    return [GROUP.ok("gpus", f"{machine.gpus}{free}")]
