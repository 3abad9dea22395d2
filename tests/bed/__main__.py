"""The bed to walk around in: `python -m tests.bed` opens a shell on its workstation, where `dflash-tui` is installed.

The training goes on meanwhile. With arguments these are run instead of a shell; what is left open ends with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from tests.bed.bed import Bed, bed
from tests.harness.world import REPOSITORY

USAGE = "usage: python -m tests.bed [COMMAND …]    such as: python -m tests.bed dflash-tui status"
STEP_SECONDS = 1.6
SAVED_EVERY = 200  # steps


def main(argv: list[str]) -> int:
    """Stand the bed up, run a shell (or `argv`) on its workstation, and take everything down; the shell's status."""
    if argv[:1] in (["-h"], ["--help"]):
        print(f"{USAGE}\n\n{__doc__}")
        return 0
    with bed() as made:
        made.unset()
        ended = threading.Event()
        training = threading.Thread(target=_train, args=(made, ended), name="training")
        training.start()
        try:
            return subprocess.run(
                [*made.entering, *(argv or ["bash", "--norc"])],
                env={**made.environment(), "PATH": _path(made), "TERM": os.environ.get("TERM", "xterm-256color")},
                cwd=made.home,
                check=False,
            ).returncode
        finally:
            ended.set()
            training.join()


def _train(made: Bed, ended: threading.Event) -> None:
    while not ended.wait(STEP_SECONDS):
        step = made.grow_log()
        if step % SAVED_EVERY == 0:
            made.save(step)


def _path(made: Bed) -> str:
    folder = made.root / "bin"
    folder.mkdir()
    program = folder / "dflash-tui"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m dflash_tui "$@"\n')
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
