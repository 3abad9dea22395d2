"""A result file that lies on a host, brought here to be pinned."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath

from dflash_tui.console.acts.baselines import LARGEST_RESULT
from dflash_tui.console.acts.found import placed
from dflash_tui.console.console import Console
from dflash_tui.console.errors import ConsoleError


async def brought(console: Console, place: str) -> Path:
    """A copy of the file at ``HOST:PATH``, kept by its content. Raises ConsoleError, HostError."""
    host, path = placed(console, place, "import")
    found = await host.stat(path)
    if found.kind != "file" or found.size > LARGEST_RESULT:
        what = f"a {found.kind}" if found.kind != "file" else f"{found.size} bytes"
        raise ConsoleError(f"{host.name}:{path}: found {what}, expected a result file under {LARGEST_RESULT >> 20} MiB")
    data = await host.read(path, 0, found.size)
    copy = console.store.state / "imports" / hashlib.sha256(data).hexdigest() / PurePosixPath(path).name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(data)
    return copy
