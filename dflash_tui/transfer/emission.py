"""The command that makes a source write an output's bytes to its stdout: ranges of its files, and literals between.

The program is a shell script on the command's stdin, so that no argument grows too long and no launcher has to carry
quotes. It needs a POSIX shell with `printf` built in, and `dd` that takes positions in bytes (GNU, busybox); elsewhere
`tail` and `head`. Whoever reads the stream counts its bytes: a file that ends early makes it short.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal as Choice

from dflash_tui.checkpoints.segments import Late, Literal, Range, joined
from dflash_tui.hosts.base import Host

BLOCK = 1 << 20
_FLAGS = "iflag=skip_bytes,count_bytes,fullblock"

Skipping = Choice["dd", "tail"]


@dataclass(frozen=True)
class Emission:
    """A command and the program for its stdin."""

    argv: tuple[str, ...]
    stdin: bytes


async def skipping(host: Host) -> Skipping:
    """How ranges are read on a host: asked once for a transfer."""
    # "/" is there in a bare chroot, too, where /dev is not.
    done = await host.run(["dd", "if=/", _FLAGS, "skip=0", "count=0"], check=False)
    return "dd" if done.status == 0 else "tail"


def emission(folder: str, segments: Sequence[Literal | Range], by: Skipping = "dd") -> Emission:
    """The command that writes these segments, ranges being of files in `folder`, one after another to its stdout."""
    lines = ["set -e", "export LC_ALL=C"]
    for segment in joined(segments):
        if isinstance(segment, Late):
            raise ValueError("the last piece is not known before the others have passed")
        if isinstance(segment, Literal):
            if segment.data:
                lines.append(f"printf '{''.join(map(_escaped, segment.data))}'")
        elif segment.nbytes:
            lines.append(_read(posixpath.join(folder, segment.file), segment, by))
    return Emission(("sh",), "\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))


def _escaped(byte: int) -> str:
    return f"\\{byte:03o}"


def _read(path: str, segment: Range, by: Skipping) -> str:
    if by == "dd":
        source = shlex.quote(f"if={path}")
        return f"dd {source} bs={BLOCK} {_FLAGS} skip={segment.offset} count={segment.nbytes}"
    quoted = shlex.quote(path)
    return f"tail -c +{segment.offset + 1} -- {quoted} | head -c {segment.nbytes}"
