"""The command line: parse, call an act, print. stdout is data, stderr is narration; exit codes mean something.

0 done · 1 failed · 2 usage or config · 3 not comparable, or a gate not met · 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from dflash_tui.cli.exits import DONE, FAILED, INTERRUPTED, NOT_COMPARABLE, USAGE
from dflash_tui.cli.parser import build_parser
from dflash_tui.cli.printing import INTERRUPTION, complain, give_up_stdout, sentence_of
from dflash_tui.cli.transfer import with_its_value

__all__ = ["DONE", "FAILED", "INTERRUPTED", "NOT_COMPARABLE", "USAGE", "build_parser", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    if sys.stderr is None:  # closed by whoever started this: print would take stdout in its place
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    arguments = build_parser().parse_args(with_its_value(sys.argv[1:] if argv is None else argv))
    try:
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        complain(INTERRUPTION, arguments)
        return INTERRUPTED
    except BrokenPipeError:
        give_up_stdout()
        return FAILED
    except _trouble() as error:  # looked up only now: the families cost imports
        return _failed(error, arguments)


def _trouble() -> tuple[type[Exception], ...]:
    """What is told as one sentence; anything else is a defect and keeps its traceback."""
    from dflash_tui.console.errors import TROUBLE

    return TROUBLE


def _failed(error: Exception, arguments: argparse.Namespace) -> int:
    """The sentence may quote a host, so it is shown without control characters."""
    from dflash_tui.config import ConfigError
    from dflash_tui.console.errors import BadArgument
    from dflash_tui.results.errors import NothingInCommon

    complain(sentence_of(error), arguments)
    if isinstance(error, NothingInCommon):
        return NOT_COMPARABLE
    return USAGE if isinstance(error, ConfigError | BadArgument) else FAILED
