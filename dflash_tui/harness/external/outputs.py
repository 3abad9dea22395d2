"""What a script has left: the files that may be its results, likeliest first, and why there are none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.external.guard import sha256
from dflash_tui.harness.external.paths import RESULT_LIKE, WORK
from dflash_tui.records.external import ExternalRequest, Guarded, Output

MOST_OUTPUTS = 16
LARGEST = 256 << 20  # bytes: a result file is small
LARGEST_BESIDE = 16 << 20  # of those beside the likeliest


def outputs(run_dir: Path, request: ExternalRequest, moved: Sequence[Guarded]) -> tuple[Output, ...]:
    """The results that were declared, or else those that were found. `moved` are the guarded paths that it wrote to.

    Raises HarnessError naming where results were looked for, or the file that is half-written.
    """
    found = list(_declared(run_dir, request.results, moved)) if request.results else _found(run_dir, request, moved)
    if not found:
        raise HarnessError(_missing(run_dir, request, moved))
    meant = {*request.command, *request.results, *(item.path for item in moved)}
    whole: list[Output] = []
    broken: list[str] = []
    for path, origin in found[:MOST_OUTPUTS]:
        if problem := _problem(path):
            broken.append(f"{origin}: {problem}; it lies in {path}")
            if not whole and (request.results or origin in meant):
                raise HarnessError(broken[-1])
            continue
        name, size = os.fspath(path.relative_to(run_dir)), path.stat().st_size
        if not whole or size <= LARGEST_BESIDE:
            whole.append(Output(name, origin, size, sha256(path)))
    if not whole:
        raise HarnessError(broken[0])
    return tuple(whole)


def _declared(run_dir: Path, results: Iterable[str], moved: Sequence[Guarded]) -> Iterator[tuple[Path, str]]:
    """(where it lies now, where the script wrote it)."""
    taken = {item.path: run_dir / item.written for item in moved}
    for name in results:
        path = run_dir / WORK / name
        if run_dir in path.parents:
            if path.is_file():
                yield path, os.fspath(path)
            continue
        for place in (os.path.realpath(path), os.path.join(os.path.realpath(path.parent), path.name)):
            if place in taken and taken[place].is_file():
                yield taken[place], name
                break


def _found(run_dir: Path, request: ExternalRequest, moved: Sequence[Guarded]) -> list[tuple[Path, str]]:
    """What the command names first, JSON before other files, fixed paths before the working directory's."""
    work = run_dir / WORK
    inside = sorted(
        (path for path in work.rglob("*") if path.is_file() and not path.is_symlink()),
        key=lambda path: (len(path.relative_to(work).parts), path.name),
    )
    every = [(run_dir / item.written, item.path) for item in moved if (run_dir / item.written).is_file()]
    every += [(path, os.fspath(path)) for path in inside]
    like = [item for item in every if item[0].suffix.lstrip(".") in RESULT_LIKE]
    return sorted(like, key=lambda item: (item[1] not in request.command, item[0].suffix != ".json"))


def _problem(path: Path) -> str:
    """Why a file can't hold results; "" where nothing speaks against it."""
    size = path.stat().st_size
    if size == 0:
        return "is empty"
    if size > LARGEST:
        return f"{size} bytes is too large for a result"
    if path.suffix != ".json":
        return ""
    try:
        json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        return f"is no whole JSON ({error})"
    return ""


def _missing(run_dir: Path, request: ExternalRequest, moved: Sequence[Guarded]) -> str:
    work = run_dir / WORK
    if request.results:
        places = ", ".join(os.fspath(work / name) for name in request.results)
        wrote = f"; it wrote {', '.join(item.path for item in moved)}" if moved else ""
        return f"the script ended well and wrote no results; looked for {places}{wrote}"
    return (
        f"the script ended well and wrote no results; looked in {work} and at the paths that its text names; name the "
        "file under harness.results"
    )
