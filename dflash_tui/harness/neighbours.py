"""The runs that work on this host now, as their folders tell."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from dflash_tui.harness import process, rundir
from dflash_tui.harness.errors import HarnessError
from dflash_tui.records.process import ProcessRecord
from dflash_tui.records.survey import SurveyedRun

QUEUED = "queued"
_LAST_LINE = 4096


def working(runs: Path) -> list[SurveyedRun]:
    """Every run below `runs` whose process is alive, the earliest started first. What can't be read is left out: it is
    somebody else's, or has just gone."""
    found: list[tuple[str, int, SurveyedRun]] = []
    try:
        folders = [Path(entry.path) for entry in os.scandir(runs) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    for folder in folders:
        if (folder / rundir.EXIT).exists() or not (folder / rundir.PROCESS).exists():
            continue
        try:
            its = rundir.read(folder / rundir.PROCESS, ProcessRecord)
        except HarnessError:
            continue
        if process.running(its):
            run = SurveyedRun(folder.name, request_id(folder), _phase(folder), None)
            found.append((its.started_at, its.pid, run))
    found.sort(key=lambda item: (item[0], item[2].phase == QUEUED, item[2].run_id))
    held = {pid: memory_held(pid) for _, pid, _ in found}
    # One process may carry several runs: its memory is told once.
    return [replace(run, memory=held.pop(pid, 0)) for _, pid, run in found]


def request_id(run_dir: Path) -> str:
    """What a run was asked, in one word; "" for a capture and where it can't be read."""
    try:
        data = json.loads((run_dir / rundir.MANIFEST).read_bytes())
    except (OSError, ValueError):
        return ""
    asked = data.get("request_id") if isinstance(data, dict) else None
    return asked if isinstance(asked, str) else ""


def memory_held(pid: int) -> int | None:
    """Bytes that end with a process: what it holds beside files' pages; None where that is not told."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    said = next((line.split() for line in lines if line.startswith("RssAnon:")), None)
    return int(said[1]) * 1024 if said is not None else None


def _phase(run_dir: Path) -> str:
    """What the last whole line of its progress says; "" before there is one."""
    try:
        with (run_dir / rundir.PROGRESS).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LAST_LINE))
            lines = stream.read().split(b"\n")
        data: Any = json.loads(lines[-2]) if len(lines) > 1 else None
    except (OSError, ValueError):
        return ""
    phase = data.get("phase") if isinstance(data, dict) else None
    return phase if isinstance(phase, str) else ""
