"""The demo's last act, whatever ends the app: ends all that the demo started, then removes its folder.

Runs by file path as a child in a session of its own, with nothing but the standard library's lightest modules, tethered
by its standard input: when that ends, the app is gone or done. It makes the folder itself and prints its path, so there
is never a folder without someone to remove it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator

MARK = "DFLASH_DEMO_ROOT"
"""Environment variable of every process of a demo: its folder. Children inherit it, however they detach."""

PATIENCE = 0.8
"""Seconds between SIGTERM and SIGKILL."""

LIMIT = 4.5
"""Seconds after which reaping gives up."""

_PAUSE = 0.08
_QUIET_ROUNDS = 4
"""Rounds in a row that must find nothing: a process may be between fork and exec, not yet marked, when it is over."""


def main(base: str) -> int:
    """Make a folder under `base`, print its path, wait for the end of standard input, reap; 0 when nothing is left."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    root = os.path.join(base, f"dflash-demo-{os.urandom(6).hex()}")
    os.mkdir(root, 0o700)
    with contextlib.suppress(OSError):
        os.write(1, f"{root}\n".encode())
    while os.read(0, 4096):
        pass
    return 0 if reap(root) else 1


def reap(root: str) -> bool:
    """End every process of the demo and remove its folder; False when something is left after `LIMIT` seconds."""
    end = time.monotonic() + LIMIT
    told: dict[int, float] = {}
    quiet = 0
    while quiet < _QUIET_ROUNDS:
        now = time.monotonic()
        if now > end:
            return False
        found = set(living(root))
        for pid in found:
            since = told.setdefault(pid, now)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM if since == now else signal.SIGKILL if now - since > PATIENCE else 0)
        if not found:
            shutil.rmtree(root, ignore_errors=True)
        quiet = 0 if found or os.path.lexists(root) else quiet + 1
        time.sleep(_PAUSE)
    return True


def living(root: str) -> Iterator[int]:
    """Pids of the demo's processes: those with the mark, and those that a ``process.json`` in the folder names."""
    yield from _marked(root) if os.path.isdir("/proc/self") else _named_in_commands(root)
    for folder, _, files in os.walk(root):
        if "process.json" in files and (pid := _recorded(os.path.join(folder, "process.json"))):
            yield pid


def _marked(root: str) -> Iterator[int]:
    mark = f"{MARK}={root}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        # Gone meanwhile, or another user's. What is dead but not yet waited for has an empty environment.
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as stream:
            if mark in stream.read().split(b"\0"):
                yield int(name)


def _named_in_commands(root: str) -> Iterator[int]:
    """Without /proc (macOS): every process of the demo has a path below the folder in its command line."""
    import subprocess

    listing = subprocess.run(["ps", "-axwwo", "pid=,command="], capture_output=True, text=True, check=False).stdout
    for line in listing.splitlines():
        pid, _, command = line.strip().partition(" ")
        if f"{root}/" in command and int(pid) != os.getpid():
            yield int(pid)


def _recorded(path: str) -> int | None:
    """The pid of a ``process.json`` while that very process lives: its start ticks (proc(5), field 22) must agree."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
        pid, ticks = int(found["pid"]), int(found["start_ticks"])
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
        same = fields[0] not in "ZX" and int(fields[19]) == ticks
    except (OSError, ValueError, TypeError, LookupError):
        return None
    return pid if same and pid not in (1, os.getpid()) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
