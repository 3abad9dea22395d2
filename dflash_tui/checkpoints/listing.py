"""Which entries of a folder are checkpoints, of which run and step, told from names alone."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dflash_tui.checkpoints.layouts import holds_weights
from dflash_tui.checkpoints.names import Named, is_temporary, read_name
from dflash_tui.checkpoints.opening import WEIGHT_SUFFIXES, is_weights_name

_LINK_STEP = re.compile(r"^epoch[-_]?\d+[-_]step[-_]?(?P<step>\d{1,15})$", re.I)
_TEMPORARY_TAIL = re.compile(r"\.(tmp|part|partial|incomplete)([-.\d_]\w*)?$", re.I)
_HF_FILES = ("model.safetensors", "pytorch_model.bin")
_DISTRIBUTED = (".metadata", ".distcp")
_PARTS = re.compile(
    r"^(actor|consolidated|dataloader|dcp|draft(er)?|ema|global_step\d+|hf|huggingface|lr_scheduler|model|mp_rank_\d+"
    r"(_\d+)?|optim(izer)?(_\d+)?|policy|pytorch_model_fsdp_\d+|random|recipe_state|scheduler|state|weights)$",
    re.I,
)
"""Folders that trainers make inside a checkpoint; others (logs, code, samples) are not looked into."""

_SAVED = re.compile(r"^(interrupted|final|best|last|latest)([-_.]?(checkpoint|model))?$", re.I)
_DEPTH = 2
_STEPPED = "latest.txt"  # nanotron's: the numbers beside it are steps
_TOGETHER = 60.0  # seconds: `last.ckpt`, saved with a numbered one, is not newer than that


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
    that `files` (relative names) lie in; `run` is "" where names tell none; `order` ranks it inside its run (-1: its
    name has no number). `named` is what the name says; `link` the link that told the step of an epoch's folder, and
    `link_mtime` when that was made."""

    name: str
    path: str
    folder: str
    files: tuple[str, ...]
    step: int | None
    run: str
    order: int = 0
    mtime: float = 0.0
    named: Named | None = None
    link: str = ""
    link_mtime: float = 0.0


def is_part(folder: str) -> bool:
    """Whether a folder of this name lies inside checkpoints, rather than being one."""
    return _PARTS.match(folder) is not None


Listing = Callable[[str], Sequence[Listed]]
"""What a folder below the root holds, by its path."""


def candidates(root: str, entries: Sequence[Listed], listing: Listing) -> list[Candidate]:
    """The checkpoints in a folder whose entries are given, newest last; `listing` lists a folder below it by path.

    Inside a run the order is by step (or epoch); what has no number stands where its time puts it; runs that share the
    folder follow one another by their newest file. Links such as step_latest, checkpoint_best or LATEST are no
    checkpoints of their own; a numbered link that leads out of the folder is one.
    """
    links = _steps_from_links(entries)
    stepped = any(entry.name == _STEPPED and entry.kind == "file" for entry in entries)
    found: list[Candidate] = []
    whole = _root_as_checkpoint(root, entries)
    if whole is not None:
        found.append(whole)
    for entry in entries:
        path = posixpath.join(root, entry.name)
        if entry.kind == "folder" or (entry.kind == "link" and _leads_out(root, entry)):
            candidate = _folder(path, entry, listing, links.get(entry.name), stepped)
        elif entry.kind == "file" and whole is None:
            candidate = _plain_file(root, entry)
        else:
            candidate = None
        if candidate is not None:
            found.append(candidate)
    newest: dict[str, float] = {}
    for item in found:
        newest[item.run] = max(newest.get(item.run, 0.0), item.mtime)
    runs = sorted(newest, key=lambda run: (newest[run], run))
    return [item for run in runs for item in _in_order([item for item in found if item.run == run])]


def _in_order(found: Sequence[Candidate]) -> list[Candidate]:
    """A run's checkpoints, oldest first. Epochs and steps side by side have only their times in common."""
    numbered = [item for item in found if item.order >= 0]
    mixed = len({item.named.kind for item in numbered if item.named is not None}) > 1
    numbered.sort(key=lambda item: (0 if mixed else item.order, item.mtime, item.name))
    for item in sorted((item for item in found if item.order < 0), key=lambda item: (item.mtime, item.name)):
        before = [at for at, other in enumerate(numbered, 1) if other.mtime + _TOGETHER <= item.mtime]
        numbered.insert(max(before, default=0), item)
    return numbered


def _folder(path: str, entry: Listed, listing: Listing, link: Listed | None, stepped: bool) -> Candidate | None:
    if entry.name.startswith(".") or is_temporary(entry.name):
        return None
    named = read_name(entry.name)
    if named is not None and stepped and entry.name.isdigit():
        named = Named("step", named.number)
    inner = listing(path)
    inside = list(_inside("", inner))
    if named is not None or _SAVED.match(entry.name):
        inside += [item for below in inner for item in _below(path, below, listing, 1)]
    files = tuple(sorted(name for name, _ in inside))
    weights = any(holds_weights(name) or name.endswith((*_DISTRIBUTED, ".index.json")) for name in files)
    unfinished = any(is_temporary(name) for name in files)
    if (named is None or named.kind == "epoch") and not weights and not unfinished:
        return None
    step = named.step if named is not None else None
    if link is not None and step is None:
        step = _linked_step(link.name)
    return Candidate(
        entry.name,
        path,
        path,
        files,
        step,
        named.run if named is not None else "",
        named.number if named is not None else -1,
        max((mtime for _, mtime in inside), default=entry.mtime),
        named,
        link.name if link is not None else "",
        link.mtime if link is not None else 0.0,
    )


def _inside(prefix: str, inner: Sequence[Listed]) -> list[tuple[str, float]]:
    """Names of files, relative to the checkpoint, with their times."""
    return [(prefix + item.name, item.mtime) for item in inner if item.kind in ("file", "link")]


def _below(path: str, entry: Listed, listing: Listing, depth: int) -> list[tuple[str, float]]:
    """The files in a folder that a trainer makes inside a checkpoint, with the folder's name before theirs."""
    if entry.kind != "folder" or depth > _DEPTH or not _PARTS.match(entry.name):
        return []
    below = posixpath.join(path, entry.name)
    inner = listing(below)
    found = [*_inside("", inner), *(item for deeper in inner for item in _below(below, deeper, listing, depth + 1))]
    return [(f"{entry.name}/{name}", mtime) for name, mtime in found]


def _plain_file(root: str, entry: Listed) -> Candidate | None:
    name = _TEMPORARY_TAIL.sub("", entry.name)
    if entry.name.startswith(".") or not is_weights_name(name):
        return None
    stem = name[: -len(next(suffix for suffix in WEIGHT_SUFFIXES if name.lower().endswith(suffix)))]
    named = read_name(stem, file=True) or _of_root(root)
    return Candidate(
        entry.name,
        posixpath.join(root, entry.name),
        root,
        (entry.name,),
        named.step if named is not None else None,
        named.run if named is not None else "",
        named.number if named is not None else -1,
        entry.mtime,
        named,
    )


def _root_as_checkpoint(root: str, entries: Sequence[Listed]) -> Candidate | None:
    """The folder itself, when it holds a model in the transformers layout, or a distributed one."""
    names = tuple(sorted(entry.name for entry in entries if entry.kind in ("file", "link")))
    if not any(name in _HF_FILES or name.endswith((".index.json", ".distcp")) for name in names):
        return None
    named = _of_root(root)
    return Candidate(
        posixpath.basename(root.rstrip("/")),
        root,
        root,
        names,
        named.step if named is not None else None,
        named.run if named is not None else "",
        named.number if named is not None else -1,
        max(entry.mtime for entry in entries),
        named,
    )


def _of_root(root: str) -> Named | None:
    """What the folder's own name says, where it is that of a step."""
    named = read_name(posixpath.basename(root.rstrip("/")))
    return named if named is not None and named.kind == "step" else None


def _steps_from_links(entries: Sequence[Listed]) -> dict[str, Listed]:
    """The links that name the step of an epoch's folder (speculators: epoch0_step16626 → 0), by that folder's name; the
    newest of several, for the folder is written again and again."""
    links: dict[str, Listed] = {}
    for entry in sorted(entries, key=lambda item: (item.mtime, _linked_step(item.name) or 0)):
        if entry.kind == "link" and _linked_step(entry.name) is not None:
            links[posixpath.basename(entry.target.rstrip("/"))] = entry
    return links


def _linked_step(name: str) -> int | None:
    match = _LINK_STEP.match(name)
    return int(match["step"]) if match is not None else None


def _leads_out(root: str, entry: Listed) -> bool:
    """Whether a numbered link points outside its folder: then what it names is not listed otherwise."""
    named = read_name(entry.name)
    if named is None or named.step is None or not entry.target:
        return False
    target = posixpath.normpath(posixpath.join(root, entry.target))
    return posixpath.dirname(target) != posixpath.normpath(root)
