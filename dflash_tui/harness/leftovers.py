"""What we have left on an evaluation host beside run directories: found, and taken away when that is asked.

Only what its name and its place prove to be ours is touched, only when nobody has it open and it has been quiet for a
while. This is a program that is sent to a Python there with what it imports of ours (nothing is installed). Its one
argument is a request, its output an answer, both JSON; `evals.leftovers` has their shapes.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from typing import Any, Dict, List

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
    linked,
    open_files,
    recorded,
    same,
)

_OF_A_RUN = re.compile(r"\.(?:manifest|capture|process|exit|results|audit|external)\.json\.\d+\.part")
_FEATURES = re.compile(r"\..{1,200}\.safetensors\.\d+\.part", re.DOTALL)
_HARNESS = re.compile(r"harness-[0-9a-f]{64}\.pyz")


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
        self.open = open_files()
        self.commands = commands()
        self.now = time.time()

    def look(self) -> None:
        """Everything below the root, and unfinished hidden states where those are made."""
        for name, path, found in entries(os.path.join(self.root, ".dflash")):
            if _HARNESS.fullmatch(name) and name != self.harness:
                self._harness(name, path, found)
            elif TEMPORARY.fullmatch(name):
                self._take(path, found, "temporary file", "an upload that did not end")
        runs = os.path.join(self.root, "runs")
        for _, run_dir, its in entries(runs):
            for name, path, found in entries(run_dir) if stat.S_ISDIR(its.st_mode) else ():
                if TEMPORARY.fullmatch(name) or _OF_A_RUN.fullmatch(name):
                    self._take(path, found, "temporary file", "a record that was not written to its end")
        for folder in self.features:
            for name, path, found in entries(folder):
                if _FEATURES.fullmatch(name):
                    self._take(path, found, "temporary file", "hidden states that were not written to their end")
        held = linked(runs)
        fetched = os.path.join(self.root, "checkpoints")
        for _, training, its in entries(fetched):
            for _, step, inner in entries(training) if stat.S_ISDIR(its.st_mode) else ():
                if stat.S_ISDIR(inner.st_mode):
                    self._step(step, held)
            self._empty(training)

    def _step(self, folder: str, held: Dict[Identity, str]) -> None:
        busy = False
        for name, path, found in list(below(folder)):
            if PIECE.fullmatch(name):
                busy = not self._take(path, found, "transfer piece", "a transfer that did not end") or busy
            elif name == CLAIM:
                busy = not self._take(path, found, "temporary file", "a transfer's claim that nobody holds") or busy
            elif TEMPORARY.fullmatch(name):
                self._take(path, found, "temporary file", "a record that was not written to its end")
        if self.checkpoints and not busy:
            self._checkpoint(folder, held)
        for inside, folders, _ in os.walk(folder, topdown=False):
            for name in folders:
                self._empty(os.path.join(inside, name))
        self._empty(folder)

    def _checkpoint(self, folder: str, held: Dict[Identity, str]) -> None:
        """The files that the folder's record says were brought, as long as they are still those."""
        record = os.path.join(folder, RECORD)
        files, whole = recorded(record), True
        for name, entry in sorted(files.items()):
            path = os.path.join(folder, name)
            try:
                found = os.lstat(path)
            except OSError:
                continue  # gone already
            if not stat.S_ISREG(found.st_mode) or not same(found, entry["here"]):
                self._keep(path, "is not the file that was fetched: it was changed or replaced since")
                whole = False
                continue
            reason, freed = "can be fetched again", found.st_size
            if found.st_nlink > 1:
                run = held.get(identity(found))
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
        if identity(found) in self.open and kind != "checkpoint":
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


def main(request: str) -> None:
    """Look, and print the answer."""
    cleaning = Cleaning(json.loads(request))
    cleaning.look()
    text = json.dumps({"found": cleaning.found, "kept": cleaning.kept})
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1])
