"""Which entries of a folder are checkpoints, of which run and step, told from names alone."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dflash_tui.checkpoints.complete import is_temporary
from dflash_tui.checkpoints.opening import WEIGHT_SUFFIXES, is_weights_name

_HEAD = r"^(?:(?P<run>.+?)[-_.])??(?:epoch[-_=]?\d+[-_])?"
_NUMBERED = re.compile(_HEAD + r"(?:global[-_]?step|draft[-_]step|checkpoint|ckpt|step|iter)[-_=]?(?P<step>\d+)$", re.I)
_NUMBERED_FILE = re.compile(
    _HEAD + r"(?:global[-_]?step|checkpoint|ckpt|model|drafter|step|iter)[-_=]?(?P<step>\d+)$", re.I
)
_EPOCH = re.compile(r"^(?:(?P<run>.+?)[-_.])??(?:(?:epoch|state)[-_=]?)?(?P<epoch>\d{1,6})$", re.I)
_LINK_STEP = re.compile(r"^epoch[-_]?\d+[-_]step[-_]?(?P<step>\d+)$", re.I)
_TEMPORARY_TAIL = re.compile(r"\.(tmp|part|partial|incomplete)([-.\d_]\w*)?$", re.I)
_HF_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Listed:
    """An entry of a folder; `target` is a link's text; `mtime` POSIX seconds (0.0 when not known)."""

    name: str
    kind: Literal["file", "folder", "link", "other"]
    target: str = ""
    mtime: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """Something that looks like a checkpoint. `path` is what would be opened (a file, or a folder), `folder` the folder
    that `files` (relative names) lie in; `run` is "" where names tell none; `order` ranks it inside its run."""

    name: str
    path: str
    folder: str
    files: tuple[str, ...]
    step: int | None
    run: str
    order: int = 0
    mtime: float = 0.0


def candidates(root: str, entries: Sequence[Listed], listing: Callable[[str], Sequence[Listed]]) -> list[Candidate]:
    """The checkpoints in a folder whose entries are given, newest last; `listing` lists a folder below it by path.

    Inside a run the order is by step (or epoch); runs that share the folder follow one another by their newest file.
    Links such as step_latest, checkpoint_best or LATEST are no checkpoints of their own; a numbered link that leads
    out of the folder is one.
    """
    steps = _steps_from_links(entries)
    found: list[Candidate] = []
    whole = _root_as_checkpoint(root, entries)
    if whole is not None:
        found.append(whole)
    for entry in entries:
        path = posixpath.join(root, entry.name)
        if entry.kind == "folder" or (entry.kind == "link" and _leads_out(root, entry)):
            candidate = _folder(path, entry, listing, steps.get(entry.name))
        elif entry.kind == "file" and whole is None:
            candidate = _plain_file(root, entry)
        else:
            candidate = None
        if candidate is not None:
            found.append(candidate)
    newest: dict[str, float] = {}
    for item in found:
        newest[item.run] = max(newest.get(item.run, 0.0), item.mtime)
    return sorted(found, key=lambda item: (newest[item.run], item.run, item.order, item.mtime, item.name))


def _folder(
    path: str, entry: Listed, listing: Callable[[str], Sequence[Listed]], linked_step: int | None
) -> Candidate | None:
    if entry.name.startswith(".") or is_temporary(entry.name):
        return None
    numbered, epoch = _NUMBERED.match(entry.name), _EPOCH.match(entry.name)
    inner = listing(path)
    files = tuple(sorted(item.name for item in inner if item.kind in ("file", "link")))
    weights = any(is_weights_name(name) or name.endswith((".metadata", ".distcp", ".index.json")) for name in files)
    unfinished = any(is_temporary(name) for name in files)
    if numbered is None and not weights and not unfinished:
        return None
    step = linked_step
    run = ""
    order = -1
    if numbered is not None:
        step, run = int(numbered.group("step")), numbered.group("run") or ""
        order = step
    elif epoch is not None:
        run, order = epoch.group("run") or "", int(epoch.group("epoch"))
    mtime = max((item.mtime for item in inner), default=entry.mtime)
    return Candidate(entry.name, path, path, files, step, run, order, mtime)


def _plain_file(root: str, entry: Listed) -> Candidate | None:
    name = _TEMPORARY_TAIL.sub("", entry.name)
    if entry.name.startswith(".") or not is_weights_name(name):
        return None
    stem = name[: -len(next(suffix for suffix in WEIGHT_SUFFIXES if name.lower().endswith(suffix)))]
    numbered = _NUMBERED_FILE.match(stem) or _NUMBERED.match(posixpath.basename(root.rstrip("/")))
    step = int(numbered.group("step")) if numbered else None
    run = (numbered.group("run") or "") if numbered else ""
    order = -1 if step is None else step
    return Candidate(entry.name, posixpath.join(root, entry.name), root, (entry.name,), step, run, order, entry.mtime)


def _root_as_checkpoint(root: str, entries: Sequence[Listed]) -> Candidate | None:
    """The folder itself, when it holds a model in the transformers layout."""
    names = tuple(sorted(entry.name for entry in entries if entry.kind in ("file", "link")))
    if not any(name in _HF_FILES or name.endswith(".index.json") for name in names):
        return None
    name = posixpath.basename(root.rstrip("/"))
    numbered = _NUMBERED.match(name)
    step = int(numbered.group("step")) if numbered else None
    run = (numbered.group("run") or "") if numbered else ""
    mtime = max(entry.mtime for entry in entries)
    return Candidate(name, root, root, names, step, run, -1 if step is None else step, mtime)


def _steps_from_links(entries: Sequence[Listed]) -> dict[str, int]:
    """Steps of epoch folders that links name (speculators: epoch0_step16626 → 0)."""
    steps: dict[str, int] = {}
    for entry in entries:
        match = _LINK_STEP.match(entry.name) if entry.kind == "link" else None
        if match:
            steps[posixpath.basename(entry.target.rstrip("/"))] = int(match.group("step"))
    return steps


def _leads_out(root: str, entry: Listed) -> bool:
    """Whether a numbered link points outside its folder: then what it names is not listed otherwise."""
    if not _NUMBERED.match(entry.name) or not entry.target:
        return False
    target = posixpath.normpath(posixpath.join(root, entry.target))
    return posixpath.dirname(target) != posixpath.normpath(root)
