"""Whether a terminal is there to draw on; asked before Textual is imported."""

from __future__ import annotations

import sys


def refusal() -> str | None:
    """Why the app can't start here, as one sentence with the command to use instead; None when it can.

    Textual draws on stderr and reads keys from stdin: with either redirected it would start and be deaf or invisible.
    """
    missing = [name for name, stream in (("stdin", sys.stdin), ("stderr", sys.stderr)) if not _is_terminal(stream)]
    if not missing:
        return None
    return (
        f"dflash-tui: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not a terminal, so there is "
        "nothing to draw on or no keys to read; use the headless commands, for example: dflash-tui status --json"
    )


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream is not None and stream.isatty())  # type: ignore[attr-defined]
    except ValueError:  # a closed stream
        return False
