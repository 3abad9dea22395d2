"""The checkpoints of a training that were fetched to an evaluation host: which old ones can go, and their going.

A checkpoint goes as a whole or not at all: its folder gets a hidden name first, in one step, and is then removed. Only
a folder that holds nothing but what a transfer has recorded there is touched. This is a program that is sent to a
Python there (`evals.leftovers.prune`); its one argument is a `PruneRequest`, its output an answer, both JSON.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from dflash_tui.harness.looking import (
    CLAIM,
    PIECE,
    QUIET_SECONDS,
    RECORD,
    TEMPORARY,
    Identity,
    below,
    commands,
    entries,
    identity,
    is_time,
    linked,
    locked,
    open_files,
    recorded,
    same,
)

ABANDONED_SECONDS = 86400.0
"""What was left of a transfer is continued by the next one; after a day nobody is likely to."""

_COPIES = 1000

_HIDDEN = re.compile(r"\..{1,200}\.[0-9a-f]{8}\.pruned", re.DOTALL)
_NAME = re.compile(r"(?P<base>.+?)(?:-full)?(?P<copy>-\d{1,6})?", re.DOTALL)
"""A full copy lies beside a slim one of the same checkpoint, another save of the same name beside the one before."""

_STEP = re.compile(r"step_(\d{1,15})", re.ASCII)


@dataclass
class Saved:
    """A folder below ``checkpoints/<training>``. `saved` is when the training saved what lies in it, POSIX seconds of
    that host, None where nothing tells (when it came here says nothing of that); `origins` where its files came from,
    as (host, path); `holds` the reasons why it may not be touched."""

    name: str
    path: str
    saved: Optional[float] = None
    size: int = 0
    freed: int = 0
    origins: List[Tuple[str, str]] = field(default_factory=list)
    pieces: List[Tuple[str, os.stat_result]] = field(default_factory=list)
    holds: List[str] = field(default_factory=list)
    whole: bool = False

    @property
    def which(self) -> str:
        """What tells checkpoints apart: all copies of a step are equal in it, else a slim and a full one of a name."""
        match = _NAME.fullmatch(self.name)
        base, copy = (match["base"], match["copy"] or "") if match is not None else (self.name, "")
        return base if _STEP.fullmatch(base) else base + copy

    @property
    def step(self) -> Optional[int]:
        """The step that its name says."""
        match = _STEP.fullmatch(self.which)
        return int(match[1]) if match is not None else None


class Pruning:
    """One look at a training's fetched checkpoints. `found` is what can go (or has gone), `kept` what stays."""

    def __init__(self, request: Dict[str, Any]) -> None:
        self.root = str(request["root"])
        self.folder = os.path.join(self.root, "checkpoints", str(request["training"]))
        self.keep = max(1, int(request["keep"]))
        self.older_than = request["older_than"]
        self.protected: List[Dict[str, str]] = list(request["protected"])
        self.remove = bool(request["remove"])
        self.found: List[Dict[str, Any]] = []
        self.kept: List[Dict[str, Any]] = []
        self.now = time.time()
        self._look_around()

    def _look_around(self) -> None:
        """Who uses files here now."""
        runs = os.path.join(self.root, "runs")
        self.linked = linked(runs)
        self.working = _working(runs, self.now)
        self.open = open_files()
        self.commands = commands()

    def look(self) -> None:
        """Everything in the training's folder, the oldest first."""
        real = os.path.realpath(self.folder)
        expected = os.path.join(os.path.realpath(self.root), os.path.relpath(self.folder, self.root))
        if real != expected:
            return self._keep(
                self.folder, f"leads by a link to {real}, which no root of ours holds: remove by hand there"
            )
        saved: List[Saved] = []
        for name, path, found in list(entries(self.folder)):
            if not stat.S_ISDIR(found.st_mode):
                continue
            if _HIDDEN.fullmatch(name):
                self._rest(name, path, found)
            else:
                saved.append(self._saved(name, path))
        whole = [item for item in saved if item.whole]
        stepped = all(item.step is not None for item in whole)
        steps = {item.which: float(item.step) for item in whole if stepped and item.step is not None}
        times: Dict[str, float] = {}
        for item in whole:
            if item.saved is not None:
                times[item.which] = max(times.get(item.which, item.saved), item.saved)
        order = steps if stepped else times
        saved.sort(key=lambda item: (order.get(item.which, 0.0), item.name))
        # A step may be of a run that was given up, a time that of a copy: who is the newest by either stays.
        reasons = {**self._newest(times, "was saved last"), **self._newest(order, "is the newest")}
        for item in saved:
            reason = self._stays(item, reasons, item.which in order)
            if reason:
                self._keep(item.path, reason)
                self._pieces(item)
            else:
                self._go(item)

    def _newest(self, order: Dict[str, float], first: str) -> Dict[str, str]:
        """Why the first ones in an order stay."""
        newest = sorted(order, key=lambda which: (order[which], which), reverse=True)[: self.keep]
        return {which: f"is one of the {self.keep} newest" if at else first for at, which in enumerate(newest)}

    def _saved(self, name: str, path: str) -> Saved:
        item = Saved(name, path)
        files = recorded(os.path.join(path, RECORD))
        sizes: Dict[Identity, int] = {}
        shared = set()
        for base, inside, found in list(below(path)):
            relative = os.path.relpath(inside, path)
            if stat.S_ISDIR(found.st_mode) or relative == RECORD or TEMPORARY.fullmatch(base):
                continue
            if base == CLAIM:
                if self.now - found.st_mtime < QUIET_SECONDS:
                    item.holds.append("a transfer to it is at work")
            elif PIECE.fullmatch(base):
                item.pieces.append((inside, found))
                if self._used(inside, found):
                    item.holds.append("a transfer to it is at work, or was a moment ago")
            elif relative not in files:
                item.holds.append(f"holds {relative}, which no transfer brought")
            elif not stat.S_ISREG(found.st_mode) or not same(found, files[relative]["here"]):
                item.holds.append(f"{relative} is not the file that was fetched: it was changed or replaced since")
            else:
                item.whole = True
                item.holds.extend(self._file_holds(relative, found))
                sizes[identity(found)] = found.st_size
                if found.st_nlink > 1:
                    shared.add(identity(found))
        item.size = sum(sizes.values())
        item.freed = sum(size for key, size in sizes.items() if key not in shared)
        item.freed += sum(found.st_size for _, found in item.pieces)
        item.origins = [(str(entry.get("host")), str(entry.get("path"))) for entry in files.values()]
        times = [when for when in (_when(entry) for entry in files.values()) if when is not None]
        item.saved = max(times, default=None)
        if not files and not item.pieces:
            item.holds.append("has no record of a transfer")
        item.holds.extend(self._uses(item))
        return item

    def _file_holds(self, name: str, found: os.stat_result) -> List[str]:
        if identity(found) in self.linked:
            return [f"{self.linked[identity(found)]} has {name} by a hard link"]
        if identity(found) in self.open:
            return [f"somebody has {name} open"]
        quiet = self.now - max(found.st_mtime, found.st_ctime)
        if quiet < QUIET_SECONDS:
            return [f"is {max(0, int(quiet))} s old; what is younger than {QUIET_SECONDS:.0f} s may be in use"]
        return []

    def _held(self, path: str) -> List[str]:
        """Who uses files of a folder that has lost its record."""
        files = [(inside, its) for _, inside, its in below(path) if stat.S_ISREG(its.st_mode)]
        return [why for inside, its in files for why in self._file_holds(os.path.relpath(inside, path), its)]

    def _uses(self, item: Saved) -> List[str]:
        """Who refers to it by another way than its files."""
        real = os.path.realpath(item.path)
        reasons = [hold["why"] for hold in self.protected if _refers(hold, item)]
        for run, host, source in self.working:
            if _is_at(real, os.path.realpath(source)) or any(
                _is_at(source, path) and host == at for at, path in item.origins
            ):
                reasons.append(f"{run} works with it")
        if any(path in command for command in self.commands for path in (f"{item.path}/", f"{real}/")):
            reasons.append("a process works with it")
        return reasons

    def _stays(self, item: Saved, newest: Dict[str, str], placed: bool) -> str:
        """Why a checkpoint stays, "" when it can go. `placed`: it is known which ones are newer."""
        why = newest.get(item.which, "") if item.whole else ""
        if why and not why.startswith("is one"):
            return why
        if item.holds:
            return item.holds[0]
        if not item.whole:
            return "is no whole checkpoint"
        if why:
            return why
        if not placed or (self.older_than is not None and item.saved is None):
            return "nothing tells when it was saved"
        if self.older_than is not None and self._age(item) < self.older_than:
            return f"was saved {self._age(item) / 86400:.1f} days ago"
        return ""

    def _age(self, item: Saved) -> float:
        return self.now - item.saved if item.saved is not None else 0.0

    def _go(self, item: Saved) -> None:
        told = f"saved {self._age(item) / 86400:.1f} days ago; " if item.saved is not None else ""
        reason = f"{told}it can be fetched again"
        if item.freed < item.size:
            reason += "; another name keeps its bytes by a hard link"
        if not self.remove:
            return self._gone(item.path, "checkpoint", item.freed, reason)
        hidden = os.path.join(self.folder, f".{item.name[:190]}.{secrets.token_hex(4)}.pruned")
        try:
            os.rename(item.path, hidden)
        except OSError as error:
            return self._keep(item.path, f"can't be removed: {error.strerror}")
        self._look_around()  # somebody may have come for it since
        holds = [*self._saved(item.name, hidden).holds, *self._uses(item)]
        if holds:
            return self._back(item, hidden, holds[0])
        try:
            shutil.rmtree(hidden)
        except OSError as error:
            return self._keep(hidden, f"was to go and can't be removed whole: {error.strerror}")
        return self._gone(item.path, "checkpoint", item.freed, reason)

    def _back(self, item: Saved, hidden: str, why: str) -> None:
        """Give what is in use its name again, or, when that was taken meanwhile, the next one that is free."""
        for copy in range(1, _COPIES):
            path = item.path if copy == 1 else f"{item.path}-{copy}"
            try:
                if not os.path.lexists(path):
                    os.rename(hidden, path)
                    moved = f"; {item.name} was fetched again meanwhile, so its name is another now"
                    return self._keep(path, why + moved if copy > 1 else why)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    return self._keep(hidden, f"{why}; it can't get its name back: {error.strerror}")
        return self._keep(hidden, f"{why}; it can't get its name back: others have it")

    def _pieces(self, item: Saved) -> None:
        """What a transfer left long ago in a folder that stays, and the folder if that was all."""
        for path, found in item.pieces:
            age = self.now - max(found.st_mtime, found.st_ctime)
            if age >= ABANDONED_SECONDS and not self._used(path, found):
                kind = "transfer piece"
                self._unlink(path, kind, found.st_size, f"a transfer that ended {age / 86400:.1f} days ago", os.unlink)

    def _rest(self, name: str, path: str, found: os.stat_result) -> None:
        """What an earlier removal did not get to its end with."""
        size = sum(its.st_size for _, _, its in below(path) if stat.S_ISREG(its.st_mode) and its.st_nlink == 1)
        if self.now - found.st_ctime < QUIET_SECONDS:
            return self._keep(path, "is being removed")
        whole = os.path.lexists(os.path.join(path, RECORD))  # then it may have been in use and not got its name back
        holds = self._saved(name, path).holds if whole else self._held(path)
        if holds:
            return self._keep(path, holds[0])
        return self._unlink(path, "half-removed checkpoint", size, "an earlier removal did not end", shutil.rmtree)

    def _used(self, path: str, found: os.stat_result) -> bool:
        young = self.now - max(found.st_mtime, found.st_ctime) < QUIET_SECONDS
        return young or identity(found) in self.open or locked(path)

    def _unlink(self, path: str, kind: str, size: int, reason: str, remove: Any) -> None:
        if self.remove:
            try:
                remove(path)
            except OSError as error:
                return self._keep(path, f"can't be removed: {error.strerror}")
        return self._gone(path, kind, size, reason)

    def _gone(self, path: str, kind: str, size: int, reason: str) -> None:
        self.found.append({"path": path, "kind": kind, "bytes": size, "reason": reason})

    def _keep(self, path: str, reason: str) -> None:
        self.kept.append({"path": path, "reason": reason})


def _when(entry: Dict[str, Any]) -> Optional[float]:
    """When the training saved a file; None of one that has no source."""
    found = entry.get("source")
    mtime = found.get("mtime") if isinstance(found, dict) else None
    return float(mtime) if isinstance(mtime, (int, float)) and is_time(mtime) and mtime > 0 else None


def _refers(hold: Dict[str, str], item: Saved) -> bool:
    if hold["path"]:
        named, own = os.path.realpath(hold["path"]), os.path.realpath(item.path)
        return _is_at(own, named) or _is_at(named, own)
    return any(host == hold["host"] and _is_at(hold["source"], path) for host, path in item.origins)


def _is_at(above: str, path: str) -> bool:
    """Whether a path is another one or below it."""
    if not above.strip("/"):
        return False
    above, path = os.path.normpath(above), os.path.normpath(path)
    return path == above or path.startswith(f"{above}/")


def _working(runs: str, now: float) -> List[Tuple[str, str, str]]:
    """Runs at work, or about to begin, as (run, host, path) of what they evaluate."""
    found = []
    for run, run_dir, its in entries(runs):
        if not stat.S_ISDIR(its.st_mode) or os.path.exists(os.path.join(run_dir, "exit.json")):
            continue
        try:
            with open(os.path.join(run_dir, "manifest.json"), "rb") as stream:
                checkpoint = json.load(stream)["checkpoint"]
            if now - its.st_mtime < QUIET_SECONDS or _alive(os.path.join(run_dir, "process.json")):
                found.append((run, str(checkpoint["host"]), str(checkpoint["path"])))
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return found


def _alive(path: str) -> bool:
    """Whether the process that a run has recorded is still that process."""
    try:
        with open(path, "rb") as stream:
            record = json.load(stream)
        with open(f"/proc/{int(record['pid'])}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except (OSError, ValueError, TypeError, KeyError):
        return False
    return bool(int(fields[19]) == record.get("start_ticks"))


def main(request: str) -> None:
    """Look, and print the answer."""
    pruning = Pruning(json.loads(request))
    pruning.look()
    text = json.dumps({"found": pruning.found, "kept": pruning.kept})
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1])
