"""A checkpoint's files on a host, as `checkpoints.files.Files`: synchronous reads in a worker thread, carried out by
the event loop that owns the host."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete
from dflash_tui.checkpoints.zipdir import TAIL
from dflash_tui.hosts.base import FileMissing, Host, HostUnreachable, ReadShort

T = TypeVar("T")

_TIMEOUT = 300.0  # seconds for one answer; hosts bound their own commands far below that


class RemoteFiles:
    """The files `sizes` (relative name → bytes) below `folder`. Made in the event loop, used in a thread."""

    def __init__(
        self,
        host: Host,
        folder: str,
        sizes: Mapping[str, int],
        known: Mapping[str, Sequence[tuple[int, bytes]]] = MappingProxyType({}),
    ) -> None:
        """`known`: pieces of files that were read already, each with its offset."""
        self._host = host
        self._folder = folder.rstrip("/")
        self._sizes = dict(sizes)
        self._known = known
        self._loop = asyncio.get_running_loop()
        self._read_before: dict[tuple[str, int, int], bytes] = {}

    def names(self) -> list[str]:
        """Relative names, sorted."""
        return sorted(self._sizes)

    def size(self, name: str) -> int:
        """Bytes in the file, as listed. Raises CheckpointError for a name that was not listed."""
        try:
            return self._sizes[name]
        except KeyError:
            raise CheckpointError(f"{self._path(name)}: is not among the files that were listed") from None

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Exactly these bytes; the ends of a file, which several questions are asked of, cross once. Raises
        CheckpointIncomplete where the file is shorter or gone, else HostError."""
        place = (name, offset, length)
        if place in self._read_before:
            return self._read_before[place]
        for begin, data in self._known.get(name, ()):
            if begin <= offset and offset + length <= begin + len(data):
                return data[offset - begin : offset - begin + length]
        data = self._await(self._read(name, offset, length))
        if length <= TAIL:
            self._read_before[place] = data
        return data

    def read_many(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, length), in few round trips."""
        return self._await(self._read_all(name, ranges))

    async def _read(self, name: str, offset: int, length: int) -> bytes:
        path = self._path(name)
        try:
            return await self._host.read(path, offset, length)
        except (ReadShort, FileMissing) as error:
            raise CheckpointIncomplete(f"{path}: bytes {offset} … {offset + length} can't be read ({error})") from error

    async def _read_all(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        path = self._path(name)
        try:
            return await self._host.read_many(path, ranges)
        except (ReadShort, FileMissing) as error:
            raise CheckpointIncomplete(f"{path}: {len(ranges)} ranges of it can't be read ({error})") from error

    def _await(self, work: Coroutine[object, object, T]) -> T:
        answer = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return answer.result(_TIMEOUT)
        except TimeoutError:
            answer.cancel()
            raise HostUnreachable(f"{self._host.name}: no bytes of {self._folder} came for {_TIMEOUT:g} s") from None

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
