"""The folder that one side of the demo may touch, and the rule that keeps every path inside it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Folder:
    """One side's whole world: a folder given by its real absolute path. Relative paths start there.

    Paths mean what they mean to the operating system (they are real ones); whatever leads out of the folder, by `..`,
    by a symbolic link or by being elsewhere, raises PermissionError, as if the side's user had no rights there.
    """

    root: str

    def resolve(self, path: str) -> str:
        """The real path of what `path` leads to, all links followed; the last parts need not exist."""
        return self._inside(path, os.path.realpath(self._absolute(path)))

    def entry(self, path: str) -> str:
        """The real path of the directory entry `path` itself: a link in the last place is not followed, unless a slash
        comes after it."""
        folder, name = os.path.split(self._absolute(path))
        if name in ("", ".", ".."):
            return self.resolve(path)
        return self._inside(path, os.path.join(os.path.realpath(folder), name))

    def _absolute(self, path: str) -> str:
        if "\0" in path:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return os.path.join(self.root, path)

    def _inside(self, path: str, real: str) -> str:
        if real != self.root and not real.startswith(self.root + "/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real
