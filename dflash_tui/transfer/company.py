"""Who else on this workstation moves bytes now: transfers of other consoles and commands of the same user."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import secrets
from pathlib import Path


class Company:
    """A folder in which each running transfer holds one file locked: a process that dies lets go of it by dying. The
    files of other workstations, which may share the folder, are not counted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine = f"{platform.node() or 'here'}."
        self._held: dict[str, int] = {}

    def enter(self) -> None:
        """One more transfer of this process runs. Where no file can be held the others don't see it."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            held = None
            while held is None:
                name = f"{self._mine}{os.getpid()}.{secrets.token_hex(4)}"
                held = _hold(self._folder / name)
            self._held[name] = held

    def leave(self) -> None:
        """One of them has ended."""
        if self._held:
            name, descriptor = self._held.popitem()
            (self._folder / name).unlink(missing_ok=True)
            os.close(descriptor)

    def others(self) -> int:
        """How many transfers run in other processes. What dead ones left is removed."""
        count = 0
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(self._folder)):
                if entry.name.startswith(self._mine) and entry.name not in self._held:
                    count += _is_held(entry.path)
        return count


def _hold(path: Path) -> int | None:
    """The descriptor that keeps a new file locked; None where one who looked for dead ones removed it meanwhile."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _is_held(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared: two who look at once must not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):
            os.unlink(path)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
