"""A script of the user's own, carried out as a run: where results lie already they stay, whatever it does."""

from __future__ import annotations

import hashlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dflash_tui.harness import rundir, turn
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.external.child import Child, counted, end_all
from dflash_tui.harness.external.guard import mark, put_aside, sha256
from dflash_tui.harness.external.output import MOST_KEPT, Bars, Mark, Stream
from dflash_tui.harness.external.outputs import outputs
from dflash_tui.harness.external.paths import WORK, Guard, guard
from dflash_tui.harness.external.recovery import alone, held, recover, restore, written
from dflash_tui.harness.process import ENDING
from dflash_tui.harness.rundir import Progress
from dflash_tui.records.external import JOURNAL_VERSION, ExternalRequest, Journal
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.manifest import Manifest

PHASE = "script"
LOOK_SECONDS = 0.2
REPORT_SECONDS = 0.5
GRACE_SECONDS = 1.0  # for what ends by itself when the script has ended
_ENDS = 1 << 20  # bytes of a checkpoint's either end that are compared


def external(run_dir: Path) -> None:
    """Carry out the request in `run_dir`. Raises HarnessError with the sentence for exit.json, Stopped.

    However the script ends, what it wrote at fixed paths lies in the run and the old files are back; if this process
    does not live to see to it, `recover` does.
    """
    manifest = rundir.read_manifest(run_dir)
    request = manifest.external
    if request is None:
        raise HarnessError(f"{run_dir / rundir.MANIFEST}: asks for no script of the user's own; use: evaluate")
    with turn.waited(run_dir), held(run_dir):
        root = run_dir.parent.parent

        def waits(folder: Path) -> None:
            rundir.say(run_dir, f"{folder}: a run below another root guards files there; it is waited for")

        for sentence in recover(root, waits):
            rundir.say(run_dir, sentence)
        _check(request)
        (run_dir / WORK).mkdir()
        guarded = guard(request.command, request.results, request.inputs, root, run_dir)
        before = _linked(run_dir)
        with alone(guarded.files, waits) as waited:
            if waited:
                guarded = guard(request.command, request.results, request.inputs, root, run_dir)
            try:
                status, last, journal = _guarded_run(run_dir, request, guarded)
            finally:
                _note_link(run_dir, manifest, before)
        if status != 0:
            raise HarnessError(_failure(request, status, last))
        found = outputs(run_dir, request, [file for file in journal.files if (run_dir / file.written).is_file()])
        written(run_dir, replace(journal, outputs=found))
        rundir.say(run_dir, f"finished: results in {', '.join(output.name for output in found)}")


def _check(request: ExternalRequest) -> None:
    try:
        same = not request.script or sha256(Path(request.script)) == request.script_sha256
    except OSError as error:
        raise HarnessError(f"{request.script}: can't be read any more ({error.strerror})") from error
    if not same:
        raise HarnessError(f"{request.script}: has changed since this run was planned; evaluate again")


def _guarded_run(run_dir: Path, request: ExternalRequest, guarded: Guard) -> tuple[int, str, Journal]:
    """Exit status, last line on stderr, and the journal once the old files are back."""
    left = {path: _seen(path) for path in guarded.left}
    for path in left:
        why = "too many, too large, or not this user's to put back"
        rundir.say(run_dir, f"{path}: is not kept safe: {why}; name what is written in harness.results")
    journal = written(run_dir, Journal(JOURNAL_VERSION, os.fspath(run_dir), "saving", guarded.files))
    try:
        journal = replace(journal, files=tuple(put_aside(run_dir, file) for file in journal.files))
        with Child(run_dir, request.command, run_dir / WORK, request.environment) as child:
            journal = written(run_dir, replace(journal, state="guarding", child=child.record()))
            rundir.say(run_dir, f"{len(journal.files)} paths are kept safe; the script begins: {_said(request)}")
            child.open()
            status, last = _watch(run_dir, request, child)
    finally:
        with _undisturbed():
            end_all(run_dir)  # a second signal may have come before the script had ended
            journal, _ = restore(run_dir, journal)
            for path, was in left.items():
                if _seen(path) != was:
                    rundir.say(run_dir, f"{path}: WAS CHANGED by the script; it was not kept safe")
    return status, last, journal


def _seen(path: str) -> tuple[int, ...]:
    try:
        return mark(Path(path))
    except OSError:  # gone, or below a folder that can't be looked into
        return ()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second signal must not cost what the first one found to be put back."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _watch(run_dir: Path, request: ExternalRequest, child: Child) -> tuple[int, str]:
    """Its exit status, and the last line it wrote on stderr (or at all), once it and all that it started have ended."""
    with Progress(run_dir, request.total) as progress, _Listening(run_dir, request, progress, child) as listening:
        progress.report(PHASE)
        while (status := child.ended()) is None:
            listening.take(LOOK_SECONDS)
        deadline = time.monotonic() + GRACE_SECONDS
        while child.left() and time.monotonic() < deadline:
            listening.take(LOOK_SECONDS / 10)
        if ended := child.end_all():
            rundir.say(run_dir, f"what the script had left behind was ended: {counted(ended)}")
        deadline = time.monotonic() + GRACE_SECONDS  # what was not ours to end may go on printing
        while listening.take(0) and time.monotonic() < deadline:
            pass
        last = listening.close()
        progress.report("done")
    return status, last


class _Listening:
    """The script's two streams, on their way into log.txt and progress.jsonl."""

    def __init__(self, run_dir: Path, request: ExternalRequest, progress: Progress, child: Child) -> None:
        self._progress = progress
        self._log = (run_dir / rundir.LOG).open("a", encoding="utf-8", errors="backslashreplace")
        self._bars = Bars(request.total)
        self._pending: Mark | None = None
        self._reported = 0.0
        self._kept = 0
        self._selector = selectors.DefaultSelector()
        self._streams = [Stream(request.progress, self._line, self._mark) for _ in child.pipes]
        for pipe, stream in zip(child.pipes, self._streams, strict=True):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, stream)

    def __enter__(self) -> _Listening:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        self._log.close()

    def take(self, seconds: float) -> bool:
        """Read what there is, waiting so long for it; whether there was anything."""
        found = False
        if not self._selector.get_map():
            time.sleep(seconds)
            return False
        for key, _ in self._selector.select(seconds):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fileobj)
                continue
            found = True
            key.data.feed(data)
        self._log.flush()
        self._report(time.monotonic() - self._reported >= REPORT_SECONDS)
        return found

    def close(self) -> str:
        """The last line on stderr, else on stdout."""
        for stream in self._streams:
            stream.close()
        self._log.flush()
        self._report(True)
        stdout, stderr = self._streams
        return stderr.last or stdout.last

    def _line(self, text: str) -> None:
        if self._kept > MOST_KEPT:
            return
        self._kept += len(text) + 1
        self._log.write(text + "\n")
        if self._kept > MOST_KEPT:
            self._log.write(f"{rundir.now()} the script has printed more than {MOST_KEPT >> 20} MiB; no more is kept\n")

    def _mark(self, mark: Mark) -> None:
        self._pending = self._bars.take(mark) or self._pending

    def _report(self, due: bool) -> None:
        if self._pending is not None and due:
            self._progress.done, self._progress.total = self._pending.done, self._pending.total
            self._progress.report(PHASE, self._pending.name)
            self._pending, self._reported = None, time.monotonic()


def _linked(run_dir: Path) -> dict[str, dict[str, Any]]:
    """The checkpoint's files in the run: a hard link shares its bytes with the one that was fetched."""
    folder = run_dir / "checkpoint"
    return {
        os.fspath(path.relative_to(run_dir)): {
            "inode": found.st_ino,
            "size": found.st_size,
            "mtime": found.st_mtime_ns / 1e9,
            "header_sha256": _ends(path, found.st_size),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (found := path.stat())
    }


def _ends(path: Path, size: int) -> str:
    with path.open("rb") as stream:
        digest = hashlib.sha256(stream.read(_ENDS))
        stream.seek(max(0, size - _ENDS))
        digest.update(stream.read(_ENDS))
    return digest.hexdigest()


def _note_link(run_dir: Path, manifest: Manifest, before: dict[str, dict[str, Any]]) -> None:
    after = {name: found for name, found in _linked(run_dir).items() if name in before}  # what lies beside is new
    source = Source(socket.gethostname(), os.fspath(run_dir), manifest.checkpoint.linked)
    facts = [Fact(kind, value, source, rundir.now()) for kind, value in (("link.record", before), ("link.now", after))]
    rundir.append(run_dir / rundir.FACTS, facts)
    for name in sorted(name for name in before if before[name] != after.get(name)):
        given, path = f"{run_dir / name}, the checkpoint that it was given", manifest.checkpoint.path
        if name not in after:
            what = f"the script removed {given}; the one that was fetched is as it was"
        elif after[name]["inode"] != before[name]["inode"]:
            what = f"the script put another file at {given}; the one that was fetched is as it was"
        else:
            what = f"the script wrote into {given}; what that is linked to has changed with it, so fetch {path} again"
        rundir.say(run_dir, f"LINKED_FILE_CHANGED: {what}")


def _failure(request: ExternalRequest, status: int, last: str) -> str:
    how = f"ended with status {status}" if status > 0 else f"was ended by {_signal(-status)}"
    return f"{_short(request.command)} {how}" + (f": {last}" if last else ", without a word")


def _signal(number: int) -> str:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"{name} (is memory short?)" if number == signal.SIGKILL else name


def _short(command: Sequence[str]) -> str:
    return " ".join(os.path.basename(word) for word in command[:2])


def _said(request: ExternalRequest) -> str:
    return " ".join(request.command)
