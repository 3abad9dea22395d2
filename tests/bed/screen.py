"""The app in a real terminal on the workstation, as a process that can be killed."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from tests.bed.bed import Bed
from tests.sshd import need
from tests.workstation import until

_PATIENCE = 60.0


class Screen:
    """`dflash-tui` in a tmux of its own. `start` may be called again after `kill`."""

    def __init__(self, bed: Bed, width: int = 120, height: int = 40) -> None:
        need(shutil.which("tmux") is not None, "tmux")
        self._bed, self._size = bed, (str(width), str(height))
        self._tmux = ["tmux", "-S", os.fspath(bed.root / "tmux"), "-f", "/dev/null"]
        self._pid = 0

    def start(self) -> None:
        """Type the command."""
        environment = {**self._bed.environment(), "TERM": "xterm-256color"}
        command = f"cd {self._bed.home}; exec {shlex.join(self._bed.command())}"
        width, height = self._size
        self._do("new-session", "-d", "-x", width, "-y", height, command, env=environment)
        self._pid = int(self._do("display-message", "-p", "#{pane_pid}"))

    def press(self, *keys: str) -> None:
        """Press keys."""
        self._do("send-keys", *keys)

    @property
    def text(self) -> str:
        """What the terminal shows."""
        return self._do("capture-pane", "-p")

    def shows(self, *words: str) -> str:
        """Wait until all words are on the screen; what it shows then."""
        shown = ""

        def there() -> bool:
            nonlocal shown
            shown = self.text
            return all(word in shown for word in words)

        self._until(there, f"{words} on the screen")
        return shown

    @property
    def stands(self) -> bool:
        """Whether the app still runs."""
        return os.path.exists(f"/proc/{self._pid}")

    def kill(self) -> None:
        """SIGKILL: nothing of the app has time for anything."""
        os.kill(self._pid, signal.SIGKILL)
        self._until(lambda: not self.stands, "the end of the app")
        self.close()

    def close(self) -> None:
        """End the terminal with what runs in it."""
        with suppress(subprocess.CalledProcessError):
            self._do("kill-server")

    def _until(self, true: Callable[[], bool], what: str) -> None:
        try:
            until(true, what, seconds=_PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.text}") from None

    def _do(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run([*self._tmux, *words], env=env, capture_output=True, text=True, check=True, timeout=30)
        return done.stdout
