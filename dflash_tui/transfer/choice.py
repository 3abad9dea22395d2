"""Which engine carries: what the user wants, what works, and among those what was measured to be the fastest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from dflash_tui.hosts.base import Host
from dflash_tui.transfer.direct import DirectEngine, DirectRoute
from dflash_tui.transfer.engine import CHUNK, Engine, Route
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.joined import JoinedEngine, unusable
from dflash_tui.transfer.relaying import RelayEngine

TRIED_FROM = 256 << 20
"""Transfers of fewer bytes go by relay at once: they are over before anything is measured."""

TRIAL = 2 * CHUNK
_LONG = 32 * CHUNK
"""What comes up meanwhile, such as a limit, is heeded at the next leg."""

_WORTH = 1.15
"""So many times faster must the joined programs be: what passes here is proven on its way, and is read only once."""

_CHANGED = 1.4

Wanted = Literal["relay", "direct", "auto"]
Direct = Callable[[], Awaitable["DirectRoute | str"]]
"""Finds the way from the source to the destination, or says why there is none (`direct.reachable`)."""

Undisturbed = Callable[[float], bool]
"""Whether nothing else slowed bytes down for so many seconds until now."""

Rates = Mapping[Route, float]
"""Bytes per second by route."""


class RouteChooser:
    """A `Chooser` for one transfer. `rates` is what was measured, to be kept for the next one; `notes` are sentences on
    what was tried and dropped. `close` ends a trial that still runs."""

    def __init__(
        self,
        source: Host,
        destination: Host,
        wanted: Wanted,
        direct: Direct | None = None,
        rates: Rates | None = None,
        undisturbed: Undisturbed | None = None,
    ) -> None:
        self._undisturbed = undisturbed or (lambda seconds: True)
        self.rates: dict[Route, float] = dict(rates or {})
        self._remembered = dict(self.rates)
        self.notes: list[str] = []
        self._source, self._destination, self._wanted = source, destination, wanted
        self._find: Direct | None = direct if wanted != "relay" else None
        self._direct: Engine | None = None
        self._found = ""
        self._relay: Engine = RelayEngine()
        self._joined: JoinedEngine | None = JoinedEngine()
        self._trial: asyncio.Task[str] | None = None
        self._usable = False

    async def choose(self, remaining: int) -> tuple[Engine, int]:
        """See `Chooser.choose`. Raises TransferError when only the direct way is wanted and there is none, HostError
        when a host does not answer while it is looked for."""
        if self._find is not None:
            # Asked again after a host did not answer.
            found = await self._find()
            self._find = None
            if isinstance(found, str):
                self._found = found
                if self._wanted == "auto":
                    self.notes.append(found)
            else:
                self._direct = DirectEngine(found)
        if self._direct is not None:
            return self._direct, _at_most(remaining, _LONG)
        if self._wanted == "direct":
            raise TransferError(f"{self._found or self._no_way()}; --route relay goes through here")
        if self._joined is None or (self._trial is None and remaining < TRIED_FROM):
            return self._relay, remaining
        if self._trial is None and self._is_slower(self.rates):
            return self._relay, remaining
        if not ("relay" in self.rates and "joined" in self.rates) and not self._undisturbed(0):
            return self._relay, _at_most(remaining, _LONG)  # a trial would compare nothing
        return await self._tried(self._joined, remaining)

    async def _tried(self, joined: JoinedEngine, remaining: int) -> tuple[Engine, int]:
        if self._trial is None:
            self._trial = asyncio.create_task(unusable(self._source, self._destination))
        if not self._usable:
            if not self._trial.done():
                return self._relay, _at_most(remaining, TRIAL)
            if sentence := self._trial.result():
                self.failed(joined, sentence)
                return self._relay, remaining
            self._usable = True
        if "relay" not in self.rates:
            return self._relay, _at_most(remaining, TRIAL)
        if "joined" not in self.rates:
            return joined, _at_most(remaining, TRIAL)
        return (self._relay if self._is_slower(self.rates) else joined), remaining

    def measured(self, engine: Engine, nbytes: int, seconds: float) -> None:
        """See `Chooser.measured`. What a short leg says is not kept, nor what one says that was slowed down."""
        if nbytes < CHUNK or not self._undisturbed(seconds):
            return
        if isinstance(engine, JoinedEngine):
            seconds -= engine.started_seconds
        rate = nbytes / max(seconds, 1e-3)
        if (before := self._remembered.pop(engine.route, None)) and not 1 / _CHANGED < rate / before < _CHANGED:
            # Another network, or another limit: what was remembered of the others is no more to be compared with.
            for route in self._remembered:
                self.rates.pop(route, None)
            self._remembered.clear()
        self.rates[engine.route] = rate

    def failed(self, engine: Engine, sentence: str) -> bool:
        """See `Chooser.failed`. The relay is the last one, unless only the direct way is wanted."""
        if engine is self._direct:
            self._direct, self._found = None, sentence
            if self._wanted == "auto":
                self.notes.append(sentence)
            return self._wanted == "auto"  # else it is what the transfer fails with: it is said once
        self.notes.append(sentence)
        if engine is self._joined:
            self._joined = None
            self.rates.pop("joined", None)
            return True
        return False

    async def close(self) -> None:
        """End what is still being tried."""
        if self._trial is not None:
            self._trial.cancel()
            await asyncio.gather(self._trial, return_exceptions=True)

    def _is_slower(self, rates: Rates) -> bool:
        """Whether the joined programs are known not to be worth it."""
        return "joined" in rates and "relay" in rates and rates["joined"] < _WORTH * rates["relay"]

    def _no_way(self) -> str:
        return f"nothing is known of a way from {self._source.name} to {self._destination.name}"


def make_chooser(
    source: Host,
    destination: Host,
    wanted: Wanted,
    direct: Direct | None = None,
    remembered: Mapping[tuple[str, str], Rates] | None = None,
    undisturbed: Undisturbed | None = None,
) -> RouteChooser:
    """The chooser for a transfer. "relay": through this machine, by whichever engine is the faster one; "direct": from
    host to host or not at all; "auto": direct where the source reaches the destination, else as relay.

    `remembered`: the `rates` of earlier choosers by (source, destination): what was measured then is not tried again.
    `undisturbed` tells whether anything but the way itself held bytes back (`Shared.undisturbed`).
    """
    rates = (remembered or {}).get((source.name, destination.name), {})
    return RouteChooser(source, destination, wanted, direct, rates, undisturbed)


def _at_most(remaining: int, most: int) -> int:
    """Never a leg that leaves a scrap behind."""
    return remaining if remaining < most + CHUNK else most
