"""The command that tries a set-up before anything depends on it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dflash_tui.cli.asking import terminal_ask
from dflash_tui.cli.exits import DONE, FAILED
from dflash_tui.cli.printing import narrate, print_answer
from dflash_tui.cli.running import config_path, open_store, run_async

if TYPE_CHECKING:
    from dflash_tui.hosts.asking import Ask
    from dflash_tui.hosts.base import KeyOffer


class _Narration:
    """What is being tried, on stderr; it waits while a question stands there."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._waiting: list[str] | None = None

    def say(self, sentence: str) -> None:
        """Now, or after the answer."""
        if self._waiting is None:
            narrate(sentence)
        else:
            self._waiting.append(sentence)

    async def ask(self, offer: KeyOffer) -> bool:
        """The question about a key."""
        assert self._ask is not None
        self._waiting = []
        try:
            return await self._ask(offer)
        finally:
            held, self._waiting = self._waiting, None
            for sentence in held:
                narrate(sentence)


def check(arguments: argparse.Namespace) -> int:
    """Try everything that the config names; fails when something failed."""
    from dflash_tui.console.acts.check import check as act

    ask = terminal_ask()
    told = _Narration(ask)

    async def work() -> int:
        path, store = config_path(arguments), open_store(arguments)
        answer = await act(path, store, told.say, told.ask if ask is not None else None)
        print_answer(answer, arguments, prose=True)
        return FAILED if answer.failed else DONE

    return run_async(work())
