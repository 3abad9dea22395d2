"""What is known of an unfinished part, kept beside it: whose bytes they are and the hashes that passed.

A part and its journal have names that hold the plan's id, a hash of the source's host, paths and identities and of the
output's pieces: what lies under such a name are bytes of exactly this plan, or nothing of use. The journal is a line of
JSON for what it is about, then one for each chunk that passed, the last one about a chunk being the one that counts.
Lines are only added. Each tells a truth about the source, whoever writes it and however late: that is why nothing needs
to be locked here. It only spares work: what can't be read is not there.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dflash_tui.checkpoints.segments import Late, Literal, Output, Range, joined
from dflash_tui.hosts.base import Host
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.record import Identity

_VERSION = 1
_NAME_BYTES = 120
_BLOCK, _BLOCKS = 1 << 16, 256
"""A journal of more than 16 MiB is none."""
_OURS = re.compile(r"(.+)\.[0-9a-f]{12}(?:\.[0-9a-f]{8})?\.(?:part|journal|link)", re.DOTALL)
_ASIDE = re.compile(r"(.+)\.[0-9a-f]{8}\.part", re.DOTALL)
_APPEND = """lines=$(cat) && [ -n "$lines" ] && [ -e "$1" ] && printf '\\n%s\\n' "$lines" >>"$1" """
"""What came whole is added, after a newline that ends what did not; to a journal that is still there."""


def plan_id(host: str, folder: str, sources: Mapping[str, Identity], output: Output) -> str:
    """12 hex digits that name these bytes: other sources, or other pieces of them, have another."""
    digest = hashlib.sha256()
    seen = [(name, found.size, found.mtime, found.inode) for name, found in sorted(sources.items())]
    digest.update(repr((host, folder, seen, output.name)).encode("utf-8", "surrogateescape"))
    # What is read in one go is one piece, however it was cut; only a Late tells its ranges apart.
    late = any(isinstance(segment, Late) for segment in output.segments)
    for segment in output.segments if late else joined(output.segments):
        match segment:
            case Range():
                said = repr((segment.file, segment.offset, segment.nbytes)).encode("utf-8", "surrogateescape")
            case Literal():
                said = b"literal" + hashlib.sha256(segment.data).digest()
            case Late():
                said = f"late {segment.nbytes}".encode()
        digest.update(len(said).to_bytes(4, "big") + said)
    return digest.hexdigest()[:12]


def part_name(name: str, plan: str) -> str:
    """The name of a plan's part of something that is going to be called `name`."""
    return f"{_stem(name)}.{plan}.part"


def journal_name(name: str, plan: str) -> str:
    """The name of that part's journal."""
    return f"{_stem(name)}.{plan}.journal"


def link_name(name: str, plan: str) -> str:
    """The name under which a file of the same host waits to be named: it may be the source itself, so nothing that has
    it is ever written to."""
    return f"{_stem(name)}.{plan}.link"


def aside_name(part: str) -> str:
    """The name that a proven part has while it gets its own: nobody who wants to write to a part knows it."""
    return f"{part.removesuffix('.part')}.{secrets.token_hex(4)}.part"


def asides(entries: Iterable[str]) -> dict[str, list[str]]:
    """Those entries of a folder that may be parts on their way to their own names, by what such a part is called."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        if (match := _ASIDE.fullmatch(entry)) is not None:
            found.setdefault(f"{match[1]}.part", []).append(entry)
    return found


def pieces_of(entries: Iterable[str], names: Iterable[str]) -> list[str]:
    """Those entries of a folder that are parts, links or journals of anything that wanted one of these names there."""
    stems = {_stem(name) for name in names}
    return [entry for entry in entries if (match := _OURS.fullmatch(entry)) is not None and match[1] in stems]


async def old_pieces(host: Host, finals: Iterable[str]) -> list[str]:
    """The paths of all that lies there of what wanted one of these final paths. Raises HostError."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for final in finals:
        folder, name = posixpath.split(final)
        names[folder].append(name)
    old: list[str] = []
    for folder, inside in names.items():
        entries = [entry.name for entry in await host.list(folder)]
        old += [posixpath.join(folder, entry) for entry in pieces_of(entries, inside)]
    return old


def _stem(name: str) -> str:
    """Short enough for any filesystem, whatever the characters."""
    return "." + name.encode("utf-8", "surrogateescape")[:_NAME_BYTES].decode("utf-8", "ignore")


@dataclass
class Known:
    """What has passed of a file: the SHA-256 (hex) of chunks by their number, and the CRC-32 of ranges by their index
    in the output."""

    chunks: dict[int, str] = field(default_factory=dict)
    crcs: dict[int, int] = field(default_factory=dict)

    def forget_from(self, chunk: int) -> None:
        """The chunks from this one on are going to pass again."""
        self.chunks = {number: sha256 for number, sha256 in self.chunks.items() if number < chunk}


def header(plan: str, name: str, size: int, host: str, folder: str, sources: Mapping[str, Identity]) -> bytes:
    """A journal's first line."""
    seen = {key: [found.size, found.mtime, found.inode] for key, found in sorted(sources.items())}
    body = {"version": _VERSION, "plan": plan, "name": name, "size": size, "host": host, "folder": folder}
    return json.dumps(body | {"sources": seen}).encode() + b"\n"


def chunk_line(number: int, sha256: str) -> str:
    """The line that says that a chunk passed."""
    return json.dumps({"n": number, "sha256": sha256})


def crc_line(index: int, crc: int) -> str:
    """The line that says that a range passed whole."""
    return json.dumps({"range": index, "crc32": crc})


async def add_lines(host: Host, path: str, lines: list[str]) -> None:
    """Add lines to a journal. Raises HostError."""
    await host.run(["sh", "-c", _APPEND, "dflash", path], stdin="\n".join(lines).encode(), timeout=30)


async def read_journal(host: Host, path: str, plan: str) -> Known | None:
    """What a journal knows, or None where there is none of this plan that can be read."""
    reading = ["dd", f"if={path}", f"bs={_BLOCK}", f"count={_BLOCKS}"]
    done = await host.run(reading, timeout=60, check=False)
    return parse_journal(done.stdout, plan) if done.status == 0 else None


def parse_journal(data: bytes, plan: str) -> Known | None:
    """What a journal's bytes tell; lines that are torn or foreign tell nothing. None for another plan's, or none."""
    first, _, rest = data.partition(b"\n")
    head = _object(first)
    if head.get("version") != _VERSION or head.get("plan") != plan:
        return None
    known = Known()
    for line in rest.split(b"\n"):
        match _object(line):
            case {"n": int(number), "sha256": str(sha256)} if number >= 0 and re.fullmatch(r"[0-9a-f]{64}", sha256):
                known.chunks[number] = sha256
            case {"range": int(index), "crc32": int(crc)} if index >= 0 and 0 <= crc < 1 << 32:
                known.crcs[index] = crc
            case _:
                continue
    return known


def _object(line: bytes) -> dict[str, object]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


async def start_journal(host: Host, path: str, first: bytes, known: Known) -> None:
    """Write a journal anew, atomically. Raises TransferError where the destination can't keep it."""
    lines = [chunk_line(*item) for item in sorted(known.chunks.items())]
    lines += [crc_line(*item) for item in sorted(known.crcs.items())]
    if not path.startswith("/"):
        raise TransferError(f"{host.name}: {path!r} is not an absolute path")
    await host.write(path, first + "".join(f"{line}\n" for line in lines).encode())
