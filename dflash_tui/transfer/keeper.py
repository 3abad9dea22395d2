"""What goes on beside a transfer's bytes: its claim is touched, its journals are written, the room is watched."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable

from dflash_tui.hosts.base import Host, HostError
from dflash_tui.transfer.claim import BEAT_SECONDS, Claim
from dflash_tui.transfer.errors import NoSpace, TransferCut, TransferError
from dflash_tui.transfer.journal import add_lines

_JOURNAL_SECONDS = 1.0
_DEAR_SECONDS = 10.0
_CLEARING = 10.0


class Keeper:
    """Keeps one transfer. `room` is asked every few seconds how many bytes are missing at the destination."""

    def __init__(self, host: Host, claim: Claim, room: Callable[[], Awaitable[int]]) -> None:
        self._host, self._claim, self._room = host, claim, room
        self._lines: defaultdict[str, list[str]] = defaultdict(list)
        self._turn = asyncio.Lock()

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
        except asyncio.CancelledError:
            if lost and block.uncancel() == 0:
                raise lost[0] from None
            raise
        finally:
            ended = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLEARING):
                    await self.flush()

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(_DEAR_SECONDS if self._host.dear else _JOURNAL_SECONDS)
            await self.flush()

    async def _watch(self, stop: Callable[[TransferError], None]) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                if not await self._claim.touch():
                    stop(TransferCut(f"{self._host.name}: another process went on with this transfer"))
                    return
                missing = await self._room()
            except (HostError, TransferError):
                continue  # a cut is noticed by who moves bytes
            if missing:
                stop(NoSpace(f"{self._host.name}: {missing:,} bytes too few are free for what is still to come"))
                return
