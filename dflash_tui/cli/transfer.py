"""``fetch``: its options, and how it shows what moves: bars on a terminal, lines elsewhere, JSON lines with --json."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dflash_tui.cli.exits import DONE
from dflash_tui.cli.printing import print_answer
from dflash_tui.cli.running import Tell, config_path, open_console, open_store, run_async

if TYPE_CHECKING:
    from dflash_tui.cli.progress import Bars


def fetch_options(fetch: Any, step: Callable[[str], int]) -> None:
    """What `fetch` understands; `step` reads one."""
    which = fetch.add_mutually_exclusive_group()
    which.add_argument(
        "what",
        metavar="latest|STEP|PATH",
        nargs="?",
        type=_what,
        default="latest",
        help="the newest complete checkpoint (default), that of a step, or one by its path: on the training's host, or "
        "HOST:PATH",
    )
    which.add_argument("--step", type=step, help=argparse.SUPPRESS)  # as in `eval`
    extent = fetch.add_mutually_exclusive_group()
    extent.add_argument(
        "--slim",
        dest="mode",
        action="store_const",
        const="slim",
        help="only what an evaluation reads (default, unless transfer.mode says otherwise)",
    )
    extent.add_argument("--full", dest="mode", action="store_const", const="full", help="every file of it, as it is")
    fetch.add_argument("--to", metavar="HOST:DIR", default="", help="into a folder of another host, or of local")
    fetch.add_argument(
        "--route",
        choices=("relay", "direct", "auto"),
        help="through this machine (default), from host to host, or whichever is faster",
    )
    fetch.add_argument("--limit", metavar="RATE", type=_rate, help="at most so fast, such as '200 MB/s'")
    fetch.add_argument("--dry-run", action="store_true", help="print what would move, and move nothing")


def fetch(arguments: argparse.Namespace) -> int:
    """Move a checkpoint. With --json the answer is the one document on stdout, and progress goes to stderr as JSON
    lines."""
    from dflash_tui.config import load_config
    from dflash_tui.console.acts import headless

    bars: Bars | None = None

    def telling(say: Callable[[str], None]) -> Tell:
        nonlocal bars
        if arguments.json:
            from dflash_tui.cli.progress import json_lines

            return json_lines(say)
        if sys.stderr.isatty() and not arguments.dry_run:
            from dflash_tui.cli.progress import Bars

            bars = Bars(say)
            return bars.tell
        from dflash_tui.console.narration import narrator

        return narrator(say)

    async def work() -> int:
        try:
            async with open_console(load_config(config_path(arguments)), open_store(arguments), telling) as console:
                answer = await headless.COMMANDS["fetch"](console, arguments)
        finally:
            if bars is not None:
                bars.close()
        print_answer(answer, arguments)
        return DONE

    return run_async(work())


def _what(text: str) -> str:
    """Which checkpoint is meant: a word, a number, or something with a folder in it."""
    if text == "latest" or "/" in text or (text.isdecimal() and len(text) < 16):
        return text
    raise argparse.ArgumentTypeError(
        f"found {text[:60]!r}, expected latest, a step such as 4000, or a path such as /runs/step_4000"
    )


def _rate(text: str) -> float:
    from dflash_tui.config.rates import read_rate

    try:
        return read_rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
