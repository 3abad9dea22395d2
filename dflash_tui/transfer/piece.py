"""One output on its way: what lies of it at the destination, and what is known of those bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

from dflash_tui.checkpoints.segments import Late, Range
from dflash_tui.hosts.base import Entry, FileMissing, Host, HostError, HostUnreachable, ReadShort, Stat
from dflash_tui.transfer.destination import is_a_folder
from dflash_tui.transfer.digests import range_crc
from dflash_tui.transfer.emission import emission
from dflash_tui.transfer.engine import CHUNK, Engine, Leg, Pace
from dflash_tui.transfer.journal import Known, chunk_line, crc_line, header, read_journal, start_journal
from dflash_tui.transfer.keeper import Keeper
from dflash_tui.transfer.plan import PlannedFile, TransferPlan, continued
from dflash_tui.transfer.portions import remove_files
from dflash_tui.transfer.writing import free

_FREE_SECONDS = 60.0
_BLOCK = 1 << 20


class Piece:
    """An output and its part. `at` is how many of the part's bytes may be built upon; `known` what has passed of them;
    `proven` is its SHA-256 once both ends agree, `stat` what the part was then."""

    def __init__(self, plan: TransferPlan, file: PlannedFile, source: Host, destination: Host, keeper: Keeper) -> None:
        self.file = file
        self._links = plan.same_host and file.linkable
        self.part = plan.link_path(file) if self._links else plan.part_path(file)
        self.final = plan.final_path(file)
        self._link = plan.link_path(file)
        keeper.passing(self.part, plan.journal_path(file), file.size, always=self._links)
        self._journal = plan.journal_path(file)
        self._plan, self._source, self._destination, self._keeper = plan, source, destination, keeper
        self._read_once = False
        self.at = 0
        self.known = Known()
        self.proven = ""
        self.stat: Stat | None = None
        self.again = False
        """Whether bytes of it that proved to be wrong were sent again: once is enough."""
        self.guessed = False
        """Whether it is taken to be whole by its size alone, until the proof."""

    @property
    def chunks(self) -> int:
        """How many chunks the file has."""
        return -(-self.file.size // CHUNK)

    @property
    def shown(self) -> Stat:
        """What the part was when it was proven."""
        assert self.stat is not None
        return self.stat

    @property
    def seen(self) -> bool:
        """Whether the hash of every chunk is known from when it passed."""
        return self.seen_until(self.file.size)

    def seen_until(self, at: int) -> bool:
        """The same of the chunks before byte `at`."""
        return all(number in self.known.chunks for number in range(-(-at // CHUNK)))

    @property
    def passed(self) -> int:
        """Bytes of chunks that are known to have passed."""
        return min(len(self.known.chunks) * CHUNK, self.file.size)

    @property
    def late(self) -> Late | None:
        """The end of the output that is made of what passed, if it has one."""
        last = self.file.output.segments[-1] if self.file.output.segments else None
        return last if isinstance(last, Late) else None

    async def settle(self, entries: Mapping[str, Entry], aside: Sequence[str]) -> None:
        """Find out where to go on, given what lies in its folder, and what is `aside` of its part there: nobody else
        may write, and what is there counts up to its last whole chunk. Raises HostUnreachable while somebody still has
        the part open."""
        self.proven, self.stat = "", None
        name = self.part.rpartition("/")[2]
        if name in entries and entries[name].stat.kind == "folder":
            raise is_a_folder(self._destination, self.part, "a part of a file is kept there until it is whole")
        if self._link.rpartition("/")[2] in entries:
            await self._destination.run(["rm", "-f", self._link], check=False)
        if not self._read_once:
            found = await read_journal(self._destination, self._journal, self.file.plan_id) if (
                self._journal.rpartition("/")[2] in entries
            ) else None  # fmt: skip
            self._read_once, self.known = True, found or Known()
            trusted = found is not None
        else:
            trusted = True
        for entry in aside:
            # Whoever gave it its name was broken off in the middle.
            other = f"{self.part.rpartition('/')[0]}/{entry}"
            whole = entries[entry].stat.size == self.file.size and entries[entry].stat.links == 1
            await self._destination.run(["mv", "-f", other, self.part] if whole else ["rm", "-f", other], check=False)
        size = await self._quiet_size() if aside or name in entries else 0
        self.guessed = not self.seen and self.file.stands_whole(size)
        trusted = trusted or self.guessed
        await self.back_to(continued(size, self.file.size) if trusted else 0, fresh=not trusted)

    async def _quiet_size(self) -> int:
        """The part's size, once writers that were left behind are ended."""
        done = await self._destination.run(free(self.part), timeout=_FREE_SECONDS, check=False)
        if done.status != 0:
            raise HostUnreachable(
                f"{self._destination.name}:{self.part} is still held open by another program (status {done.status})"
            )
        try:
            return (await self._destination.stat(self.part, follow=False)).size
        except FileMissing:
            return 0  # it was not one that a writer may go on with

    async def back_to(self, at: int, *, fresh: bool = True) -> None:
        """Go on at byte `at`; what lies beyond is going to be sent again. `fresh`: the journal forgets that too."""
        self.at = at
        if at < self.file.size:
            self.known.forget_from(at // CHUNK)
        # A file of one chunk is begun anew anyway.
        if fresh and self.file.size > CHUNK:
            await self._keeper.forget(self._journal)
            first = header(
                self.file.plan_id, self.file.name, self.file.size, self._plan.source, self._plan.source_folder,
                self.file.sources,
            )  # fmt: skip
            try:
                await start_journal(self._destination, self._journal, first, self.known)
            except HostUnreachable:
                raise
            except HostError:
                return  # it only spares work

    async def carry(self, engine: Engine, most: int, pace: Pace, count: Callable[[int, int], None]) -> int:
        """Let an engine carry the next leg; how many bytes that were. Raises as `Engine.carry` does."""
        start, size = self.at, self.file.size
        stop = size if start + most >= size else start + max(CHUNK, most // CHUNK * CHUNK)
        if self.late is not None and stop == size:
            await self._learn_crcs(start)

        def arrived(number: int, sha256: str) -> None:
            self.known.chunks[number] = sha256
            if size > CHUNK:
                self._keeper.note(self._journal, chunk_line(number, sha256))

        leg = Leg(
            self._source, self._plan.source_folder, self.file.output, self._destination, self.part, start, stop, size,
            count, arrived, pace, self.known.crcs,
        )  # fmt: skip
        self.guessed = False
        passed = await engine.carry(leg)
        if self.late is not None:
            for index, crc in passed.crcs.items():
                self.known.crcs[index] = crc
                self._keeper.note(self._journal, crc_line(index, crc))
        self.at = stop
        return stop - start

    async def _learn_crcs(self, start: int) -> None:
        """The CRC-32s of ranges that did not pass whole in one leg: those are read once more."""
        at = 0
        for index, segment in enumerate(self.file.output.segments):
            if isinstance(segment, Range) and segment.crc is None and at < start and index not in self.known.crcs:
                self.known.crcs[index] = await self._crc(segment)
            at += segment.nbytes

    async def _crc(self, segment: Range) -> int:
        known = await range_crc(self._source, self._plan.source_folder, segment)
        if known is not None:
            return known
        crc, left = 0, segment.nbytes
        program = emission(self._plan.source_folder, [segment])
        async with self._source.stream(program.argv, stdin=True) as process:
            await process.write(program.stdin)
            await process.close_stdin()
            while data := await process.read(_BLOCK):
                crc, left = zlib.crc32(data, crc), left - len(data)
        if left:
            raise ReadShort(f"{self._source.name}:{segment.file} gave {left:,} bytes too few")
        return crc

    async def remove(self) -> None:
        """Remove the part and its journal."""
        await remove_pieces(self._destination, [self])

    @property
    def paths(self) -> tuple[str, str, str]:
        """What may lie of it before it has its name."""
        return self.part, self._link, self._journal

    async def end(self) -> None:
        """Nothing more is kept of it."""
        await self._keeper.forget(self._journal)


async def remove_pieces(destination: Host, pieces: Sequence[Piece]) -> None:
    """Remove parts and their journals. Raises HostError for a host that can't be asked."""
    for piece in pieces:
        await piece.end()
    await remove_files(destination, [path for piece in pieces for path in piece.paths])


async def kept_of_pieces(destination: Host, pieces: Sequence[Piece]) -> dict[str, int]:
    """How many bytes of each part a later transfer would go on after, by the names of their files. Raises HostError."""
    stats = await destination.stat_many([piece.part for piece in pieces], follow=False)
    return {
        piece.file.name: 0 if stat is None else continued(stat.size, piece.file.size)
        for piece, stat in zip(pieces, stats, strict=True)
    }
