"""What an evaluation host has, as the harness's ``survey`` answers it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.settings import DrafterSettings


@dataclass(frozen=True)
class SurveyProblem:
    """`severity` "error": an evaluation can't run; "warn": it will say less. `about` is the thing concerned."""

    severity: Literal["error", "warn"]
    about: str
    sentence: str


@dataclass(frozen=True)
class SurveyedHost:
    """The machine. Bytes throughout; None where it does not tell. `cpus_usable`: what processes may keep busy;
    `memory_available`: what they may still take, within `memory_limit`, the container's own limit."""

    hostname: str
    boot_id: str
    python: str
    executable: str
    torch: str | None
    platform: str
    cpus: int | None
    cpus_usable: int
    memory_total: int | None
    memory_available: int | None
    memory_limit: int | None
    loadavg: tuple[float, ...]
    free_bytes: int | None


@dataclass(frozen=True)
class SurveyedTarget:
    """The target's folder; `config_sha256` of its config.json, `bytes` of its weight files."""

    path: str
    name: str
    config_sha256: str
    bytes: int
    mtime: float


@dataclass(frozen=True)
class SurveyedPrompt:
    """A prompt that was asked for. `found`: a hidden-state file is there; `features`: its name when it can be used.
    `identity` is what the file records of its origin; `refused` why a file that is there can't be used, `foreign` that
    it is because of its origin (another target, other layers, another text), not of damage."""

    id: str
    sha256: str
    found: bool
    features: str | None
    tokens: int | None = None
    features_id: str | None = None
    mtime: float | None = None
    layer_ids: tuple[int, ...] | None = None
    identity: dict[str, str] = field(default_factory=dict)
    prompt_len: int | None = None
    completion_len: int | None = None
    refused: str | None = None
    foreign: bool = False


@dataclass(frozen=True)
class SurveyedCache:
    """A folder of hidden states: what it has for each prompt that was asked for, in that order, and the anonymous
    memory in bytes that an evaluation on it takes (None when the settings are unknown)."""

    folder: str
    prompts: tuple[SurveyedPrompt, ...]
    memory_needed: int | None
    problems: tuple[SurveyProblem, ...]


@dataclass(frozen=True)
class SurveyedCheckpoint:
    """The checkpoint's structure. `args` are the checkpoint's own, plain data; `settings` None when they can't be
    resolved (a problem says why)."""

    path: str
    container: str
    files: tuple[str, ...]
    size: int
    step: int | None
    args: Any
    sources: dict[str, Any]
    quick_id: str | None
    weights_id: str | None
    audit: Audit
    settings: DrafterSettings | None


@dataclass(frozen=True)
class SurveyedRun:
    """A run below the root that works on that host now, or waits for its turn (`phase` "queued"). `request_id` is "" of
    a capture; `memory` the bytes that end with it, None where that is not told."""

    run_id: str
    request_id: str
    phase: str
    memory: int | None


@dataclass(frozen=True)
class Survey:
    """The whole answer. `prompts` are those asked for, without hidden states until one of `caches`, the folders in the
    order asked, is chosen (`evals.caches`), as are `memory_needed` and the problems of each. `memory_needed` in bytes
    of anonymous memory, None when the settings are unknown; `working` are the runs that have the turn or wait for it,
    the earliest started first. `capture_refused`: why hidden states of those prompts can't be captured from the target,
    "" when they can."""

    version: int
    host: SurveyedHost
    target: SurveyedTarget | None
    checkpoint: SurveyedCheckpoint | None
    prompts: tuple[SurveyedPrompt, ...]
    memory_needed: int | None
    problems: tuple[SurveyProblem, ...]
    working: tuple[SurveyedRun, ...] = ()
    caches: tuple[SurveyedCache, ...] = ()
    capture_refused: str = ""
