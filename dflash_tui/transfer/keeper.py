"""What goes on beside a transfer's bytes: its claim is touched, its journals are written, the room is watched."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable

from dflash_tui.hosts.base import Host, HostError
from dflash_tui.hosts.running import goes_on
from dflash_tui.transfer.claim import BEAT_SECONDS, Claim
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import NoSpace, TransferCut, TransferError
from dflash_tui.transfer.journal import add_lines
from dflash_tui.transfer.portions import portions, remove_files

_JOURNAL_SECONDS = 1.0
_DEAR_SECONDS = 10.0
_CLEARING = 10.0
_REMOVE_SHORT = """
chunk=$1
shift
while [ $# -gt 0 ]; do
  if [ -e "$1" ]; then
    have=$(stat -c %s "$1" 2>&- || stat -f %z "$1")
    [ -n "$have" ] && [ "$have" -lt "$chunk" ] && [ "$have" != "$3" ] && rm -f "$1" "$2"
  fi
  shift 3
done
exit 0
"""


class Keeper:
    """Keeps one transfer. `room` is asked every few seconds how many bytes are missing at the destination."""

    def __init__(self, host: Host, claim: Claim, room: Callable[[], Awaitable[int]]) -> None:
        self._host, self._claim, self._room = host, claim, room
        self._lines: defaultdict[str, list[str]] = defaultdict(list)
        self._turn = asyncio.Lock()
        self._always: list[str] = []
        self._pieces: dict[str, tuple[str, str]] = {}

    def passing(self, part: str, journal: str, size: int, *, always: bool) -> None:
        """A part that is going to have so many bytes. It is removed, with its journal, when the transfer is given up
        before it is whole or there is a chunk of it; `always`: when anything breaks it off, however much there is."""
        if always:
            self._always.append(part)
        else:
            self._pieces[part] = (journal, str(size))

    def note(self, journal: str, line: str) -> None:
        """A line for a journal: written soon."""
        self._lines[journal].append(line)

    async def forget(self, journal: str) -> None:
        """A journal is begun anew, or goes: what was to be added to it is not."""
        async with self._turn:
            self._lines.pop(journal, None)

    async def flush(self) -> None:
        """Write what is to be written now. It only spares work later: a destination that can't is left in peace."""
        async with self._turn:
            for journal, lines in list(self._lines.items()):
                count = len(lines)
                if count:
                    with contextlib.suppress(HostError):
                        await add_lines(self._host, journal, lines[:count])
                        del lines[:count]

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep for as long as the block lasts. When the claim or the room is lost, the block is stopped, and what was
        lost is raised: TransferCut, NoSpace."""
        block = asyncio.current_task()
        assert block is not None
        lost: list[TransferError] = []
        ended = False

        def stop(trouble: TransferError) -> None:
            if not ended:
                lost.append(trouble)
                block.cancel()

        tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._watch(stop))]
        try:
            yield
        except BaseException as error:
            given_up = isinstance(error, asyncio.CancelledError)
            if given_up and lost and block.uncancel() == 0:
                await self._clear(given_up=False)
                raise lost[0] from None
            await self._clear(given_up=given_up)
            raise
        finally:
            ended = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLEARING):
                    await self.flush()

    async def _clear(self, *, given_up: bool) -> None:
        """Remove what nothing can be continued of. Who lost the claim leaves all to its new owner."""
        if not self._claim.held:
            return
        with contextlib.suppress(HostError, TimeoutError):
            async with asyncio.timeout(_CLEARING):
                await remove_files(self._host, self._always)
                if given_up:
                    for some in portions(list(self._pieces)):
                        words = [word for part in some for word in (part, *self._pieces[part])]
                        await self._host.run(["sh", "-c", _REMOVE_SHORT, "dflash", str(CHUNK), *words], check=False)

    async def _write(self) -> None:
        while goes_on():
            await asyncio.sleep(_DEAR_SECONDS if self._host.dear else _JOURNAL_SECONDS)
            await self.flush()

    async def _watch(self, stop: Callable[[TransferError], None]) -> None:
        while goes_on():
            await asyncio.sleep(BEAT_SECONDS)
            try:
                if not await self._claim.touch():
                    stop(TransferCut(await self._claim.loss()))
                    return
                missing = await self._room()
            except (HostError, TransferError):
                continue  # a cut is noticed by who moves bytes
            if missing:
                stop(NoSpace(f"{self._host.name}: {missing:,} bytes too few are free for what is still to come"))
                return
