"""A console for a face: made when the face is on the screen, closed when it is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dflash_tui.config import Config
from dflash_tui.results.store import Store

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


class Shown(Protocol):
    """What an app shows: connected after its first paint, closed when it has been quit."""

    async def connect(self) -> Console:
        """Make the console and start it."""
        ...

    async def close(self) -> None:
        """End what `connect` began."""
        ...


class Session:
    """A console over the hosts of a config."""

    def __init__(self, config: Config, store: Store) -> None:
        self._config, self._store = config, store
        self._console: Console | None = None

    async def connect(self) -> Console:
        """Start to watch; loaded only now, so that the first paint waits for nothing that it does not show."""
        from dflash_tui.console.console import Console

        self._console = Console(self._config, self._store)
        await self._console.start()
        return self._console

    async def close(self) -> None:
        """End every job and connection."""
        if self._console is not None:
            await self._console.close()
