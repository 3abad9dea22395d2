"""SFTP for one side of the demo: the same real paths as its commands see, and the same refusal of all others."""

from __future__ import annotations

import asyncio
import os

import asyncssh

from dflash_tui.demo.confine import Folder


class Files(asyncssh.SFTPServer):
    """asyncssh's server with every path resolved first. Its own `chroot` follows links that lead out; this does not."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], folder: Folder) -> None:
        super().__init__(channel)
        self._folder = folder

    def map_path(self, path: bytes) -> bytes:
        """The real path behind a path whose links are followed."""
        return os.fsencode(self._folder.resolve(os.fsdecode(path)))

    def _entry(self, path: bytes) -> str:
        return self._folder.entry(os.fsdecode(path))

    def listdir(self, path: bytes) -> list[bytes]:
        """Names only; asyncssh asks `lstat` for the rest. Its own listing looks at `..`, which may lie outside."""
        return os.listdir(self.map_path(path))

    def lstat(self, path: bytes) -> os.stat_result:
        """The entry itself."""
        return os.lstat(self._entry(path))

    def readlink(self, path: bytes) -> bytes:
        """A link's text as it is."""
        return os.fsencode(os.readlink(self._entry(path)))

    def remove(self, path: bytes) -> None:
        """Remove the entry itself."""
        os.remove(self._entry(path))

    def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """A new folder, which a dangling link must not place elsewhere."""
        os.mkdir(self._entry(path), 0o777 if attrs.permissions is None else attrs.permissions)

    def rmdir(self, path: bytes) -> None:
        """Remove an empty folder."""
        os.rmdir(self._entry(path))

    def rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Rename the entry itself; what exists is never replaced (SFTP 3)."""
        source, target = self._entry(oldpath), self._entry(newpath)
        if os.path.lexists(target):
            raise asyncssh.SFTPFailure("File already exists")
        os.rename(source, target)

    def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Rename the entry itself, replacing what exists."""
        os.replace(self._entry(oldpath), self._entry(newpath))

    def link(self, oldpath: bytes, newpath: bytes) -> None:
        """A hard link; of a link itself, not of what it leads to."""
        os.link(self._entry(oldpath), self._entry(newpath), follow_symlinks=False)

    def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        """A symbolic link, whose text must not lead out of the folder."""
        target = self._entry(newpath)
        self._folder.resolve(os.path.join(os.path.dirname(target), os.fsdecode(oldpath)))
        os.symlink(os.fsdecode(oldpath), target)

    async def fsync(self, file_obj: object) -> None:
        """In a thread: a slow disk must not stop the screen, which is drawn by the same loop."""
        await asyncio.to_thread(super().fsync, file_obj)

    def lsetstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Refused for links: nothing here needs it, and asyncssh would follow them in the path."""
        entry = self._entry(path)
        if os.path.islink(entry):
            raise asyncssh.SFTPOpUnsupported("Attributes of links can't be set")
        super().lsetstat(os.fsencode(entry), attrs)
