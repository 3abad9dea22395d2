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

from dflash_tui.checkpoints.segments import Late, Literal, Range, joined

BLOCK = 1 << 20
_FLAGS = "iflag=skip_bytes,count_bytes,fullblock"

# "/" is there in a bare chroot, too, where /dev is not.
_BEGIN = f"""set -e
export LC_ALL=C
if said=$(dd if=/ {_FLAGS} skip=0 count=0 2>&1); then
  range() {{ dd if="$1" bs={BLOCK} {_FLAGS} skip="$2" count="$3"; }}
else
  range() {{ tail -c +$(($2 + 1)) -- "$1" | head -c "$3"; }}
fi
"""


@dataclass(frozen=True)
class Emission:
    """A command and the program for its stdin."""

    argv: tuple[str, ...]
    stdin: bytes


def emission(folder: str, segments: Sequence[Literal | Range]) -> Emission:
    """The command that writes these segments, ranges being of files in `folder`, one after another to its stdout."""
    lines = [_BEGIN]
    for segment in joined(segments):
        if isinstance(segment, Late):
            raise ValueError("the last piece is not known before the others have passed")
        if isinstance(segment, Literal):
            if segment.data:
                lines.append(f"printf '{''.join(map(_escaped, segment.data))}'\n")
        elif segment.nbytes:
            path = shlex.quote(posixpath.join(folder, segment.file))
            lines.append(f"range {path} {segment.offset} {segment.nbytes}\n")
    return Emission(("sh",), "".join(lines).encode("utf-8", "surrogateescape"))


def _escaped(byte: int) -> str:
    return f"\\{byte:03o}"
