"""The script's process: begun behind a gate, never left alone, ended with everything that it started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from dflash_tui.harness import rundir
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.process import boot_id, start_ticks
from dflash_tui.records.process import ProcessRecord

MARK = "DFLASH_TUI_RUN"
"""In the environment of everything that the script starts: its run directory."""

TERM_SECONDS = 3.0
KILL_SECONDS = 30.0
NOT_RUN = 127
_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
_SUBREAPER = 36  # prctl: what loses its parent below this process becomes its child, not that of process 1

# It waits until the journal knows it, and dies with the harness: a script that nobody watches would go on writing where
# old bytes have to come back. The gate's end is the harness's end. 1 is PR_SET_PDEATHSIG.
_GATE = """
import ctypes, os, signal, sys
gate, parent = int(sys.argv[1]), int(sys.argv[2])
try:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
except (OSError, AttributeError):
    pass
if os.getppid() != parent or os.read(gate, 1) != b"1":
    sys.exit(1)
os.close(gate)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
try:
    os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error:
    print(f"{sys.argv[3]}: can't be run ({error.strerror})", file=sys.stderr)
sys.exit(127)
"""


class Child:
    """The script, in a session of its own, with `work` as its working directory. It begins with `open`; leaving the
    block ends it and all that it started."""

    def __init__(self, run_dir: Path, command: Sequence[str], work: Path, environment: Mapping[str, str]) -> None:
        self._run_dir = run_dir
        with contextlib.suppress(OSError, AttributeError):  # no such libc: then the mark alone has to do
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        gate, self._opened = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GATE, str(gate), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=work,
                env={**os.environ, **environment, "PYTHONUNBUFFERED": "1", MARK: os.fspath(run_dir)},
                pass_fds=(gate,),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(self._opened)
            raise HarnessError(f"{command[0]}: can't be run ({error})") from error
        finally:
            os.close(gate)

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Its stdout and stderr."""
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
        return stdout, stderr

    def record(self) -> ProcessRecord:
        """What tells it apart from a later process with its pid."""
        pid = self._process.pid
        return ProcessRecord(pid, start_ticks(pid) or 0, boot_id(), socket.gethostname(), rundir.now())

    def open(self) -> None:
        """Let it begin."""
        os.write(self._opened, b"1")

    def ended(self) -> int | None:
        """Its exit status (negative: the signal that ended it), None while it runs. What it left to this process and
        has ended is reaped."""
        with contextlib.suppress(ChildProcessError):  # there is none, not even itself any more
            while (gone := os.waitid(os.P_ALL, 0, _ENDED)) is not None and gone.si_pid != self._process.pid:
                os.waitpid(gone.si_pid, 0)
        return self._process.poll()

    def left(self) -> int:
        """How many processes run that it has started, itself among them."""
        return len(_running(self._run_dir, self._process))

    def end_all(self) -> int:
        """End it and everything that it has started; how many there were. Raises HarnessError when one does not go."""
        return end_all(self._run_dir, self._process)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._opened)
        self.end_all()
        for pipe in self.pipes:
            pipe.close()


def end_all(run_dir: Path, leader: subprocess.Popen[bytes] | None = None) -> int:
    """End every process that a run's script has started and that still runs: SIGTERM, then SIGKILL; how many there
    were. Without the `leader`, the script's process as a child of this one, only those that carry the mark are found.
    Raises HarnessError when one does not go."""
    found: set[int] = set()
    for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        deadline = time.monotonic() + seconds
        while here := _running(run_dir, leader):
            for pid in here - found if number == signal.SIGTERM else here:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            found |= here
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        else:
            return len(found)
    raise HarnessError(f"processes {', '.join(map(str, sorted(here)))} of the script do not end; end them by hand")


def _running(run_dir: Path, leader: subprocess.Popen[bytes] | None) -> set[int]:
    here = set(marked(run_dir))
    if leader is not None:
        leader.poll()  # one that has ended is to be reaped
        here |= _below(os.getpid())
    return here


def _below(top: int) -> set[int]:
    """Living processes that descend from one. A daemon may have left its session, and the mark with its environment."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                parents |= {int(folder.name): int(fields[1])} if fields[0] not in "ZX" else {}
    found = {top}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {top}


def marked(run_dir: Path) -> Iterator[int]:
    """Living processes that carry a run's mark, but for this one; those of other users can't be looked into."""
    mark = f"{MARK}={run_dir}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0") and start_ticks(int(folder.name)) is not None:
                    yield int(folder.name)


def counted(processes: int) -> str:
    """How many, in words."""
    return f"{processes} process" if processes == 1 else f"{processes} processes"
