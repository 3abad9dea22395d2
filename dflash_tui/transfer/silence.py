"""That nothing comes with a command's bytes but what it prints: asked before any of them move."""

from __future__ import annotations

from dflash_tui.hosts.base import Host
from dflash_tui.transfer.errors import TransferError

_MARK = "dflash"
_SECONDS = 60.0
_SHOWN = 60


async def refuse_what_is_printed(host: Host) -> None:
    """Raise TransferError when a login shell (or a launcher) prints on stdout by itself: that would be taken for bytes
    of a file."""
    done = await host.run(["sh", "-c", f"echo {_MARK}"], timeout=_SECONDS, check=False)
    if done.status == 0 and done.text != f"{_MARK}\n":
        more = [line for line in done.text.splitlines() if line.strip() and line != _MARK] or ["an empty line"]
        raise TransferError(
            f"the login shell of {host.name} prints {more[0].strip()[:_SHOWN]!r} on stdout, where the bytes of files "
            "pass; make it silent for non-interactive shells (in its .bashrc: [ -t 1 ] before whatever prints)"
        )
