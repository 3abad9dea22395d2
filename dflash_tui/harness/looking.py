"""Looking around at the root on an evaluation host: what lies there, who has it open, what a transfer has recorded.

For programs that are sent to a Python there (`evals.sent`), nothing being installed; hence it imports nothing of ours
but what is sent with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from typing import Any, Dict, Iterator, List, Set, Tuple

QUIET_SECONDS = 900.0
"""A transfer that was cut tries again within minutes: what is younger may be somebody's work."""

PIECE = re.compile(r"\..{1,120}\.[0-9a-f]{12}(?:\.[0-9a-f]{8})?\.(?:part|journal|link)", re.DOTALL)
TEMPORARY = re.compile(r"\..{1,40}\.[0-9a-f]{12}\.tmp", re.DOTALL)
CLAIM = ".transfer.claim"
RECORD = ".transfer.json"

Identity = Tuple[int, int]


def entries(folder: str) -> Iterator[Tuple[str, str, os.stat_result]]:
    """Name, path and own stat (links are not followed) of what lies in a folder; nothing where it can't be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        try:
            yield name, path, os.lstat(path)
        except OSError:
            continue


def below(folder: str) -> Iterator[Tuple[str, str, os.stat_result]]:
    """The same of a folder and those in it: a checkpoint's files may lie in folders of their own."""
    for inside, _, _ in os.walk(folder):
        yield from entries(inside)


def identity(found: os.stat_result) -> Identity:
    """What tells a file from any other of this machine."""
    return found.st_dev, found.st_ino


def linked(runs: str) -> Dict[Identity, str]:
    """Which run directory holds which file of a checkpoint."""
    found: Dict[Identity, str] = {}
    for run, run_dir, _ in entries(runs):
        for _, _, its in below(os.path.join(run_dir, "checkpoint")):
            if stat.S_ISREG(its.st_mode):
                found.setdefault(identity(its), run)
    return found


def recorded(path: str) -> Dict[str, Dict[str, Any]]:
    """The files that a transfer's record names, each with what it was when it had been verified (`here`) and where it
    came from; {} without a record, or with one that can't be read."""
    try:
        with open(path, "rb") as stream:
            files = json.load(stream)["files"]
        told = {name: entry for name, entry in files.items() if isinstance(entry, dict) and "here" in entry}
        return {name: entry for name, entry in told.items() if _plain(name)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def same(found: os.stat_result, here: Any) -> bool:
    """Size, time (whole seconds, as some hosts tell it) and inode, where it was told."""
    return (
        isinstance(here, dict)
        and found.st_size == here.get("size")
        and is_time(here.get("mtime"))
        and int(found.st_mtime) == int(here["mtime"])
        and here.get("inode") in (0, found.st_ino)
    )


def is_time(told: Any) -> bool:
    """Whether it is a time, in POSIX seconds; JSON knows infinities."""
    return isinstance(told, (int, float)) and abs(told) < 1e15


def locked(path: str) -> bool:
    """Whether a writer holds the lock on a part. Where that can't be told it is not known to be."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def open_files() -> Set[Identity]:
    """What the processes that we may look at have open."""
    found: Set[Identity] = set()
    for process in os.listdir("/proc"):
        folder = f"/proc/{process}/fd"
        try:
            handles = os.listdir(folder) if process.isdigit() else []
        except OSError:
            continue
        for handle in handles:
            try:
                its = os.stat(f"{folder}/{handle}")
            except OSError:
                continue
            if stat.S_ISREG(its.st_mode):
                found.add(identity(its))
    return found


def commands() -> List[str]:
    """The command lines of all processes but this one, which names what it is asked about."""
    found = []
    for process in os.listdir("/proc"):
        if process.isdigit() and int(process) != os.getpid():
            try:
                with open(f"/proc/{process}/cmdline", "rb") as stream:
                    found.append(os.fsdecode(stream.read().replace(b"\0", b" ")))
            except OSError:
                continue
    return found


def _plain(name: str) -> bool:
    return all(part not in ("", ".", "..") for part in name.split("/"))
