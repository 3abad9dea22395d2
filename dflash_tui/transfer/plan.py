"""What is going to move, from where to where, and whether it can: known before a byte does."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dflash_tui.checkpoints.segments import Late, Output, Range
from dflash_tui.hosts.base import Host, HostError, Space, Stat
from dflash_tui.hosts.running import together
from dflash_tui.transfer.claim import CLAIM
from dflash_tui.transfer.destination import refuse_what_can_t_be_made, refuse_without_a_place
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.journal import journal_name, link_name, part_name, plan_id, read_journal
from dflash_tui.transfer.lying import lying
from dflash_tui.transfer.present import already_there
from dflash_tui.transfer.record import NAME, Identity, read_records
from dflash_tui.transfer.silence import refuse_what_is_printed
from dflash_tui.transfer.sources import seen_sources
from dflash_tui.transfer.space import check_space, look_for_room


@dataclass(frozen=True)
class PlannedFile:
    """A file to move. `name` is relative to the destination's folder, `sources` to the source's: what they must still
    be when they are moved. `plan_id` names exactly these bytes of exactly these sources. `present` is its SHA-256 where
    the destination has it already; `part` the path of an unfinished piece of it there ("" without one), `resumable`
    that piece's bytes that need not be sent again, `held` the room that it takes."""

    name: str
    size: int
    output: Output
    sources: Mapping[str, Identity]
    plan_id: str
    present: str = ""
    part: str = ""
    resumable: int = 0
    held: int = 0

    @property
    def linkable(self) -> bool:
        """Whether it is one file of the source as it lies there: a link to it is the same."""
        return self.output.whole and len(self.sources) == 1 and self.size == next(iter(self.sources.values())).size

    def stands_whole(self, size: int) -> bool:
        """Whether a part of `size` bytes may be all of it, though no journal says so: files of one chunk have none. The
        proof tells, and sends it again where it is not. What is made of bytes that pass needs them to pass."""
        late = any(isinstance(segment, Late) for segment in self.output.segments)
        return size == self.size and 0 < size <= CHUNK and not late


@dataclass(frozen=True)
class TransferPlan:
    """`total` bytes of all files; `free` bytes and inodes at the destination, of which other transfers that run now
    will take `reserved` bytes. Hosts go by their names."""

    source: str
    destination: str
    source_folder: str
    destination_folder: str
    files: tuple[PlannedFile, ...]
    total: int
    free: Space = field(default=Space(0, None))
    reserved: int = 0

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
        """Where a file is, or the first of those that it is made from."""
        return posixpath.join(self.source_folder, next(iter(file.sources), file.name))

    def final_path(self, file: PlannedFile) -> str:
        """Where a file is going to be."""
        return posixpath.join(self.destination_folder, file.name)

    def part_path(self, file: PlannedFile) -> str:
        """Where a file is until it is whole and proven: one name for one plan, so that whoever comes continues it."""
        folder, name = posixpath.split(self.final_path(file))
        return posixpath.join(folder, part_name(name, file.plan_id))

    def link_path(self, file: PlannedFile) -> str:
        """Where a file of the same host is until it is proven."""
        folder, name = posixpath.split(self.final_path(file))
        return posixpath.join(folder, link_name(name, file.plan_id))

    def journal_path(self, file: PlannedFile) -> str:
        """Where it is kept what is known of the part."""
        folder, name = posixpath.split(self.final_path(file))
        return posixpath.join(folder, journal_name(name, file.plan_id))


async def make_plan(
    source: Host,
    folder: str,
    outputs: Sequence[Output | str],
    destination: Host,
    destination_folder: str,
    *,
    read: Mapping[str, Identity] | None = None,
) -> TransferPlan:
    """Look at both ends. An output may be given by its name: that whole file. Several are one transfer. `read` is what
    sources were before what the outputs are made of was read from them: they must be that still.

    Raises DestinationTaken when another file has a final name, SourceChanged when a source is not what was read,
    NoSpace, and TransferError when a source is missing or a host can't be asked. A file of the same name and hash at
    the destination needs no move.
    """
    try:
        return await _make_plan(source, folder, outputs, destination, destination_folder, read or {})
    except HostError as error:
        raise TransferError(f"no transfer is possible now: {error}") from error


async def _make_plan(
    source: Host,
    folder: str,
    outputs: Sequence[Output | str],
    destination: Host,
    destination_folder: str,
    read: Mapping[str, Identity],
) -> TransferPlan:
    if not outputs:
        raise TransferError(f"{source.name}:{folder}: no file to move was named")
    ends = {source.name: source, destination.name: destination}
    await together(*(refuse_what_is_printed(host) for host in ends.values()))
    names: dict[str, None] = {}
    for output in outputs:
        sources = (output,) if isinstance(output, str) else output.sources
        for name in (output if isinstance(output, str) else output.name, *sources):
            check_name(name)
        names |= dict.fromkeys(sources)
    seen = await seen_sources(source, folder, list(names), read)
    files: dict[str, PlannedFile] = {}
    for output in outputs:
        file = _planned(source, folder, output, seen)
        if file.name in files and files[file.name].plan_id != file.plan_id:
            raise TransferError(f"two different files are to be called {file.name!r}; nothing was moved")
        files[file.name] = file
    plan = TransferPlan(
        source.name, destination.name, folder, destination_folder, tuple(files.values()),
        sum(file.size for file in files.values()),
    )  # fmt: skip
    record = posixpath.join(destination_folder, NAME)
    there = await lying(destination, [record, *(path for file in plan.files for path in _names_of(plan, file))])
    records = await read_records(destination, destination_folder) if record in there else {}
    looked_at = []
    for file in plan.files:
        final = there.get(plan.final_path(file))
        present = await already_there(plan, file, final, source, destination, records)
        looked_at.append(
            replace(file, present=present) if present else await _with_part(plan, file, destination, there)
        )
    if any(not file.present for file in looked_at):
        await refuse_what_can_t_be_made(destination, destination_folder)
    room = await look_for_room(destination, destination_folder, [file.part for file in looked_at if file.part])
    files = {file.name: replace(file, held=room.held.get(file.part, 0)) for file in looked_at}
    plan = replace(plan, files=tuple(files.values()), free=room.free, reserved=room.reserved)
    if not plan.free.bytes and plan.to_move:
        await refuse_without_a_place(destination, destination_folder)
    left = [(file.size, file.held) for file in plan.files if not file.present]
    linkable = plan.same_host and all(file.linkable for file in plan.files)
    check_space(f"{plan.destination}:{plan.destination_folder}", left, room, takes_bytes=not linkable)
    return plan


def check_name(name: str) -> str:
    """The name, if it is one below a folder. Raises TransferError."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise TransferError(f"{name!r} is not a name below a folder; expected one such as checkpoint.pt or shards/1.pt")
    if name in (NAME, CLAIM):
        raise TransferError(f"{name} can't be moved: every transfer keeps a file of its own under that name")
    return name


def _planned(source: Host, folder: str, wanted: Output | str, seen: Mapping[str, Identity]) -> PlannedFile:
    output = wanted if isinstance(wanted, Output) else Output(wanted, (Range(wanted, 0, seen[wanted].size),))
    for segment in output.segments:
        if isinstance(segment, Range) and segment.offset + segment.nbytes > seen[segment.file].size:
            raise TransferError(
                f"{source.name}:{posixpath.join(folder, segment.file)} has {seen[segment.file].size:,} bytes; "
                f"{output.name} needs it up to byte {segment.offset + segment.nbytes:,}: it became shorter; look again"
            )
    sources = {name: seen[name] for name in output.sources}
    return PlannedFile(output.name, output.size, output, sources, plan_id(source.name, folder, sources, output))


def _names_of(plan: TransferPlan, file: PlannedFile) -> tuple[str, str, str]:
    """What a file is called, and what an attempt at it leaves."""
    return plan.final_path(file), plan.part_path(file), plan.journal_path(file)


async def _with_part(
    plan: TransferPlan, file: PlannedFile, destination: Host, there: Mapping[str, Stat]
) -> PlannedFile:
    """With the piece that an earlier attempt at the same bytes left. What lies beyond its last whole chunk is sent
    again; without its journal nothing of a large one is known to be right."""
    _, part, journal = _names_of(plan, file)
    if part not in there:
        return file
    size = there[part].size
    known = file.stands_whole(size) or (
        journal in there and await read_journal(destination, journal, file.plan_id) is not None
    )
    return replace(file, part=part, resumable=continued(size, file.size) if known else 0)


async def kept_of(plan: TransferPlan, destination: Host) -> int:
    """How many bytes of an unfinished transfer lie there that a later one would not send again. Raises HostError."""
    files = [file for file in plan.files if not file.present]
    there = await lying(destination, [path for file in files for path in _names_of(plan, file)])
    left = [await _with_part(plan, file, destination, there) for file in files]
    return sum(file.resumable for file in left)


def continued(have: int, size: int) -> int:
    """Where a part of `have` bytes of a file of `size` is continued: after its last whole chunk. One that is longer
    than its file is not what it should be."""
    if have > size:
        return 0
    return size if have == size else have // CHUNK * CHUNK
