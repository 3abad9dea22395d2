"""What the app needs of a console, so that it can be driven by the real one, the demo's or a test's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dflash_tui.console.state import State


class ConsoleLike(Protocol):
    """Owns hosts and jobs; its state is what the app shows. Callbacks arrive in the event loop."""

    @property
    def state(self) -> State:
        """The newest folded state."""

    def listen(self, callback: Callable[[State], None]) -> Callable[[], None]:
        """Call `callback` after events were folded; the returned function ends that."""

    async def start(self) -> None:
        """Connect and begin to watch."""

    def begin(self, act: str, **options: Any) -> None:
        """Start an act ("evaluate", "fetch", "capture", "pin", "stop", "trust", "reconnect") and return at once."""
