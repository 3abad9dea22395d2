"""Starting the app. No Textual is imported before it is known that there is a terminal to draw on."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_tui.tui.terminal import refusal

if TYPE_CHECKING:
    from dflash_tui.tui.app import Connect
    from dflash_tui.tui.contract import ConsoleLike


class NoTerminal(Exception):
    """There is no terminal to draw on; the sentence names the headless command."""


def launch(
    console: ConsoleLike | None = None, connect: Connect | None = None, *, theme: str = "", themes: Sequence[Path] = ()
) -> int:
    """Run the app until it ends and return its exit code. See `DflashApp` for the arguments.

    Raises NoTerminal. The garbage collector rests until the first paint (a twentieth of the start's CPU time: imports
    make many objects and no garbage); the app wakes it.
    """
    if sentence := refusal():
        raise NoTerminal(sentence)
    gc.disable()
    try:
        from dflash_tui.tui.app import DflashApp
        from dflash_tui.tui.theme import DEFAULT

        app = DflashApp(console, connect, theme=theme or DEFAULT, themes=themes)
        app.run()
    finally:
        gc.enable()
    return app.return_code or 0
