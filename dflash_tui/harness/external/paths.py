"""Where a script's results may appear: as declared, or found by looking at its text and into its folder."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dflash_tui.harness import rundir
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.external.guard import describe, sha256
from dflash_tui.records.external import ExternalLook, ExternalLooked, Guarded

WORK = "work"
"""The script's working directory in the run directory: what it writes by a relative name meets none of our records."""

MOST_FILES = 64
MOST_BYTES = 256 << 20
"""Of files that nobody declared, so much is kept safe; a script's folder may hold anything."""

LARGEST_SCRIPT = 4 << 20
TEXTUAL = ("json", "jsonl", "csv", "tsv", "txt", "md")
RESULT_LIKE = (*TEXTUAL, "yaml", "yml", "html", "npz", "npy", "pkl")

_NAME = re.compile(rf"(?:[\w~./@+-][\w ./@+-]*)\.(?:{'|'.join(RESULT_LIKE)})")
_ENDING = re.compile(rf"\.(?:{'|'.join(RESULT_LIKE)})(?![\w.])")
_BEFORE = re.compile(r"[\w ~./@+-]*")
_LONGEST_NAME, _LONGEST_PART = 300, 255  # characters that are looked at, bytes that a file system takes
_QUOTED = re.compile(r"""["']([^"'\n]{1,300})["']""")
_DATA = (".json", ".jsonl", ".pt", ".bin", ".safetensors", ".toml", ".yaml", ".yml")
_OWN = (rundir.RUNS, "checkpoints", ".dflash")


@dataclass(frozen=True)
class Guard:
    """`files` are kept safe; `left` are files that were found and are not: too many, or too large."""

    files: tuple[Guarded, ...]
    left: tuple[str, ...]


def looked(request: ExternalLook) -> ExternalLooked:
    """The files that a run of the command would guard, and what makes it impossible; nothing is created."""
    problems: list[str] = []
    root = Path(request.root)
    while not root.is_dir():
        root = root.parent
    script = script_of(request.command)
    path = request.environment.get("PATH", os.environ.get("PATH"))
    if shutil.which(request.command[0], path=path) is None:
        problems.append(f"{request.command[0]}: no such program that can be run; see harness.command")
    guarded: list[Guarded] = []
    left: tuple[str, ...] = ()
    try:
        found = guard(request.command, request.results, request.inputs, Path(request.root), root)
        guarded, left = list(found.files), found.left
    except HarnessError as error:
        problems.append(str(error))
    return ExternalLooked(
        script=os.fspath(script) if script else "",
        script_sha256=sha256(script) if script else "",
        guarded=tuple(item.path for item in guarded if item.kind == "file"),
        unguarded=left,
        problems=tuple(problems),
    )


def script_of(command: Sequence[str]) -> Path | None:
    """The file whose text is the harness: the first word after the program that names one that can be read, in a folder
    that the command names, or a module there (after -m); else the program, if it is a script itself."""
    folders = _folders(command)
    for before, word in itertools.pairwise(command):
        for folder in folders or [Path("/")]:  # an absolute word stays what it is
            names = [f"{word.replace('.', '/')}{end}" for end in (".py", "/__main__.py")] if before == "-m" else [word]
            for path in (folder / name for name in names):
                if path.suffix not in _DATA and (folders or os.path.isabs(word)) and _is_text(path):
                    return path
    program = Path(command[0])
    return program if program.is_absolute() and _is_text(program) else None


def guard(command: Sequence[str], results: Sequence[str], inputs: Sequence[str], root: Path, run_dir: Path) -> Guard:
    """The paths that are kept safe. `run_dir` tells the file system that old files will be put aside on.

    Declared ones must be (HarnessError says why one can't). What the script's text names and what lies beside it is
    kept safe, too, as far as it can be: a script may ignore where it was told to write.
    """
    files: list[Guarded] = []
    seen: set[str] = set()
    for name in results:
        if os.path.isabs(name) and run_dir not in Path(name).parents:
            _add(files, seen, Path(name), run_dir)
    script = script_of(command)
    left: list[str] = []
    total, most = 0, len(files) + MOST_FILES
    for path in _candidates(script, command, inputs, root) if script is not None else ():
        if os.fspath(path) in seen or not _writable(path):
            continue
        size = path.stat().st_size if os.path.isfile(path) else 0
        try:
            if (len(files) >= most or total + size > MOST_BYTES) and size:
                raise HarnessError("too many or too large")
            _add(files, seen, path, run_dir)
            total += size
        except HarnessError:
            left.append(os.fspath(path))
    return Guard(tuple(files), tuple(dict.fromkeys(left)))


def _folders(command: Sequence[str]) -> list[Path]:
    """Folders that the command names: `env -C FOLDER` is how a script is run from its own."""
    return [Path(word) for word in command if os.path.isabs(word) and os.path.isdir(word)]


def _add(files: list[Guarded], seen: set[str], path: Path, run_dir: Path) -> None:
    for item in describe(path, len(files), run_dir):
        if item.path not in seen:
            seen.add(item.path)
            files.append(item)
    seen.add(os.fspath(path))


def _candidates(script: Path, command: Sequence[str], inputs: Sequence[str], root: Path) -> Iterator[Path]:
    """Paths that the script may write to, likeliest first; what it only reads, and what is ours, is left out."""
    kept_out = [*(Path(name) for name in inputs), *(root / name for name in _OWN), script]
    folders = tuple(dict.fromkeys((script.parent, *_folders(command), root)))
    for path in (*_named(script, command, folders), *_beside(script.parent)):
        if not any(path == out or out in path.parents for out in kept_out):
            yield path


def _named(script: Path, command: Sequence[str], folders: Iterable[Path]) -> Iterator[Path]:
    """Files that the command or the script's text name, in one piece or as a folder and a name: those that are there,
    and results that are not there yet."""
    text = ""
    if script.stat().st_size <= LARGEST_SCRIPT:
        text = script.read_text("utf-8", "replace")
    quoted = [match[1] for match in _QUOTED.finditer(text)]
    told = (Path(name) for name in quoted if os.path.isabs(name) and os.path.isdir(name))
    folders = tuple(dict.fromkeys((*folders, *told)))
    for name in dict.fromkeys((*command, *quoted, *_unquoted(text))):
        if not _NAME.fullmatch(name) or "//" in name:
            continue
        whole = name.startswith(("/", "~/"))
        places = [Path(name).expanduser()] if whole else [folder / name for folder in folders]
        places += [folder / name.lstrip("/") for folder in folders] if name.startswith("/") else []
        for path in map(Path, map(os.path.normpath, places)):
            if os.path.isfile(path) or _may_come(path):
                yield path


def _may_come(path: Path) -> bool:
    """Whether a script may be about to create it. What seems to lie in / is the end of a longer name, as of
    f"{folder}/results.json"; guarding that would make every run on the host wait for every other one."""
    return (
        path.suffix.lstrip(".") in TEXTUAL
        and path.parent != Path("/")
        and os.path.isdir(path.parent)
        and not os.path.lexists(path)
        and len(os.fsencode(path.name)) <= _LONGEST_PART
    )


def _unquoted(text: str) -> Iterator[str]:
    """What may be names in it: with the words before (a path may hold spaces), and without (an argument's value)."""
    for ending in _ENDING.finditer(text):
        before = _BEFORE.match(text[max(0, ending.start() - _LONGEST_NAME) : ending.start()][::-1])
        whole = (before[0][::-1] if before else "") + ending[0]
        yield from (whole.lstrip(), whole.rpartition(" ")[2])


def _beside(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # it may be run from there without being looked into
        return
    for entry in entries:
        if entry.name.rpartition(".")[2] in RESULT_LIKE and not entry.name.startswith(".") and entry.is_file():
            yield folder / entry.name


def _writable(path: Path) -> bool:
    """Whether this user can change what the path holds: replace it, which a file that may not be written to does not
    hinder, or write into it."""
    return os.access(path.parent, os.W_OK) or os.access(path, os.W_OK)


def _is_text(path: Path) -> bool:
    """Whether a file can be read and is no binary; an interpreter may be a shim, a script that starts the real one."""
    try:
        if not stat.S_ISREG(path.stat().st_mode) or path.name.startswith("python"):
            return False
        with path.open("rb") as stream:
            return b"\0" not in stream.read(4096)
    except OSError:
        return False
