"""A person at a terminal: a command behind a pseudo terminal, whose words are waited for and answered."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SECONDS = 60.0
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Dialogue:
    """`said` is everything that the command has shown so far."""

    def __init__(self, child: subprocess.Popen[bytes], handle: int) -> None:
        self.said = ""
        self._child, self._handle = child, handle
        self._read = 0

    def until(self, text: str) -> str:
        """Wait for words; what was shown since those that were waited for last."""
        deadline = time.monotonic() + SECONDS
        while (at := self.said.find(text, self._read)) < 0:
            assert time.monotonic() < deadline, f"waited in vain for {text!r} in {self.said!r}"
            assert self._take(), f"ended without {text!r}: {self.said!r}"
        before, self._read = self._read, at + len(text)
        return self.said[before : self._read]

    def type(self, text: str) -> None:
        """Type something and Enter."""
        self.press(f"{text}\n")

    def press(self, keys: str) -> None:
        """Type something and nothing else."""
        os.write(self._handle, keys.encode())

    def end(self) -> int:
        """Wait for the command's end; its exit code."""
        deadline = time.monotonic() + SECONDS
        while self._take():
            assert time.monotonic() < deadline, f"did not end: {self.said!r}"
        return self._child.wait(SECONDS)

    def _take(self) -> bool:
        ready, _, _ = select.select([self._handle], [], [], 0.2)
        if not ready:
            return True
        try:
            data = os.read(self._handle, 1 << 16)
        except OSError:  # the command has closed its side
            return False
        self.said += _ESCAPE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
        return bool(data)


@contextmanager
def dialogue(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Dialogue]:
    """A command whose stdin, stdout and stderr are a terminal; killed at the end, if it still runs."""
    master, slave = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # tests may run where interrupts are ignored

    child = subprocess.Popen(
        argv,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=environment,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(slave)
    try:
        yield Dialogue(child, master)
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        child.wait()
        os.close(master)
