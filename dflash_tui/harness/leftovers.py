"""What we have left on an evaluation host beside run directories: found, and taken away when that is asked.

Only what its name and its place prove to be ours is touched, only when nobody has it open and it has been quiet for a
while. This file is a program of its own (its source is sent to a Python there, nothing is installed), hence it imports
nothing of ours. Its one argument is a request, its output an answer, both JSON; `evals.leftovers` has their shapes.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from typing import Any, Dict, Iterator, List, Set, Tuple

QUIET_SECONDS = 900.0
"""A transfer that was cut tries again within minutes: what is younger may be somebody's work."""

_PIECE = re.compile(r"\..{1,120}\.[0-9a-f]{12}\.[0-9a-f]{8}\.part", re.DOTALL)
_TEMPORARY = re.compile(r"\..{1,40}\.[0-9a-f]{12}\.tmp", re.DOTALL)
_OF_A_RUN = re.compile(r"\.(?:manifest|capture|process|exit|results|audit|external)\.json\.\d+\.part")
_FEATURES = re.compile(r"\..{1,200}\.safetensors\.\d+\.part", re.DOTALL)
_HARNESS = re.compile(r"harness-[0-9a-f]{64}\.pyz")
_RECORD = ".transfer.json"

Identity = Tuple[int, int]


class Cleaning:
    """One look at a root. `found` is what can go (or has gone), `kept` what looks like it and stays, with reasons."""

    def __init__(self, request: Dict[str, Any]) -> None:
        self.root = str(request["root"])
        self.harness = str(request["harness"])
        self.features = [str(folder) for folder in request["features"]]
        self.checkpoints = bool(request["checkpoints"])
        self.remove = bool(request["remove"])
        self.found: List[Dict[str, Any]] = []
        self.kept: List[Dict[str, Any]] = []
        self.open = _open_files()
        self.commands = _commands()
        self.now = time.time()

    def look(self) -> None:
        """Everything below the root, and unfinished hidden states where those are made."""
        for name, path, found in _entries(os.path.join(self.root, ".dflash")):
            if _HARNESS.fullmatch(name) and name != self.harness:
                self._harness(name, path, found)
            elif _TEMPORARY.fullmatch(name):
                self._take(path, found, "temporary file", "an upload that did not end")
        runs = os.path.join(self.root, "runs")
        for _, run_dir, its in _entries(runs):
            for name, path, found in _entries(run_dir) if stat.S_ISDIR(its.st_mode) else ():
                if _TEMPORARY.fullmatch(name) or _OF_A_RUN.fullmatch(name):
                    self._take(path, found, "temporary file", "a record that was not written to its end")
        for folder in self.features:
            for name, path, found in _entries(folder):
                if _FEATURES.fullmatch(name):
                    self._take(path, found, "temporary file", "hidden states that were not written to their end")
        linked = _linked(runs)
        fetched = os.path.join(self.root, "checkpoints")
        for _, training, its in _entries(fetched):
            for _, step, inner in _entries(training) if stat.S_ISDIR(its.st_mode) else ():
                if stat.S_ISDIR(inner.st_mode):
                    self._step(step, linked)
            self._empty(training)

    def _step(self, folder: str, linked: Dict[Identity, str]) -> None:
        busy = False
        for name, path, found in list(_below(folder)):
            if _PIECE.fullmatch(name):
                busy = not self._take(path, found, "transfer piece", "a transfer that did not end") or busy
            elif _TEMPORARY.fullmatch(name):
                self._take(path, found, "temporary file", "a record that was not written to its end")
        if self.checkpoints and not busy:
            self._checkpoint(folder, linked)
        for inside, folders, _ in os.walk(folder, topdown=False):
            for name in folders:
                self._empty(os.path.join(inside, name))
        self._empty(folder)

    def _checkpoint(self, folder: str, linked: Dict[Identity, str]) -> None:
        """The files that the folder's record says were brought, as long as they are still those."""
        record = os.path.join(folder, _RECORD)
        files, whole = _recorded(record), True
        for name, here in sorted(files.items()):
            path = os.path.join(folder, name)
            try:
                found = os.lstat(path)
            except OSError:
                continue  # gone already
            if not stat.S_ISREG(found.st_mode) or not _same(found, here):
                self._keep(path, "is not the file that was fetched: it was changed or replaced since")
                whole = False
                continue
            reason, freed = "can be fetched again", found.st_size
            if found.st_nlink > 1:
                run = linked.get((found.st_dev, found.st_ino))
                reason, freed = f"{run or 'another name'} keeps its bytes by a hard link", 0
            whole = self._take(path, found, "checkpoint", reason, freed) and whole
        if files and whole:
            self._take(record, os.lstat(record), "record", "of the checkpoint that goes")

    def _harness(self, name: str, path: str, found: os.stat_result) -> None:
        if any(name in command for command in self.commands):  # whichever way leads a run to it
            self._keep(path, "a run works with it")
        else:
            self._take(path, found, "harness", "of another version; it is sent again where it is needed")

    def _take(self, path: str, found: os.stat_result, kind: str, reason: str, frees: int = -1) -> bool:
        """Whether it goes: it is a file, nobody has it open, and nothing was done to it for a while."""
        if not stat.S_ISREG(found.st_mode):
            self._keep(path, "is no file")
            return False
        if (found.st_dev, found.st_ino) in self.open and kind != "checkpoint":
            self._keep(path, "somebody has it open")
            return False
        quiet = self.now - max(found.st_mtime, found.st_ctime)
        if quiet < QUIET_SECONDS:
            self._keep(path, f"is {max(0, int(quiet))} s old; what is younger than {QUIET_SECONDS:.0f} s may be in use")
            return False
        return self._gone(path, kind, found.st_size if frees < 0 else frees, reason, os.unlink)

    def _empty(self, folder: str) -> None:
        """A folder of ours that holds nothing, or nothing that stays."""
        going = {entry["path"] for entry in self.found}
        try:
            inside = [os.path.join(folder, name) for name in os.listdir(folder)]
            quiet = self.now - os.lstat(folder).st_mtime
        except OSError:
            return
        if all(path in going for path in inside) and (inside or quiet >= QUIET_SECONDS or self._emptied(folder)):
            self._gone(folder, "empty folder", 0, "nothing is left in it", os.rmdir)

    def _emptied(self, folder: str) -> bool:
        """Whether it is empty because of what has just been taken from it."""
        return any(os.path.dirname(entry["path"]) == folder for entry in self.found)

    def _gone(self, path: str, kind: str, frees: int, reason: str, remove: Any) -> bool:
        if self.remove:
            try:
                remove(path)
            except FileNotFoundError:
                return True
            except OSError as error:
                self._keep(path, f"can't be removed: {error.strerror}")
                return False
        self.found.append({"path": path, "kind": kind, "bytes": frees, "reason": reason})
        return True

    def _keep(self, path: str, reason: str) -> None:
        self.kept.append({"path": path, "reason": reason})


def _entries(folder: str) -> Iterator[Tuple[str, str, os.stat_result]]:
    """Name, path and own stat (links are not followed) of what lies in a folder; nothing where it can't be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        try:
            yield name, path, os.lstat(path)
        except OSError:
            continue


def _below(folder: str) -> Iterator[Tuple[str, str, os.stat_result]]:
    """The same of a folder and those in it: a checkpoint's files may lie in folders of their own."""
    for inside, _, _ in os.walk(folder):
        yield from _entries(inside)


def _linked(runs: str) -> Dict[Identity, str]:
    """Which run directory holds which file of a checkpoint."""
    found: Dict[Identity, str] = {}
    for run, run_dir, _ in _entries(runs):
        for _, _, its in _below(os.path.join(run_dir, "checkpoint")):
            found.setdefault((its.st_dev, its.st_ino), run)
    return found


def _recorded(path: str) -> Dict[str, Any]:
    """The files that a transfer's record names, each as it was when it had been verified; {} without one."""
    try:
        with open(path, "rb") as stream:
            files = json.load(stream)["files"]
        return {name: entry["here"] for name, entry in files.items() if _plain(name)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _plain(name: str) -> bool:
    return all(part not in ("", ".", "..") for part in name.split("/"))


def _same(found: os.stat_result, here: Any) -> bool:
    """Size, time (whole seconds, as some hosts tell it) and inode, where it was told."""
    return (
        isinstance(here, dict)
        and found.st_size == here.get("size")
        and isinstance(here.get("mtime"), (int, float))
        and int(found.st_mtime) == int(here["mtime"])
        and here.get("inode") in (0, found.st_ino)
    )


def _open_files() -> Set[Identity]:
    """What the processes that we may look at have open."""
    found: Set[Identity] = set()
    for process in os.listdir("/proc"):
        folder = f"/proc/{process}/fd"
        try:
            handles = os.listdir(folder) if process.isdigit() else []
        except OSError:
            continue
        for handle in handles:
            try:
                its = os.stat(f"{folder}/{handle}")
            except OSError:
                continue
            if stat.S_ISREG(its.st_mode):
                found.add((its.st_dev, its.st_ino))
    return found


def _commands() -> List[str]:
    """The command lines of all processes but this one, which names the harness that is kept."""
    found = []
    for process in os.listdir("/proc"):
        if process.isdigit() and int(process) != os.getpid():
            try:
                with open(f"/proc/{process}/cmdline", "rb") as stream:
                    found.append(os.fsdecode(stream.read().replace(b"\0", b" ")))
            except OSError:
                continue
    return found


def main(request: str) -> None:
    """Look, and print the answer."""
    cleaning = Cleaning(json.loads(request))
    cleaning.look()
    text = json.dumps({"found": cleaning.found, "kept": cleaning.kept})
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1])
