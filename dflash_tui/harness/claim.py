"""One run a request: who asks for what a run beside it has answered, or works on, is told its name and begins none."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from dflash_tui.harness import process, rundir
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.neighbours import request_id
from dflash_tui.harness.turn import lock, opened

_LINK, _HARNESS = "checkpoint", ".dflash"


@contextlib.contextmanager
def alone(run_dir: Path) -> Iterator[int]:
    """Begin runs one after another: the lock of the folder that keeps the harness beside the folder of runs, while the
    block runs.

    Two that look for each other at the same moment would both find nothing. Not the root that holds both: who guards a
    file in it for a script of the user's own holds its lock for as long as the script works. The descriptor is for a
    child that must not go on holding it.
    """
    root = run_dir.parent.parent
    with opened(root / _HARNESS if (root / _HARNESS).is_dir() else root) as folder:
        lock(folder)
        yield folder


def same(run_dir: Path) -> str:
    """The newest run beside `run_dir` that has answered the same request or works on it; "" where there is none. A
    baseline's is answered by a run of the baseline of that name alone: by its name it is looked for."""
    wanted, baseline = request_id(run_dir), rundir.baseline(run_dir)
    if not wanted:
        return ""
    found: list[tuple[float, str]] = []
    for other in run_dir.parent.iterdir():
        if other == run_dir or other.is_symlink():
            continue
        with contextlib.suppress(OSError, HarnessError):  # not ours to read, or damaged: it answers nothing
            manifest = other / rundir.MANIFEST
            if wanted.encode() not in manifest.read_bytes() or request_id(other) != wanted:
                continue
            if rundir.baseline(other) == baseline and _answers(other):
                found.append((manifest.stat().st_mtime, other.name))
    return max(found)[1] if found else ""


def discard(run_dir: Path) -> None:
    """Take away a run directory in which nothing has begun. One that holds anything beside the request and the link to
    the checkpoint is left as it is."""
    names = {entry.name for entry in run_dir.iterdir()}
    if names <= {rundir.MANIFEST, _LINK}:
        shutil.rmtree(run_dir)


def _answers(run_dir: Path) -> bool:
    """Whether its process runs, or has ended with results. One without a process has not begun."""
    if not (run_dir / rundir.PROCESS).exists():
        return False
    state = process.state(run_dir)
    results = (run_dir / rundir.RESULTS).exists() or (run_dir / rundir.EXTERNAL).exists()
    return state == "running" or (state == "finished" and results)
