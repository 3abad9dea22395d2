"""Detached work on a host: how it is found again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

RunState = Literal["starting", "running", "finished", "failed", "stopped", "lost"]


@dataclass(frozen=True)
class ProcessRecord:
    """``process.json``. `start_ticks`, field 22 of /proc/<pid>/stat, and `boot_id` tell a reused pid apart."""

    pid: int
    start_ticks: int
    boot_id: str
    host: str
    started_at: str


@dataclass(frozen=True)
class ExitRecord:
    """``exit.json``: written last. `error` is one sentence, None on success; `state` is finished, failed or stopped,
    and in the workstation's copy also lost, when the host said so."""

    state: RunState
    code: int
    ended_at: str
    error: Optional[str] = None


@dataclass(frozen=True)
class ProgressRecord:
    """A line of ``progress.jsonl``: `phase` is queued, loading, context, drafting, script, capture or done;
    `done`/`total` in blocks (prompts when capturing, a script's own counts) over everything,
    `prompt_done`/`prompt_total` for `prompt`. `behind`: the run that a queued one waits for, "" where it is not known.
    """

    at: str
    phase: str
    done: int
    total: int
    prompt: str = ""
    prompt_done: int = 0
    prompt_total: int = 0
    behind: str = ""
