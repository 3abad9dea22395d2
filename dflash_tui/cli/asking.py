"""Questions on a terminal: about host keys that are not known yet."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from dflash_tui.cli.printing import narrate

if TYPE_CHECKING:
    from dflash_tui.hosts.asking import Ask
    from dflash_tui.hosts.base import KeyOffer

_LONGEST = 4096


def terminal_ask() -> Ask | None:
    """Who to ask; None without a terminal, where nobody would answer."""
    return _ask if _is_terminal(sys.stdin) and _is_terminal(sys.stderr) else None


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream is not None and stream.isatty())  # type: ignore[attr-defined]
    except ValueError:  # a closed stream
        return False


async def _ask(offer: KeyOffer) -> bool:
    from dflash_tui.console.acts.trust import described

    for sentence in described(offer):
        narrate(sentence)
    print(f"Add it to {offer.file}? [y/N, or the fingerprint] ", end="", file=sys.stderr, flush=True)
    said = (await read_line()).strip()
    return said.lower() in ("y", "yes") or said == offer.fingerprint


async def read_line() -> str:
    """A line from the terminal; not in a thread, where an interrupt would have to wait for it."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    handle = sys.stdin.fileno()

    def read() -> None:
        if not line.done():
            line.set_result(os.read(handle, _LONGEST).decode("utf-8", "replace"))

    loop.add_reader(handle, read)
    try:
        return await line
    finally:
        loop.remove_reader(handle)
