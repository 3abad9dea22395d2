"""Turns: one run of a folder of runs works at a time, whoever started it from wherever.

The turn is an exclusive `flock` on the folder that holds the run directories. Nothing lies on the disk for it, the
kernel gives it to those who wait in their order and takes it back at any death of its holder. On a network file
system a folder's lock is each host's own, as it should be.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from dflash_tui.harness import rundir
from dflash_tui.harness.neighbours import QUEUED, working
from dflash_tui.harness.rundir import Progress

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


@contextlib.contextmanager
def waited(run_dir: Path) -> Iterator[None]:
    """The turn among the runs beside `run_dir` (a capture's lies there, too), held until the block ends.

    While it waits its progress says "queued" and behind which run, and its heart beats; a signal ends the waiting as it
    ends work. A file system without locks is said in the log, and the run goes on as if it were alone.
    """
    with opened(run_dir.parent) as folder:
        if not _taken(folder, run_dir):
            _wait(folder, run_dir)
        yield


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder, for locking. Closing it gives the lock back."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def lock(folder: int, operation: int = fcntl.LOCK_EX) -> bool:
    """Lock a folder; False where its file system has no locks. Raises BlockingIOError with LOCK_NB when it is taken."""
    try:
        fcntl.flock(folder, operation)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def _taken(folder: int, run_dir: Path) -> bool:
    """Whether work may begin now."""
    try:
        if not lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            rundir.say(run_dir, f"{run_dir.parent} has no locks: other runs on this host are not waited for")
    except BlockingIOError:
        return False
    return True


def _wait(folder: int, run_dir: Path) -> None:
    told: str | None = None

    def tell() -> None:
        nonlocal told
        behind = _ahead(run_dir)
        if behind != told:
            told = behind
            progress.report(QUEUED, behind=behind)
            rundir.say(run_dir, f"queued behind {behind or 'another run'}: one run works on a host at a time")

    began = time.monotonic()
    with Progress(run_dir, 0, tell) as progress:
        tell()
        lock(folder)
    rundir.say(run_dir, f"its turn came after {time.monotonic() - began:.0f} s")


def _ahead(run_dir: Path) -> str:
    """The run that has the turn; "" where that can't be told."""
    others = (run for run in working(run_dir.parent) if run.phase != QUEUED and run.run_id != run_dir.name)
    return next((run.run_id for run in others), "")
