"""A detached process: how it starts, how it is told apart from a later one with the same pid, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType

from dflash_tui.harness import rundir
from dflash_tui.harness.errors import HarnessError, Stopped
from dflash_tui.records.process import ExitRecord, ProcessRecord, RunState

STARTING_SECONDS = 150.0
"""A request without process.json is still starting for this long: longer than whoever launches waits. After it, the
launch is lost."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGHUP is what a held run hears when its launcher is killed at the wrong moment."""

_RECORDED = b"recorded"

Carry = Callable[[Path, Callable[[Path], None], Callable[[], None]], int]
"""`carry_out`, or what does the same with more."""


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
    """SIGTERM to the run's process, if it still is that process; whether a signal was sent. A mark in the run directory
    says which of the runs of that process is meant. Raises HarnessError."""
    if not (run_dir / rundir.PROCESS).exists():
        return False
    found = rundir.read(run_dir / rundir.PROCESS, ProcessRecord)
    if not running(found):
        return False
    try:
        (run_dir / rundir.STOP).touch()
        os.kill(found.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        raise HarnessError(f"{run_dir}: process {found.pid} belongs to another user; stop it as that user") from error
    return True


def carry_out(run_dir: Path, work: Callable[[Path], None], started: Callable[[], None] = lambda: None) -> int:
    """Run `work(run_dir)` in this process as a run's own, between process.json and exit.json; the exit status.

    `started` is called once process.json is written: from then on a signal ends in exit.json.
    """
    with Ending(run_dir) as ending:
        record(run_dir)
        started()
        work(run_dir)
    return ending.code


def detach(
    run_dir: Path,
    work: Callable[[Path], None],
    *,
    shut: Sequence[int] = (),
    carry: Carry = carry_out,
) -> None:
    """`carry` in a process that outlives the caller and its terminal; returns once process.json is written.

    Double fork, own session, stdin from /dev/null, stdout and stderr into log.txt; the caller's descriptors `shut` are
    closed there. Must come before any thread exists. Raises HarnessError when the detached process died before it could
    record itself.
    """
    told, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        with os.fdopen(told, "rb") as stream:
            answer = stream.read()
        os.waitpid(child, 0)
        if answer != _RECORDED:
            raise HarnessError(f"{run_dir}: the detached process could not start; see {run_dir / rundir.LOG}")
        return
    code = 1
    try:
        for descriptor in (told, *shut):
            os.close(descriptor)
        os.setsid()
        if os.fork():
            os._exit(0)
        redirect(run_dir / rundir.LOG)

        def started() -> None:
            with suppress(BrokenPipeError):  # the caller may have been killed, as when its link is cut: the run goes on
                os.write(tell, _RECORDED)
            os.close(tell)

        code = carry(run_dir, work, started)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # the caller's interpreter must not be finished a second time


class Ending:
    """Writes exit.json last, however the block under `with` ends; SIGTERM, SIGINT and SIGHUP end it as "stopped",
    unless `signalled` does otherwise.

    The error is swallowed once it is recorded; `code` is then 1, or 130 when stopped. One that is not of this room
    also leaves its traceback on stderr (that is log.txt when detached).
    """

    def __init__(self, run_dir: Path, signalled: Callable[[int, FrameType | None], None] | None = None) -> None:
        self.run_dir = run_dir
        self.code = 0
        self._signalled = signalled or _stop

    def __enter__(self) -> Ending:
        for number in ENDING:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup's word stands
                signal.signal(number, self._signalled)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)  # a second one must not cost the record of the first
        sentence: str | None = None
        outcome: RunState = "finished"
        if isinstance(error, Stopped):
            self.code, outcome, sentence = 130, "stopped", f"stopped by {error}"
        elif isinstance(error, HarnessError):
            self.code, outcome, sentence = 1, "failed", str(error)
        elif error is not None:
            traceback.print_exception(kind, error, trace)
            self.code, outcome = 1, "failed"
            sentence = f"{type(error).__name__}: {error} (unexpected; the traceback is on stderr or in {rundir.LOG})"
        if sentence:
            rundir.say(self.run_dir, sentence)
        rundir.write(self.run_dir / rundir.EXIT, ExitRecord(outcome, self.code, rundir.now(), sentence))
        return True


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


def redirect(log: Path) -> None:
    """From now on nothing is read, and what is printed goes into a log."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, targets in ((nothing, (0,)), (output, (1, 2))):
        for target in targets:
            os.dup2(source, target)
        if source > 2:
            os.close(source)
