"""A console that does nothing and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dflash_tui.console import events as happened
from dflash_tui.console.state import State, fold


class RecordingConsole:
    """Keeps a state and every act that was begun."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state if state is not None else State()
        self.begun: list[tuple[str, dict[str, Any]]] = []
        self.started = 0
        self._listeners: list[Callable[[State], None]] = []

    def listen(self, callback: Callable[[State], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    async def start(self) -> None:
        self.started += 1

    def begin(self, act: str, **options: Any) -> None:
        self.begun.append((act, options))

    def emit(self, *events: happened.Event) -> None:
        """Fold events and tell the listeners at once."""
        for event in events:
            self.state = fold(self.state, event)
        for callback in tuple(self._listeners):
            callback(self.state)
