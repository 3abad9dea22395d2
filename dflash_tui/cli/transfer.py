"""``fetch``: its options, and how it shows what moves: bars on a terminal, lines elsewhere, JSON lines with --json."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dflash_tui.cli.exits import DONE
from dflash_tui.cli.printing import INTERRUPTION, narrate, print_answer, sentence_of
from dflash_tui.cli.running import Tell, config_path, open_console, open_store, run_async

if TYPE_CHECKING:
    from dflash_tui.cli.progress import Bars
    from dflash_tui.console.events import Event

_NEGATIVE = re.compile(r"-[0-9.]")


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
        help="through this machine (default), from host to host, or that where there is such a way",
    )
    fetch.add_argument(
        "--limit", metavar="RATE", type=_rate, help="at most so fast: '200 MB/s' (bytes), '800 Mbit/s' (bits)"
    )
    fetch.add_argument("--dry-run", action="store_true", help="print what would move, and move nothing")
    fetch.set_defaults(lines=True)


def with_its_value(argv: Sequence[str]) -> list[str]:
    """The arguments with `--limit -3MB/s` as one: what begins with a dash would be taken for an option, and what is
    wrong with it would not be said."""
    made: list[str] = []
    for word in argv:
        if made and made[-1] == "--limit" and _NEGATIVE.match(word):
            made[-1] = f"--limit={word}"
        else:
            made.append(word)
    return made


def fetch(arguments: argparse.Namespace) -> int:
    """Move a checkpoint. With --json the answer is the one document on stdout, and progress goes to stderr as JSON
    lines, of which each failure has an `ended`."""
    from dflash_tui.config import load_config
    from dflash_tui.console import events as happened
    from dflash_tui.console.acts import headless
    from dflash_tui.console.errors import TROUBLE

    bars: Bars | None = None
    ended = False

    def telling(say: Callable[[str], None]) -> Tell:
        nonlocal bars
        if arguments.json:
            from dflash_tui.cli.progress import json_lines

            tell = json_lines(say)

            def noted(event: Event) -> None:
                nonlocal ended
                ended = ended or isinstance(event, happened.TransferEnded)
                tell(event)

            return noted
        if sys.stderr.isatty() and not arguments.dry_run:
            from dflash_tui.cli.progress import Bars

            bars = Bars(say)
            return bars.tell
        from dflash_tui.console.narration import narrator

        return narrator(say, ends=False)

    def told_end(error: str) -> None:
        if arguments.json and not ended:
            from dflash_tui.cli.progress import json_lines

            json_lines(narrate)(happened.TransferEnded("", error=error, stopped=error == INTERRUPTION))

    async def work() -> int:
        try:
            async with open_console(load_config(config_path(arguments)), open_store(arguments), telling) as console:
                answer = await headless.COMMANDS["fetch"](console, arguments)
        finally:
            if bars is not None:
                bars.close()
        print_answer(answer, arguments)
        return DONE

    try:
        return run_async(work())
    except KeyboardInterrupt:
        told_end(INTERRUPTION)
        raise
    except BrokenPipeError:
        raise
    except TROUBLE as error:
        told_end(sentence_of(error))
        raise


def _what(text: str) -> str:
    """Which checkpoint is meant: a word, a number, or something with a folder in it."""
    number = text.removeprefix("step_")
    if text == "latest" or "/" in text:
        return text
    if number.isdecimal() and len(number) < 16:
        return number
    raise argparse.ArgumentTypeError(
        f"found {text[:60]!r}, expected latest, a step such as 4000, or a path such as /runs/step_4000"
    )


def _rate(text: str) -> float:
    from dflash_tui.config.rates import read_rate

    try:
        return read_rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
