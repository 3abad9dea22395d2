"""The `sh` of a demo host: this machine's own, for the programs with which checkpoints are moved, and for nothing else.

Moving takes locks, pipes and process ids, which only a real shell has. Its programs are ours; the paths that they are
given must lie in the side's folder, as everywhere in the demo.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from dflash_tui.demo.commands import NOT_FOUND, REFUSED, Call, Command, Reader
from dflash_tui.demo.machine import environment, process

_SHELL = "/bin/sh"
_OURS = "dflash"
_QUESTIONS = b"exec 3>&1"
"""How a shell begins that stands open for questions. Here each question is a command of its own: the demo's hosts have
no other programs than the demo's, whatever this machine has."""

_FIRST = 1 << 16


def sh(root: str) -> Command:
    """`sh -c PROGRAM dflash [WORD]...`, and `sh` with a program on its input. `root` is the demo's folder."""

    async def command(call: Call) -> int:
        words = call.argv[1:]
        if words and (len(words) < 3 or words[0] != "-c" or words[2] != _OURS):
            await call.complain("the demo's hosts have no shell for anybody's programs")
            return NOT_FOUND
        for word in words[3:]:
            path = word if word.startswith("/") else word.partition("=")[2]
            if path.startswith("/") and path != os.devnull:
                try:
                    call.side.folder.resolve(path)
                except PermissionError:
                    await call.complain(f"{path}: Permission denied")
                    return REFUSED
        if not words:
            first = await call.stdin.read(_FIRST)
            if first.startswith(_QUESTIONS):
                await call.complain("the demo's hosts keep no shell open")
                return NOT_FOUND
            call = replace(call, stdin=_Begun(first, call.stdin))
        return await process(call, [_SHELL, *words], environment(root, call.side.folder.root))

    return command


@dataclass
class _Begun:
    """An input of which the first bytes have been looked at."""

    first: bytes
    rest: Reader

    async def read(self, limit: int) -> bytes:
        """See `Reader`."""
        if not self.first:
            return await self.rest.read(limit)
        data, self.first = self.first[:limit], self.first[limit:]
        return data
