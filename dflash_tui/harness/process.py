"""A detached process: how it starts, how it is told apart from a later one with the same pid, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from types import FrameType, TracebackType

from dflash_tui.harness import rundir
from dflash_tui.harness.errors import HarnessError, Stopped
from dflash_tui.records.process import ExitRecord, ProcessRecord, RunState

STARTING_SECONDS = 60.0
"""A request without process.json is still starting for this long; after it, the launch is lost."""


def boot_id() -> str:
    """The kernel's boot id; "" where there is none (then only pid and start ticks decide)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat; None when there is no such process or it is only waiting to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command name may itself hold spaces and brackets
    return None if fields[0] in "ZX" else int(fields[19])


def record(run_dir: Path) -> ProcessRecord:
    """Write process.json for the calling process and return it."""
    found = ProcessRecord(
        pid=os.getpid(),
        start_ticks=start_ticks(os.getpid()) or 0,
        boot_id=boot_id(),
        host=socket.gethostname(),
        started_at=rundir.now(),
    )
    rundir.write(run_dir / rundir.PROCESS, found)
    return found


def running(found: ProcessRecord) -> bool:
    """Whether that very process still runs on this boot of this host."""
    return boot_id() == found.boot_id and start_ticks(found.pid) == found.start_ticks


def state(run_dir: Path) -> RunState:
    """What became of a run. Raises HarnessError when a record is unreadable or the folder holds no request."""
    ended = _ended(run_dir)
    if ended is not None:
        return ended
    if not (run_dir / rundir.PROCESS).exists():
        return _unstarted(run_dir)
    if running(rundir.read(run_dir / rundir.PROCESS, ProcessRecord)):
        return "running"
    return _ended(run_dir) or "lost"  # it may have ended between the two looks


def stop(run_dir: Path) -> bool:
    """SIGTERM to the run's process, if it still is that process; whether a signal was sent. Raises HarnessError."""
    if not (run_dir / rundir.PROCESS).exists():
        return False
    found = rundir.read(run_dir / rundir.PROCESS, ProcessRecord)
    if not running(found):
        return False
    try:
        os.kill(found.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise HarnessError(f"{run_dir}: process {found.pid} belongs to another user; stop it as that user") from error
    return True


def daemonise(run_dir: Path) -> bool:
    """Leave the terminal: True in the detached process, False in the caller once process.json is written.

    Double fork, own session, stdin from /dev/null, stdout and stderr into log.txt. Must come before any thread exists.
    Raises HarnessError in the caller when the detached process died before it could record itself.
    """
    told, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        with os.fdopen(told, "rb") as stream:
            answer = stream.read()
        os.waitpid(child, 0)
        if answer != b"recorded":
            raise HarnessError(f"{run_dir}: the detached process could not start; see {run_dir / rundir.LOG}")
        return False
    os.close(told)
    os.setsid()
    if os.fork():
        os._exit(0)
    _redirect(run_dir / rundir.LOG)
    record(run_dir)
    os.write(tell, b"recorded")
    os.close(tell)
    return True


class Ending:
    """Writes exit.json last, however the block under `with` ends; SIGTERM and SIGINT end it as "stopped".

    Errors of this room are swallowed once recorded (`code` is then 1, 130 when stopped); others leave their traceback
    in the log and are recorded too.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.code = 0

    def __enter__(self) -> Ending:
        signal.signal(signal.SIGTERM, _stop)
        signal.signal(signal.SIGINT, _stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cost the record of the first
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sentence: str | None = None
        outcome: RunState = "finished"
        if isinstance(error, Stopped):
            self.code, outcome, sentence = 130, "stopped", "stopped by a signal"
        elif error is not None:
            self.code, outcome = 1, "failed"
            known = isinstance(error, HarnessError)
            sentence = str(error) if known else f"{type(error).__name__}: {error}; the traceback is in {rundir.LOG}"
        if sentence:
            rundir.say(self.run_dir, sentence)
        rundir.write(self.run_dir / rundir.EXIT, ExitRecord(outcome, self.code, rundir.now(), sentence))
        return error is None or isinstance(error, (HarnessError, Stopped))


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(signal.Signals(number).name)


def _ended(run_dir: Path) -> RunState | None:
    path = run_dir / rundir.EXIT
    return rundir.read(path, ExitRecord).state if path.exists() else None


def _unstarted(run_dir: Path) -> RunState:
    for name in (rundir.MANIFEST, rundir.CAPTURE):
        request = run_dir / name
        if request.exists():
            return "starting" if time.time() - request.stat().st_mtime < STARTING_SECONDS else "lost"
    raise HarnessError(f"{run_dir}: neither {rundir.MANIFEST} nor {rundir.CAPTURE}; not a run directory")


def _redirect(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, targets in ((nothing, (0,)), (output, (1, 2))):
        for target in targets:
            os.dup2(source, target)
        if source > 2:
            os.close(source)
