"""Where a checkpoint's bytes come from: everything in this room reads through `Files`, near or far."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete

_DEPTH = 2


class Files(Protocol):
    """The files of one checkpoint by relative name ("/" between parts). Raises CheckpointError or the backing's own."""

    def names(self) -> list[str]:
        """Relative names of the files, sorted."""
        ...

    def size(self, name: str) -> int:
        """Bytes in the file."""
        ...

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Exactly the bytes offset … offset+length. Raises CheckpointIncomplete when the file is shorter."""
        ...


@runtime_checkable
class BatchedFiles(Protocol):
    """A backing that can have many reads under way at once (a remote host: one round trip instead of dozens)."""

    def read_many(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, length), in order."""
        ...


def read_many(files: Files, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes of each (offset, length) of one file, in one go where the backing can do that."""
    if isinstance(files, BatchedFiles):
        return files.read_many(name, ranges)
    return [files.read(name, offset, length) for offset, length in ranges]


class LocalFiles:
    """Files below a folder of this machine, two folders deep at most, or only the names given."""

    def __init__(self, root: Path, only: Sequence[str] | None = None) -> None:
        self.root = root
        self._only = None if only is None else sorted(only)

    def names(self) -> list[str]:
        """Relative names of the regular files (links to files count, links to folders are not followed)."""
        if self._only is not None:
            return list(self._only)
        found: list[str] = []
        for folder, folders, files in os.walk(self.root):
            relative = Path(folder).relative_to(self.root)
            if len(relative.parts) >= _DEPTH:
                folders.clear()
            found.extend((relative / name).as_posix() for name in files if (Path(folder) / name).is_file())
        return sorted(found)

    def size(self, name: str) -> int:
        """Bytes in the file. Raises CheckpointError when it is not there."""
        try:
            return os.stat(self.root / name).st_size
        except OSError as error:
            raise CheckpointError(f"{self.root / name}: can't be read ({error.strerror})") from error

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Exactly the bytes offset … offset+length. Raises CheckpointIncomplete when the file is shorter."""
        try:
            with open(self.root / name, "rb", buffering=0) as file:
                file.seek(offset)
                parts: list[bytes] = []
                missing = length
                while missing > 0:
                    part = file.read(missing)
                    if not part:
                        raise CheckpointIncomplete(
                            f"{self.root / name}: ends at byte {offset + length - missing}, expected {offset + length}"
                        )
                    parts.append(part)
                    missing -= len(part)
                return b"".join(parts) if len(parts) != 1 else parts[0]
        except OSError as error:
            raise CheckpointError(f"{self.root / name}: can't be read ({error.strerror})") from error


def local_files(path: Path) -> LocalFiles:
    """The files of a checkpoint on this machine: a folder, or a single file."""
    return LocalFiles(path) if path.is_dir() else LocalFiles(path.parent, (path.name,))
