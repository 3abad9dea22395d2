"""Copying out of a terminal that may be far away: tmux's own buffer where tmux runs, else OSC 52."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

TMUX_SECONDS = 3.0


async def copy(text: str, environment: Mapping[str, str], osc52: Callable[[str], None]) -> str:
    """Copy `text` and return where to, in words.

    Inside tmux plain OSC 52 is dropped with the default `set-clipboard external`, while `load-buffer -w` reaches both
    tmux's buffer and the outer terminal's clipboard (tmux ≥ 3.2). Whether a terminal takes OSC 52 can't be known.
    """
    if environment.get("TMUX") and await _tmux(text):
        return "tmux's buffer and the terminal's clipboard"
    osc52(text)
    return "the terminal's clipboard (OSC 52)"


async def _tmux(text: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            "tmux", "load-buffer", "-w", "-",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return False
    try:
        await asyncio.wait_for(process.communicate(text.encode("utf-8", "replace")), TMUX_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    return process.returncode == 0
