"""Pins: results kept by content, so that a baseline stays what it was whatever happens to the file it came from.

``pins/<sha256>/`` holds a run's records, or an imported file's raw bytes, read-only; ``pins/pins.json`` maps names to
hashes. An own run's hash is that of its record files' names and hashes (`evaluation.digest`).
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dflash_tui.records.codec import RecordError, dumps, loads
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.result import Evaluation
from dflash_tui.results.caveats import voided
from dflash_tui.results.errors import PinDamaged, PinRefused, ResultDamaged, ResultError, UnknownReference
from dflash_tui.results.evaluation import digest, record_files
from dflash_tui.results.importers import import_file

_RAW = "imported"  # an imported file's name inside its pin: its content decides what it is
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VERSION = 1


@dataclass(frozen=True)
class Pin:
    """A name for a kept result. `path` is what it was made from, `pinned_at` ISO 8601 UTC."""

    sha256: str
    path: str
    pinned_at: str


@dataclass(frozen=True)
class PinList:
    """``pins.json``."""

    version: int
    pins: dict[str, Pin] = field(default_factory=dict)


class Pins:
    """The pins of a state folder. Nothing is written before the first pin."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "pins"

    def entries(self) -> dict[str, Pin]:
        """Every pin by name, in alphabetical order. Raises ResultDamaged."""
        path = self.folder / "pins.json"
        try:
            found = loads(PinList, path.read_bytes(), str(path))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ResultDamaged(f"{path}: can't be read ({error.strerror})") from error
        except RecordError as error:
            raise ResultDamaged(str(error)) from error
        if found.version > _VERSION:
            raise ResultDamaged(
                f"{path}: version is {found.version}, this dflash-tui reads up to {_VERSION}; update it"
            )
        bad = next((pin.sha256 for pin in found.pins.values() if not re.fullmatch("[0-9a-f]{64}", pin.sha256)), None)
        if bad is not None:
            raise ResultDamaged(f"{path}: found sha256 {bad[:80]!r}, expected 64 hex digits")
        return dict(sorted(found.pins.items()))

    def pin(self, name: str, source: Path, *, replace: bool = False) -> Pin:
        """Keep the result at `source` (a run folder, or a result file) under `name`.

        Pinning the same content again under its name changes nothing. Raises PinRefused when the name has other
        content and `replace` is false, or is no name, and when the result is void; what `import_file` raises when
        `source` is no result.
        """
        if not _NAME.fullmatch(name):
            raise PinRefused(
                f"pin name {name!r}: expected up to 64 letters, digits, '.', '_' or '-', a letter or digit first"
            )
        source = source.absolute()
        evaluation = import_file(source, name)
        if void := voided(evaluation):
            raise PinRefused(
                f"{evaluation.path}: is void ({void[0].code}: {void[0].sentence}) A pin is what results are compared "
                "with; evaluate it again and pin that"
            )
        ended = any((Path(evaluation.path) / name).exists() for name in ("results.json", "external.json"))
        if evaluation.origin == "run" and not ended:
            raise PinRefused(f"{evaluation.path}: has no results.json, so it has not finished; pin it when it has")
        with self._locked():
            pins = self.entries()
            held = pins.get(name)
            if held is not None and held.sha256 != evaluation.sha256 and not replace:
                raise PinRefused(
                    f"pin {name!r} holds {held.path} of {held.pinned_at} (sha256 {held.sha256[:12]}…), not "
                    f"{evaluation.path}; choose another name, or replace it (--replace)"
                )
            self._keep(evaluation)
            if held is not None and held.sha256 == evaluation.sha256:
                return held
            at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            pins[name] = Pin(evaluation.sha256, evaluation.path, at)
            self._write(pins)
            return pins[name]

    def remove(self, name: str) -> None:
        """Forget a name. The kept files stay: another name, or a report, may speak of them. Raises UnknownReference."""
        with self._locked():
            pins = self.entries()
            if name not in pins:
                raise UnknownReference(f"no pin is called {name!r}; there are {', '.join(pins) or 'none'}")
            del pins[name]
            self._write(pins)

    def load(self, name: str) -> Evaluation:
        """The pinned evaluation, called by its pin's name, with the fact of what its origin holds now.

        Raises UnknownReference, and PinDamaged when the kept bytes are no longer those that were pinned.
        """
        pins = self.entries()
        if name not in pins:
            raise UnknownReference(f"no pin is called {name!r}; there are {', '.join(pins) or 'none'}")
        pin = pins[name]
        folder = self.folder / pin.sha256
        found = _content(folder)
        if found != pin.sha256:
            what = "is missing" if found is None else f"has sha256 {found[:12]}… now"
            raise PinDamaged(f"{folder}: pin {name!r} {what}, expected {pin.sha256[:12]}…; pin {pin.path} again")
        kept = folder if (folder / "manifest.json").exists() else folder / _RAW
        evaluation = import_file(kept, name)
        now = {"path": pin.path, "pinned": pin.sha256, "found": _origin(Path(pin.path))}
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        origin = Fact("pin.origin", now, Source("", pin.path), at)
        return dataclasses.replace(evaluation, facts=(*evaluation.facts, origin))

    def _keep(self, evaluation: Evaluation) -> None:
        final = self.folder / evaluation.sha256
        if final.exists():
            if _content(final) == evaluation.sha256:
                return
            shutil.rmtree(final)  # damaged: the same content replaces it
        path = Path(evaluation.path)
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=self.folder))
        try:
            if path.is_dir():
                for name in record_files(path):
                    (part / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path / name, part / name)
            else:
                shutil.copyfile(path, part / _RAW)
            for file in part.rglob("*"):
                if file.is_file():
                    file.chmod(0o444)
            if _content(part) != evaluation.sha256:
                raise ResultError(f"{path}: changed while it was being pinned; pin it again")
            part.chmod(0o755)
            part.rename(final)
        except OSError as error:
            raise ResultError(f"{path}: can't be pinned in {self.folder} ({error.strerror})") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _write(self, pins: dict[str, Pin]) -> None:
        handle, part = tempfile.mkstemp(prefix=".pins-", dir=self.folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(dumps(PinList(_VERSION, pins), indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.folder / "pins.json")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time: two consoles may pin at once. Raises ResultError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / ".lock", "w", encoding="utf-8")  # noqa: SIM115 (closed below, after the body)
        except OSError as error:
            raise ResultError(f"{self.folder}: pins can't be written ({error.strerror})") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _content(folder: Path) -> str | None:
    """The hash of a pin's content as it lies there now; None when there is none."""
    try:
        if (folder / "manifest.json").exists():
            return digest(folder)
        return hashlib.sha256((folder / _RAW).read_bytes()).hexdigest()
    except (OSError, ResultDamaged):
        return None


def _origin(path: Path) -> str | None:
    """The hash of what a pin was made from, as it is now; None when it is gone."""
    try:
        return digest(path) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ResultDamaged):
        return None
