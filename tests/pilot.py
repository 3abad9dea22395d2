"""The app driven by a pilot: what it shows, and waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.pilot import Pilot

from dflash_tui.console.state import State
from dflash_tui.tui.app import DflashApp

PATIENCE = 150.0


async def until(pilot: Pilot[None], app: DflashApp, seen: Callable[[State], bool], what: str) -> State:
    """Wait until the app shows a state; fails when an evaluation failed meanwhile."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not seen(app.newest):
                error = app.newest.evaluation.error
                assert error is None, f"while waiting for {what}: {error}"
                await pilot.pause(0.1)
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what}:\n{screen_text(app)}") from None
    return app.newest


def screen_text(app: DflashApp) -> str:
    """What the terminal shows now, line by line."""
    return "\n".join("".join(part.text for part in strip) for strip in app.screen._compositor.render_strips())
