"""Every run's records on the workstation, and what a person may call a result: a run id, a pin's name, a path."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from dflash_tui.records.codec import RecordError, loads
from dflash_tui.records.manifest import Manifest
from dflash_tui.records.process import ExitRecord
from dflash_tui.records.result import Evaluation
from dflash_tui.results.errors import ResultDamaged, ResultError, UnknownReference
from dflash_tui.results.evaluation import from_run, read_manifest
from dflash_tui.results.importers import import_file
from dflash_tui.results.pins import Pins

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_LISTED = 12  # names in a sentence that lists what exists


@dataclass(frozen=True)
class StoredRun:
    """A run's folder at home. `manifest` is None where it has not come home or is damaged (`error` says which), `exit`
    None while the run has not ended."""

    run_id: str
    folder: Path
    manifest: Manifest | None
    exit: ExitRecord | None
    has_results: bool
    error: str | None = None

    @property
    def finished(self) -> bool:
        """Ended well, with results that came home."""
        return self.has_results and self.exit is not None and self.exit.state == "finished"


class Store:
    """The state folder: ``runs/<run id>/`` as written by the console, and ``pins/``."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.pins = Pins(state)

    def run_folder(self, run_id: str) -> Path:
        """The folder that a run's files come home to (manifest.json, blocks.jsonl, progress.jsonl, log.txt,
        results.json, exit.json), made if need be. Raises ResultError for an id that is no plain folder name."""
        if not _RUN_ID.fullmatch(run_id):
            raise ResultError(
                f"run id {run_id[:80]!r}: expected letters, digits, '.', '_' or '-', a letter or digit first"
            )
        folder = self.state / "runs" / run_id
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResultError(f"{folder}: can't be made ({error.strerror})") from error
        return folder

    def forget(self, run_id: str) -> None:
        """Take a run that never began from this workstation; one of which more than the request came home is kept."""
        folder = self.run_folder(run_id)
        if {path.name for path in folder.iterdir()} <= {"manifest.json"}:
            shutil.rmtree(folder)

    def runs(self) -> tuple[StoredRun, ...]:
        """Every run at home, newest first. A damaged one is listed with its error and hides no other."""
        try:
            folders = [folder for folder in (self.state / "runs").iterdir() if folder.is_dir()]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ResultError(f"{self.state / 'runs'}: can't be listed ({error.strerror})") from error
        stored = [_stored(folder) for folder in folders if _RUN_ID.fullmatch(folder.name)]
        return tuple(
            sorted(stored, key=lambda run: (run.manifest.created_at if run.manifest else "", run.run_id), reverse=True)
        )

    def find_request(self, request_id: str) -> str | None:
        """The newest finished run that answers a request; None when there is none. One whose records are damaged here
        answers nothing."""
        return next(
            (
                run.run_id
                for run in self.runs()
                if run.finished and run.manifest and run.manifest.request_id == request_id and _readable(run)
            ),
            None,
        )

    def unended(self, request_id: str) -> tuple[StoredRun, ...]:
        """The runs of a request whose end is not known here, newest first."""
        return tuple(
            run for run in self.runs() if run.exit is None and run.manifest and run.manifest.request_id == request_id
        )

    def run_called(self, reference: str) -> StoredRun | None:
        """The run that a person means, as `resolve` would find it; None when they mean a pin, a file or nothing."""
        runs = {run.run_id: run for run in self.runs()}
        if reference in runs:
            return runs[reference]
        if reference in self.pins.entries() or _exists(_path(reference)):
            return None
        matching = [run for run_id, run in runs.items() if reference and run_id.startswith(reference)]
        return matching[0] if len(matching) == 1 else None

    def resolve(self, reference: str) -> Evaluation:
        """The evaluation that a person means: a run id, a pin's name, a path to a result file or run folder, or the
        unique beginning of a run id, in this order.

        Raises UnknownReference listing what exists, and what reading the result raises.
        """
        if _RUN_ID.fullmatch(reference) and (folder := self.state / "runs" / reference).is_dir():
            return from_run(folder)
        pins = self.pins.entries()
        if reference in pins:
            return self.pins.load(reference)
        path = _path(reference)
        if reference and _exists(path):
            return import_file(path, path.resolve().stem if path.is_file() else path.resolve().name)
        ids = [run.run_id for run in self.runs()]
        matching = [run_id for run_id in ids if reference and run_id.startswith(reference)]
        if len(matching) == 1:
            return from_run(self.state / "runs" / matching[0])
        if matching:
            raise UnknownReference(
                f"{reference!r} begins {len(matching)} run ids: {listed(matching)}; write more of one"
            )
        raise UnknownReference(f"{reference!r} is no run, pin or file; runs: {listed(ids)}; pins: {listed(list(pins))}")


def _readable(run: StoredRun) -> bool:
    try:
        from_run(run.folder)
    except ResultError:
        return False
    return True


def _path(reference: str) -> Path:
    path = Path(reference)
    try:
        return path.expanduser()
    except RuntimeError:  # `~nobody`, or no home at all: then it is a name like another
        return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a NUL
        return False


def listed(names: list[str]) -> str:
    """Names in a sentence: the first few, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more if names else "none"


def _stored(folder: Path) -> StoredRun:
    manifest, ended, error = None, None, None
    try:
        manifest = read_manifest(folder)
        path = folder / "exit.json"
        if path.exists():
            ended = loads(ExitRecord, path.read_bytes(), str(path))
    except (ResultDamaged, RecordError, OSError) as problem:
        error = str(problem)
    results = any((folder / name).is_file() for name in ("results.json", "external.json"))
    return StoredRun(folder.name, folder, manifest, ended, results, error)
