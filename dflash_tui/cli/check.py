"""The command that tries a set-up before anything depends on it."""

from __future__ import annotations

import argparse

from dflash_tui.cli.asking import terminal_ask
from dflash_tui.cli.exits import DONE, FAILED
from dflash_tui.cli.printing import narrate, print_answer
from dflash_tui.cli.running import config_path, open_store, run_async


def check(arguments: argparse.Namespace) -> int:
    """Try everything that the config names; fails when something failed."""
    from dflash_tui.console.acts.check import check as act

    async def work() -> int:
        answer = await act(config_path(arguments), open_store(arguments), narrate, terminal_ask())
        print_answer(answer, arguments)
        return FAILED if answer.failed else DONE

    return run_async(work())
