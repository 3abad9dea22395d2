"""The command line: parse, call an act, print. stdout is data, stderr is narration; exit codes mean something.

0 done · 1 failed · 2 usage or config · 3 not comparable, or a gate not met · 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dflash_tui.cli.exits import DONE, FAILED, INTERRUPTED, NOT_COMPARABLE, USAGE
from dflash_tui.cli.parser import build_parser
from dflash_tui.cli.printing import give_up_stdout, narrate

__all__ = ["DONE", "FAILED", "INTERRUPTED", "NOT_COMPARABLE", "USAGE", "build_parser", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    if sys.stderr is None:  # closed by whoever started this: print would take stdout in its place
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        give_up_stdout()
        return FAILED
    except _trouble() as error:  # looked up only now: the families cost imports
        return _failed(error)


def _trouble() -> tuple[type[Exception], ...]:
    """What is told as one sentence; anything else is a defect and keeps its traceback."""
    from dflash_tui.console.errors import TROUBLE

    return TROUBLE


def _failed(error: Exception) -> int:
    """The sentence may quote a host, so it is shown without control characters."""
    from dflash_tui.config import ConfigError
    from dflash_tui.results.errors import NothingInCommon

    sentence = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        sentence = f"{error.filename}: {error.strerror}"
    narrate(f"dflash-tui: {sentence}".replace("\n", " "))
    if isinstance(error, NothingInCommon):
        return NOT_COMPARABLE
    return USAGE if isinstance(error, ConfigError) else FAILED
