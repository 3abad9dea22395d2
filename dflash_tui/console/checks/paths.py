"""A path that is not there: how far it goes, and what is called nearly like the part that is missing."""

from __future__ import annotations

import difflib
import posixpath

from dflash_tui.hosts.base import FileMissing, Host, HostError, HostUnreachable

LISTED = 4  # names that are shown when none is near


async def where(host: Host, path: str, expected: str) -> str:
    """The sentence about a path that does not exist: what was expected there, and the nearest name that is."""
    return f"{host.name}:{path} does not exist; expected {expected}{await _nearest(host, path)}"


def other_kind(host: Host, path: str, kind: str, expected: str) -> str:
    """The sentence about a path that is something else than was expected."""
    found = "neither a file nor a folder" if kind == "other" else f"a {kind}"
    return f"{host.name}:{path} is {found}, expected {expected}"


async def _nearest(host: Host, path: str) -> str:
    folder, missing = posixpath.split(path.rstrip("/"))
    while True:
        try:
            entries = await host.list(folder or "/")
            break
        except HostUnreachable:
            raise
        except FileMissing:
            if folder in ("", "/"):
                return ""
            folder, missing = posixpath.split(folder)
        except HostError:
            return ""
    names = [entry.name for entry in entries]
    if any(entry.name == missing and entry.stat.kind == "link" for entry in entries):
        return f"; {posixpath.join(folder, missing)} is a link that leads nowhere"
    if missing in names:
        return "; it has come meanwhile: try again"
    near = difflib.get_close_matches(missing, names, 1, 0.5)
    if near:
        rest = path.rstrip("/")[len(posixpath.join(folder, missing)) :]
        return f"; did you mean {await _longest(host, posixpath.join(folder, near[0]), rest)}?"
    visible = [name for name in names if not name.startswith(".")]
    if not visible:
        return f"; {folder or '/'} is empty"
    more = ", …" if len(visible) > LISTED else ""
    return f"; {folder or '/'} has {', '.join(visible[:LISTED])}{more}"


async def _longest(host: Host, near: str, rest: str) -> str:
    """The near name with the rest of the wanted path, where that exists, else alone."""
    try:
        await host.stat(near + rest)
    except HostError:
        return near
    return near + rest
