"""The files of a run directory: their names, and the only three ways in which they are written."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dflash_tui.harness.errors import HarnessError
from dflash_tui.records import codec
from dflash_tui.records.manifest import Manifest
from dflash_tui.records.process import ProgressRecord

RUNS = "runs"
MANIFEST, CAPTURE = "manifest.json", "capture.json"
PROCESS, EXIT = "process.json", "exit.json"
EXTERNAL = "external.json"
STOP = "stop"
"""Asked to stop by its name: one process may carry out several runs."""

PROGRESS, LOG = "progress.jsonl", "log.txt"
BLOCKS, FACTS, RESULTS, AUDIT = "blocks.jsonl", "facts.jsonl", "results.json", "audit.json"
HEARTBEAT_SECONDS = 5.0


def now() -> str:
    """This host's clock, ISO 8601 UTC, whole seconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def write(path: Path, record: Any) -> None:
    """A record as JSON under its final name at once: temporary name in the same folder, flush to disk, rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(codec.dumps(record, indent=1) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def append(path: Path, records: list[Any]) -> None:
    """Records as JSON lines in one write, so that a reader who follows the file sees whole lines."""
    text = "".join(codec.dumps(record) + "\n" for record in records)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def say(run_dir: Path, sentence: str) -> None:
    """A line of log.txt, with the time."""
    with (run_dir / LOG).open("a", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(f"{now()} {sentence}\n")


def read_manifest(run_dir: Path) -> Manifest:
    """The request. Raises HarnessError naming the file."""
    return read(run_dir / MANIFEST, Manifest)


def read(path: Path, kind: type[codec.T]) -> codec.T:
    """A JSON file as a record. Raises HarnessError naming file, key, found and expected."""
    try:
        return codec.loads(kind, path.read_bytes(), str(path))
    except OSError as error:
        raise HarnessError(f"{path}: cannot be read ({error.strerror})") from error
    except codec.RecordError as error:
        raise HarnessError(str(error)) from error


def baseline(run_dir: Path) -> str:
    """The configured baseline that a run is of; "" for any other, and where its request can't be read (whoever carries
    it out says so)."""
    try:
        data = json.loads((run_dir / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return ""
    name = data.get("baseline") if isinstance(data, dict) else None
    return name if isinstance(name, str) else ""


def threads_wanted(run_dir: Path, file: str) -> int:
    """The `threads` of a request, read before anything heavy is imported; 1 where it says nothing usable."""
    try:
        data = json.loads((run_dir / file).read_bytes())
    except (OSError, ValueError):
        return 1  # whoever reads the request in earnest says what is wrong with it
    wanted = data.get("threads", 1) if isinstance(data, dict) else 1
    return wanted if isinstance(wanted, int) and wanted > 0 else 1


class Progress:
    """progress.jsonl of a run: its lines, and its mtime as a heartbeat while the block under `with` runs. `beat` is
    called at each heartbeat, in a thread of its own."""

    def __init__(self, run_dir: Path, total: int, beat: Callable[[], None] = lambda: None) -> None:
        self.total = total
        self._at_each = beat
        self.done = 0
        self._path = run_dir / PROGRESS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def report(
        self, phase: str, prompt: str = "", prompt_done: int = 0, prompt_total: int = 0, *, behind: str = ""
    ) -> None:
        """One line; `done` and `total` are the run's own counts."""
        line = ProgressRecord(now(), phase, self.done, self.total, prompt, prompt_done, prompt_total, behind)
        append(self._path, [line])

    def __enter__(self) -> Progress:
        self._path.touch()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self._path)
                self._at_each()


def lines(path: Path) -> Iterator[str]:
    """The non-empty lines of a JSONL file, whole ones only (a line without its newline is still being written)."""
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            if line.strip() and line.endswith("\n"):
                yield line
