"""What is going to move, from where to where, and whether it can: known before a byte does."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dflash_tui.hosts.base import FileMissing, Host, HostError, Space
from dflash_tui.transfer.destination import refuse_without_a_place
from dflash_tui.transfer.errors import DestinationTaken, NoSpace, TransferError
from dflash_tui.transfer.record import Identity, read_records
from dflash_tui.transfer.verify import sha256

_PART = re.compile(r"\.[0-9a-f]{8}\.part")
_ANY_PART = re.compile(r"\.[0-9a-f]{12}\.[0-9a-f]{8}\.part")
_NAME_ROOM = 120


@dataclass(frozen=True)
class PlannedFile:
    """A file to move. `name` is relative to both folders. `present` is its SHA-256 where the destination has it
    already; `part` the name of an unfinished piece of the same source there, `resumable` that piece's bytes."""

    name: str
    size: int
    mtime: float
    inode: int
    present: str = ""
    part: str = ""
    resumable: int = 0

    @property
    def identity(self) -> Identity:
        """What the source must still be when it is moved."""
        return Identity(self.size, self.mtime, self.inode)


@dataclass(frozen=True)
class TransferPlan:
    """`total` bytes of all files; `free` bytes and inodes at the destination. Hosts go by their names."""

    source: str
    destination: str
    source_folder: str
    destination_folder: str
    files: tuple[PlannedFile, ...]
    total: int
    free: Space

    @property
    def to_move(self) -> int:
        """The bytes of the files that aren't there yet."""
        return sum(file.size for file in self.files if not file.present)

    @property
    def resumable(self) -> int:
        """The bytes that an earlier attempt left, to be continued if they prove to be right."""
        return sum(file.resumable for file in self.files)

    @property
    def same_host(self) -> bool:
        """Whether nothing has to cross a wire."""
        return self.source == self.destination

    def source_path(self, file: PlannedFile) -> str:
        """Where a file is."""
        return posixpath.join(self.source_folder, file.name)

    def final_path(self, file: PlannedFile) -> str:
        """Where a file is going to be."""
        return posixpath.join(self.destination_folder, file.name)

    def part_prefix(self, file: PlannedFile) -> str:
        """The path of this source's unfinished pieces, without their last, random part."""
        folder, name = posixpath.split(self.final_path(file))
        seen = repr((self.source, self.source_path(file), file.size, file.mtime, file.inode))
        return posixpath.join(folder, f".{name[:_NAME_ROOM]}.{hashlib.sha256(seen.encode()).hexdigest()[:12]}")


async def make_plan(
    source: Host, folder: str, names: Sequence[str], destination: Host, destination_folder: str
) -> TransferPlan:
    """Look at both ends. Raises DestinationTaken when another file has a final name, NoSpace, and TransferError when a
    source is missing or a host can't be asked. A file of the same name and hash at the destination needs no move."""
    try:
        return await _make_plan(source, folder, names, destination, destination_folder)
    except HostError as error:
        raise TransferError(f"no transfer is possible now: {error}") from error


async def _make_plan(
    source: Host, folder: str, names: Sequence[str], destination: Host, destination_folder: str
) -> TransferPlan:
    if not names:
        raise TransferError(f"{source.name}:{folder}: no file to move was named")
    files = tuple([await _planned(source, folder, check_name(name)) for name in dict.fromkeys(names)])
    free = await destination.free_space(destination_folder)
    plan = TransferPlan(
        source.name, destination.name, folder, destination_folder, files, sum(file.size for file in files), free
    )
    looked_at = []
    for file in plan.files:
        present = await already_there(plan, file, source, destination)
        looked_at.append(replace(file, present=present) if present else await _with_part(plan, file, destination))
    plan = replace(plan, files=tuple(looked_at))
    if not plan.free.bytes and plan.to_move:
        await refuse_without_a_place(destination, destination_folder)
    check_space(plan)
    return plan


def check_name(name: str) -> str:
    """The name, if it is one below a folder. Raises TransferError."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise TransferError(f"{name!r} is not a name below a folder; expected one such as checkpoint.pt or shards/1.pt")
    return name


def check_space(plan: TransferPlan) -> None:
    """Raise NoSpace when the destination can't hold what is going to move. On one host a link takes no space."""
    where = f"{plan.destination}:{plan.destination_folder}"
    needed = plan.to_move - plan.resumable
    if not plan.same_host and needed > plan.free.bytes:
        raise NoSpace(
            f"{where} has {plan.free.bytes:,} bytes free and {needed:,} are needed, {needed - plan.free.bytes:,} too "
            "few; remove old checkpoints there or name another folder"
        )
    count = sum(not file.present for file in plan.files)
    # One more for the record, and one for the folder.
    if count and plan.free.inodes is not None and plan.free.inodes < count + 2:
        raise NoSpace(f"{where} has {plan.free.inodes} inodes free and {count + 2} are needed; remove files there")


async def _planned(source: Host, folder: str, name: str) -> PlannedFile:
    path = posixpath.join(folder, name)
    try:
        stat = await source.stat(path)
    except FileMissing:
        raise TransferError(f"{source.name}:{path} does not exist; nothing was moved") from None
    if stat.kind != "file":
        raise TransferError(f"{source.name}:{path} is a {stat.kind}; expected a file")
    return PlannedFile(name, stat.size, stat.mtime, stat.inode)


async def already_there(plan: TransferPlan, file: PlannedFile, source: Host, destination: Host) -> str:
    """The SHA-256 of the destination's file if it is the source's, "" if there is none. Raises DestinationTaken when it
    is another one. Hashes both ends unless the folder's record knows the two files."""
    final = plan.final_path(file)
    try:
        stat = await destination.stat(final, follow=False)
    except FileMissing:
        return ""
    taken = f"{destination.name}:{final} already exists"
    if stat.kind != "file":
        raise DestinationTaken(f"{taken} and is a {stat.kind}; move it away or name another folder")
    if stat.size != file.size:
        raise DestinationTaken(
            f"{taken} with {stat.size:,} bytes, not {file.size:,}: another file; move it away or name another folder"
        )
    recorded = (await read_records(destination, plan.destination_folder)).get(file.name)
    if recorded is not None and (recorded.here, recorded.host, recorded.path, recorded.source) == (
        Identity.of(stat), plan.source, plan.source_path(file), file.identity,
    ):  # fmt: skip
        return recorded.sha256
    here, there = (
        await sha256(destination, final, file.size),
        await sha256(source, plan.source_path(file), file.size),
    )
    if here != there:
        raise DestinationTaken(
            f"{taken} with the same size and another SHA-256 ({here[:12]}…, the source's is {there[:12]}…); "
            "move it away or name another folder"
        )
    return here


def is_part_of(entry: str, name: str) -> bool:
    """Whether an entry of a folder is a piece of something that wanted `name` there."""
    stem = f".{name[:_NAME_ROOM]}"
    return entry.startswith(stem) and _ANY_PART.fullmatch(entry, len(stem)) is not None


async def _with_part(plan: TransferPlan, file: PlannedFile, destination: Host) -> PlannedFile:
    """With the largest piece that an earlier attempt at the same source left."""
    if plan.same_host:
        return file
    folder, name = posixpath.split(plan.part_prefix(file))
    try:
        entries = await destination.list(folder)
    except FileMissing:
        return file
    pieces = [
        (entry.stat.size, entry.name)
        for entry in entries
        if entry.name.startswith(name) and _PART.fullmatch(entry.name, len(name)) and 0 < entry.stat.size <= file.size
    ]
    if not pieces:
        return file
    size, part = max(pieces)
    return replace(file, part=posixpath.join(folder, part), resumable=size)
