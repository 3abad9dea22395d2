"""What a command runs on: the config that is meant, the store, and a console that is closed at the end."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_tui.cli.printing import give_up_stderr, narrate

if TYPE_CHECKING:
    from dflash_tui.config import Config
    from dflash_tui.console.console import Console
    from dflash_tui.console.events import Event
    from dflash_tui.results.store import Store


Tell = Callable[["Event"], None]
"""Hears what happens."""


def config_path(arguments: argparse.Namespace) -> Path:
    """The config file that is used."""
    from platformdirs import user_config_path

    return arguments.config or user_config_path("dflash-tui") / "config.toml"


def open_store(arguments: argparse.Namespace) -> Store:
    """The workstation's runs and pins."""
    from platformdirs import user_state_path

    from dflash_tui.results.store import Store

    return Store(arguments.state or user_state_path("dflash-tui"))


@asynccontextmanager
async def open_console(
    config: Config, store: Store, telling: Callable[[Callable[[str], None]], Tell] | None = None
) -> AsyncIterator[Console]:
    """A console over the config's hosts, narrating on stderr and asking on a terminal, closed at the end. `telling`
    makes what hears its events, from what prints a line there; sentences by default."""
    from dflash_tui.cli.asking import terminal_ask
    from dflash_tui.console.console import Console
    from dflash_tui.console.links import check_launchers
    from dflash_tui.console.narration import narrator

    check_launchers(config)
    work, gone = asyncio.current_task(), False

    def say(sentence: str) -> None:
        """Whoever listens may go away at any moment; the work ends then as at an interrupt, nothing half-begun."""
        nonlocal gone
        if gone:
            return
        try:
            narrate(sentence)
        except BrokenPipeError:
            gone = True
            give_up_stderr()
            if work is not None:
                work.cancel()

    console = Console(config, store, told=(telling or narrator)(say), ask=terminal_ask())
    try:
        yield console
    except asyncio.CancelledError:
        if gone:
            raise BrokenPipeError from None
        raise
    finally:
        await console.close()


def run_async(work: Awaitable[int]) -> int:
    """Run to the end; an interrupt cancels the work, which cleans up, and comes out as KeyboardInterrupt."""

    async def run() -> int:
        return await work

    return asyncio.run(run())
