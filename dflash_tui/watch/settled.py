"""What the passing of time says of a checkpoint, and what the trainer's own pointers to its newest one say."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dflash_tui.hosts.base import Stat
from dflash_tui.records.checkpoint import SavedCheckpoint

QUIET = 30.0
"""Seconds without a change after which an unfinished checkpoint is no longer called "saving"."""

APART = 1.0
"""Seconds between two looks that are to tell a file that grows from one that does not."""

ABANDONED = 3600.0
"""Seconds without a change after which a save that its writer calls unfinished is taken for a crash's."""

FileStats = tuple[tuple[str, Stat], ...]
"""A checkpoint's files: relative name and stat, sorted by name."""


@dataclass(frozen=True)
class Sighting:
    """A checkpoint as it was seen: its files, the time of the one that changed last (the folder's without any), and the
    host's time when they were first and last seen just so."""

    files: FileStats
    newest: float
    first: float
    last: float

    def quiet(self) -> float:
        """Seconds that nothing has changed, by the host's clock or as long as it was watched."""
        return max(self.last - self.newest, self.last - self.first)

    def decides_at(self) -> float:
        """The host's time from which a look that finds it unchanged tells that nobody writes any more."""
        return max(self.first + APART, min(self.newest, self.first) + QUIET)


def sighted(before: Sighting | None, files: FileStats, folder: float, now: float) -> Sighting:
    """The sighting after another look; `folder` is the time that the names were listed with."""
    newest = max((stat.mtime for _, stat in files), default=folder)
    first = before.first if before is not None and before.files == files else now
    return Sighting(files, newest, first, now)


def settled(
    judged: SavedCheckpoint, seen: Sighting, finished: bool | None = None, pointer: str = "", *, ended: bool = True
) -> SavedCheckpoint:
    """What is to be believed of a checkpoint whose names and bytes were `judged`.

    A pointer that was set after it proves (`finished` True), one that names an earlier one holds back while files are
    young. Where neither bytes nor pointers tell, two looks at unchanged files do, when they are quiet for a while.
    `ended`: its layout's last file is there, so that nothing more is to come.
    """
    young = seen.last - seen.newest < QUIET
    match judged.completeness:
        case "complete" if finished is False and young:
            return replace(judged, completeness="saving", reason=f"its files are whole, but {pointer} still")
        case "complete" if not ended and not finished and young:
            said = f"its files are whole, and more may come; taken as complete when unchanged for {QUIET:.0f} s"
            return replace(judged, completeness="saving", reason=said)
        case "unknown" if finished:
            return replace(judged, completeness="complete", reason=f"{pointer}; by itself: {judged.reason}")
        case "unknown" if seen.last >= seen.decides_at():
            said = f"unchanged for {QUIET:.0f} s and looked at twice; by itself: {judged.reason}"
            return replace(judged, completeness="complete", reason=said)
        case "unknown" if young:
            said = f"{judged.reason}; taken as complete when unchanged for {QUIET:.0f} s"
            return replace(judged, completeness="saving", reason=said)
        case "truncated" if young:
            return replace(judged, completeness="saving")
        case "saving" if seen.quiet() >= ABANDONED:
            return replace(judged, completeness="truncated", reason=f"{judged.reason}; nothing changed for an hour")
        case _:
            return judged
