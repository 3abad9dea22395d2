"""Questions about host keys that wait for a face: asked through the state, answered by an act."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dflash_tui.console import events as happened
from dflash_tui.console.errors import ConsoleError
from dflash_tui.hosts.base import KeyOffer


class Questions:
    """At most one question is open at a time: `hosts.asking.Asker` sees to that."""

    def __init__(self, emit: Callable[[happened.Event], None]) -> None:
        self._emit = emit
        self._open: dict[str, asyncio.Future[bool]] = {}

    async def ask(self, offer: KeyOffer) -> bool:
        """Show an offered key in the state and wait for the answer."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._open[offer.fingerprint] = answer
        self._emit(happened.KeyAsked(offer))
        try:
            return await answer
        finally:
            del self._open[offer.fingerprint]
            self._emit(happened.KeyAnswered(offer))

    def answer(self, fingerprint: str, yes: bool) -> None:
        """Answer for the key whose fingerprint was shown. Raises ConsoleError when nothing is asked about it."""
        waiting = self._open.get(fingerprint)
        if waiting is None:
            raise ConsoleError(f"{fingerprint}: nothing is asked about this key any more")
        if not waiting.done():
            waiting.set_result(yes)
