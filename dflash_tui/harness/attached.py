"""A run that is held: it lives while the command that started it does, for hosts where nothing can be left running."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

from dflash_tui.harness import process, rundir

_LET_GO = "its console closed, or the link to it broke: nothing holds this run any more"


def hold(run_dir: Path) -> None:
    """Print process.json in one line, send further output into the log, and stop this process when standard input
    ends: whoever holds the other end has gone then, also where the launcher that ran it can't tell."""
    print(" ".join((run_dir / rundir.PROCESS).read_text(encoding="utf-8").split()), flush=True)
    held = os.dup(0)
    process.redirect(run_dir / rundir.LOG)
    sys.stdout.flush()
    threading.Thread(target=_wait, args=(held, run_dir), name="held", daemon=True).start()


def _wait(held: int, run_dir: Path) -> None:
    with contextlib.suppress(OSError):
        while os.read(held, 1 << 10):
            pass
    with contextlib.suppress(OSError):  # its run directory may be gone, or the disk full: it ends all the same
        rundir.say(run_dir, _LET_GO)
    os.kill(os.getpid(), signal.SIGTERM)
