"""What names a folder's newest finished checkpoint: a link, or a text file that the trainer writes after it.

| writer | pointer |
|---|---|
| SpecForge | link `{run}-latest`, set when every rank has said that it is done |
| DeepSpec | link `step_latest` (absolute, dangling where old steps are removed) |
| NeMo Automodel | link `LATEST`, or `LATEST.txt` |
| speculators | link `epoch0_step16626` to the epoch's folder |
| Megatron, verl, TorchSpec | `latest_checkpointed_iteration.txt`: a number |
| SpecForge, speculators | links to the best: `{run}-best`, `checkpoint_best` |
| DeepSpeed | `latest`: a folder's name |
| nanotron | `latest.txt`: a number |
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dflash_tui.checkpoints.names import Named, read_name

POINTER_BYTES = 4096
"""No text that names a checkpoint is longer."""

_LINK = re.compile(r"^(?:(?P<run>.+?)[-_.])??(?:latest|last)$", re.I)
_TEXT = re.compile(r"^(?:latest|latest_checkpointed_iteration\.txt|latest\.txt|last_checkpoint)$", re.I)
_PREFIX_ONLY = frozenset(("step", "checkpoint", "ckpt", "global_step", "iter", "epoch", "draft_step"))
_SLACK = 1.0  # seconds: hosts that tell whole seconds


@dataclass(frozen=True)
class Pointer:
    """`name` is the link's or the text file's, `says` the checkpoint's name or number that it tells, `run` the run that
    it is of ("" for all), `mtime` when it was made (POSIX seconds). One that does not tell the `newest` (a link to the
    best) says something of the checkpoint alone that it names."""

    name: str
    says: str
    run: str
    mtime: float
    newest: bool = True

    def about(self, name: str, named: Named | None, newest: float) -> bool | None:
        """Whether it says that a checkpoint is finished, whose newest file is of `newest`: True when it was set after
        that and names it or a later one; False when it names an earlier one; None when it tells nothing."""
        if self.run and (named is None or named.run != self.run):
            return None
        same = self.says == name
        if not same and not self.newest:
            return None
        told = self._number()
        if not same and (told is None or named is None or not self._comparable(told, named)):
            return None
        if same or (told is not None and named is not None and named.number <= told.number):
            return True if self.mtime + _SLACK >= newest else None
        return False

    def _comparable(self, told: Named, named: Named) -> bool:
        """A number alone counts what the folders' names count."""
        return (not told.run or told.run == named.run) and (self.says.isdigit() or told.kind == named.kind)

    def _number(self) -> Named | None:
        if self.says.isdigit():
            return Named("step", int(self.says)) if len(self.says) < 16 else None
        return read_name(self.says)


def pointer_files(entries: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The text files, of (name, kind) pairs, whose content names a checkpoint."""
    return tuple(name for name, kind in entries if kind == "file" and _TEXT.match(name))


def pointer_of_link(name: str, target: str, mtime: float) -> Pointer | None:
    """What a link says: it is made when what it leads to is written. None for one that leads nowhere."""
    said = posixpath.basename(target.rstrip("/"))
    match = _LINK.match(name)
    if not said:
        return None
    if match is None:
        return Pointer(name, said, "", mtime, newest=False)
    run = match["run"] or ""
    return Pointer(name, said, "" if run.lower() in _PREFIX_ONLY else run, mtime)


def pointer_of_text(name: str, text: bytes, mtime: float) -> Pointer | None:
    """What a text file names; None where it says nothing usable ("release", or half a write)."""
    lines = text.decode("utf-8", "replace").split("\n")
    said = posixpath.basename(lines[0].strip().rstrip("/"))
    if not said or "\0" in said or (not said.isdigit() and read_name(said) is None):
        return None
    return Pointer(name, said, "", mtime)


def finished(pointers: Sequence[Pointer], name: str, named: Named | None, newest: float) -> tuple[bool | None, str]:
    """What all pointers together say of a checkpoint, and which of them: finished outweighs not yet."""
    said: Mapping[bool | None, Pointer] = {item.about(name, named, newest): item for item in pointers}
    for verdict in (True, False):
        if verdict in said:
            return verdict, f"{said[verdict].name} names {said[verdict].says}"
    return None, ""
