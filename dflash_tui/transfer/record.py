"""What was moved into a folder, kept beside it, so that the same file is not moved or hashed twice."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from dflash_tui.hosts.base import FileMissing, Host, PermissionRefused, ReadShort, Stat
from dflash_tui.transfer.errors import TransferError

NAME = ".transfer.json"
_VERSION = 1
_KINDS = {"folder": "a folder", "link": "a link", "other": "no file"}
_LARGEST = 64 << 20
"""Some hundred thousand files; what is longer is not read, and costs hashing them again."""


@dataclass(frozen=True)
class Identity:
    """A file as far as it can be told without reading it; `inode` 0 where the host tells none."""

    size: int
    mtime: float
    inode: int

    @classmethod
    def of(cls, stat: Stat) -> Identity:
        """The identity that a stat tells."""
        return cls(stat.size, stat.mtime, stat.inode)


@dataclass(frozen=True)
class Recorded:
    """A verified file: its hash, what it was at the destination, and where it came from. `source` is None where it was
    made of nothing that lies there: no time of arrival may pass for the training's. `plan` names the bytes where a
    plan had an id (`journal.plan_id`): files of several sources, and of pieces of one."""

    sha256: str
    here: Identity
    host: str
    path: str
    source: Identity | None
    plan: str = ""


async def read_records(host: Host, folder: str) -> dict[str, Recorded]:
    """What a folder's record says, by relative name; {} without one, or with one that says nothing that can be
    understood: the record only spares work. Raises TransferError where something else has its name, or nobody may read
    it, and HostError."""
    path = posixpath.join(folder, NAME)
    try:
        found = await host.stat(path, follow=False)
    except (FileMissing, PermissionRefused):  # who may not enter the folder is refused by it
        return {}
    try:
        if found.kind != "file":
            raise _unusable(host, path, f"is {_KINDS[found.kind]}")
        if found.size > _LARGEST:
            return {}
        data = await host.read(path, 0, found.size)
    except (FileMissing, ReadShort):
        return {}
    except PermissionRefused:
        raise _unusable(host, path, "can't be read by this user") from None
    try:
        said = json.loads(data)
        files = said["files"] if said["version"] == _VERSION else {}
        return {name: _recorded(entry) for name, entry in files.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


async def write_records(host: Host, folder: str, records: Mapping[str, Recorded]) -> None:
    """Replace a folder's record."""
    body = {"version": _VERSION, "files": {name: asdict(records[name]) for name in sorted(records)}}
    await host.write(posixpath.join(folder, NAME), json.dumps(body, indent=1).encode())


def _unusable(host: Host, path: str, said: str) -> TransferError:
    return TransferError(
        f"{host.name}:{path} {said}, and every transfer keeps its record in a file of that name; move it away or name "
        "another folder"
    )


def _recorded(entry: Mapping[str, object]) -> Recorded:
    here, source = entry["here"], entry["source"]
    if not (isinstance(here, dict) and (source is None or isinstance(source, dict))):
        raise TypeError("identities are objects")
    texts = [entry[key] for key in ("sha256", "host", "path")] + [entry.get("plan", "")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("names and hashes are strings")
    sha256, host, path, plan = map(str, texts)
    return Recorded(sha256, Identity(**here), host, path, Identity(**source) if source else None, plan)
