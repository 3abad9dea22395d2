"""stdout is data, stderr is narration."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from typing import Any

INTERRUPTION = "interrupted"


def narrate(sentence: str) -> None:
    """A line for the person who watches a headless command."""
    from dflash_tui.console.words import plain

    print(plain(sentence), file=sys.stderr, flush=True)


def sentence_of(error: Exception) -> str:
    """What went wrong, on one line."""
    sentence = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        sentence = f"{error.filename}: {error.strerror}"
    return sentence.replace("\n", " ")


def complain(sentence: str, arguments: argparse.Namespace) -> None:
    """Say why a command ends; as a JSON line where it promises these on stderr."""
    if arguments.json and arguments.lines:
        narrate(json.dumps({"event": "error", "sentence": sentence}))
    else:
        narrate(sentence if sentence == INTERRUPTION else f"dflash-tui: {sentence}")


def print_answer(answer: Any, arguments: argparse.Namespace, *, prose: bool = False) -> None:
    """The answer as text, or with --json as JSON, on stdout. `prose`: sentences, which a terminal shows unbroken."""
    from dflash_tui.console.words import as_json, as_text

    encoding = (sys.stdout and sys.stdout.encoding) or "utf-8"
    if arguments.json:
        text = as_json(answer, encoding)
    else:  # a terminal without τ still shows the rest
        headed = bool(sys.stdout and sys.stdout.isatty())
        text = as_text(answer, headed=headed).encode(encoding, "backslashreplace").decode(encoding)
        if prose and sys.stdout and sys.stdout.isatty():
            from dflash_tui.cli.prose import folded

            text = folded(text, shutil.get_terminal_size().columns)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up_stdout()
        raise OSError(error.errno, error.strerror, "standard output") from error


def give_up_stderr() -> None:
    """The same for narration."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def give_up_stdout() -> None:
    """Let what could not be written there be lost, instead of failing again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
