"""Whether runs can be kept under the evaluation root: written, linked, with room. All that is tried is taken away."""

from __future__ import annotations

import contextlib
import posixpath
import secrets
from collections.abc import Sequence

from dflash_tui.console.acts import fetch
from dflash_tui.console.answers import CheckItem
from dflash_tui.console.checks.items import Group, Items
from dflash_tui.console.checks.paths import other_kind
from dflash_tui.console.console import Console
from dflash_tui.console.quantities import megabytes
from dflash_tui.evals.preflight import SPARE_DISK
from dflash_tui.hosts.base import FileMissing, Host, HostError
from dflash_tui.records.checkpoint import SavedCheckpoint

GROUP = Group("evaluation")
INODES = 200  # a run and its checkpoint, generously
WRITTEN = 4096  # bytes: a file without any may still fit on a full disk
FULL = ("No space left", "Disk quota exceeded", "quota")


async def look(console: Console, newest: SavedCheckpoint | None) -> Items:
    """The folder, its filesystem, the space in it, and whether checkpoints/ and runs/ can share a file."""
    host, root = console.evaluation_host, console.evaluation.root
    try:
        found = await host.stat(root)
    except FileMissing:
        place, items = await _parent(host, root)
    else:
        place = root
        if found.kind != "folder":
            return [GROUP.fail("root", other_kind(host, root, found.kind, "a folder (evaluation.root)"))]
        items = []
    if any(item.state == "fail" for item in items):
        return items
    room = await _space(console, place, newest)
    if any(item.state == "fail" for item in room):
        return [*items, *room, *(GROUP.skip(name, f"{host.name}:{root} has no room") for name in ("root", "links"))]
    if not items:
        tried = await _tried(host, root)
        items = tried if any(item.state == "fail" for item in tried) else [*tried, await _linked(host, root)]
    return [*items, *room, *await _filesystem(host, place)]


async def _parent(host: Host, root: str) -> tuple[str, Items]:
    """The nearest folder that is there, and whether the root can be made in it."""
    parent = posixpath.dirname(root.rstrip("/")) or "/"
    while True:
        try:
            await host.stat(parent)
            break
        except FileMissing:
            parent = posixpath.dirname(parent)
    if (await host.run(["test", "-w", parent], check=False, timeout=30)).status == 0:
        return parent, [GROUP.ok("root", f"{host.name}:{root} does not exist yet and can be made in {parent}")]
    sentence = f"{host.name}:{root} does not exist and can't be made: {parent} may not be written by this user"
    return parent, [GROUP.fail("root", f"{sentence}; set evaluation.root to a folder of your own")]


async def _tried(host: Host, root: str) -> Items:
    path = posixpath.join(root, _name())
    try:
        made = await host.run(["mkdir", path], check=False, timeout=30)
        if made.status == 0:
            file = ["dd", f"of={posixpath.join(path, 'tried')}", f"bs={WRITTEN}"]
            made = await host.run(file, stdin=bytes(WRITTEN), check=False, timeout=30)
    finally:
        await _removed(host, ["rm", "-r", "-f", path])
    if made.status == 0:
        return [GROUP.ok("root", f"{host.name}:{root} can be written")]
    said = next((line for line in reversed(made.stderr.splitlines()) if line.strip()), f"status {made.status}")
    reason = said.rpartition(": ")[2].strip() or said
    remedy = "let its owner give this user write permission, or set evaluation.root to a folder of your own"
    if any(words in said for words in FULL):
        remedy = "remove what is not needed there, or set evaluation.root to another disk"
    return [GROUP.fail("root", f"{host.name}:{root} can't be written ({reason}), expected a folder for runs: {remedy}")]


async def _linked(host: Host, root: str) -> CheckItem:
    """A hard link from where checkpoints lie to where runs are, as an evaluation makes it."""
    folders = [await _existing(host, posixpath.join(root, name), root) for name in ("checkpoints", "runs")]
    source, target = (posixpath.join(folder, _name()) for folder in folders)
    try:
        await host.run(["dd", f"of={source}", f"bs={WRITTEN}"], stdin=bytes(1), timeout=30)
        made = await host.run(["ln", source, target], check=False, timeout=30)
    except HostError as error:
        return GROUP.fail("links", f"{error}; expected {folders[0]} to be writable")
    finally:
        await _removed(host, ["rm", "-f", source, target])
    if made.status == 0:
        return GROUP.ok("links", "a run's checkpoint is a hard link and takes no space")
    said = next((line for line in reversed(made.stderr.splitlines()) if line.strip()), "")
    reason = said.rpartition(": ")[2].strip() or f"status {made.status}"
    if "ermission" in reason or "Read-only" in reason:
        return GROUP.fail("links", f"{host.name}:{folders[1]} can't be written ({reason}), expected a folder for runs")
    return GROUP.warn(
        "links",
        f"{host.name}: no hard link from {folders[0]} to {folders[1]} ({reason}); each run copies its checkpoint then, "
        "which takes its size again: keep both on one filesystem",
    )


async def _existing(host: Host, folder: str, otherwise: str) -> str:
    try:
        await host.stat(folder)
    except FileMissing:
        return otherwise
    return folder


async def _space(console: Console, place: str, newest: SavedCheckpoint | None) -> Items:
    host = console.evaluation_host
    free = await host.free_space(place)
    needed, what = SPARE_DISK, "a run's records"
    if newest is not None and await _absent(host, fetch.wanted_folder(console, newest)):
        needed, what = SPARE_DISK + newest.size, f"{posixpath.basename(newest.folder.rstrip('/'))} and a run's records"
    shown = f"{host.name}:{place}: {megabytes(free.bytes)} free"
    if SPARE_DISK <= free.bytes < needed and console.config.transfer.mode == "slim":
        sentence = f"{shown}, and {megabytes(needed)} is what {what} take as they are; a slim copy takes less"
        return [GROUP.warn("space", f"{sentence}: `dflash-tui fetch --dry-run` says how much")]
    if free.bytes < needed:
        remedy = "remove what is not needed there, or set evaluation.root to another disk"
        return [GROUP.fail("space", f"{shown}, {megabytes(needed)} needed for {what}; {remedy}")]
    if free.inodes is not None and free.inodes < INODES:
        remedy = "remove small files there, or set evaluation.root to another disk"
        return [GROUP.fail("space", f"{shown}, but only {free.inodes} inodes, {INODES} needed; {remedy}")]
    return [GROUP.ok("space", f"{shown}, {megabytes(needed)} needed for {what}")]


async def _absent(host: Host, folder: str) -> bool:
    try:
        await host.stat(folder)
    except FileMissing:
        return True
    return False


async def _filesystem(host: Host, place: str) -> Items:
    """How the place is mounted, where that changes something."""
    with contextlib.suppress(HostError):
        told = await host.run(["cat", "/proc/self/mounts"], check=False, timeout=30)
        mount = _mount(told.text.splitlines(), place)
        if mount is not None:
            kind, options = mount
            words = set(options.split(","))
            quota = next((word for word in sorted(words) if "quota" in word and word != "noquota"), "")
            notes = [f"quotas are on ({quota}), see `quota -s` there"] if quota else []
            notes += ["noexec: a script of your own there has to be started by its interpreter"] * ("noexec" in words)
            return [GROUP.ok("filesystem", "; ".join([f"{kind} at {place}", *notes]))]
    return []


def _mount(lines: Sequence[str], place: str) -> tuple[str, str] | None:
    """Kind and options of the filesystem that holds a path, from the lines of /proc/self/mounts (the last of equals
    counts)."""
    best: tuple[int, str, str] | None = None
    for line in lines:
        fields = line.split(" ")
        if len(fields) >= 4:
            point = fields[1].replace("\\040", " ").rstrip("/")
            if (place == point or place.startswith(point + "/")) and (best is None or len(point) >= best[0]):
                best = (len(point), fields[2], fields[3])
    return best[1:] if best else None


async def _removed(host: Host, argv: list[str]) -> None:
    with contextlib.suppress(HostError):  # what failed before is told; what is left has a name that says what it is
        await host.run(argv, check=False, timeout=30)


def _name() -> str:
    return f".dflash-check-{secrets.token_hex(6)}"
