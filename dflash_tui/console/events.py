"""What happened, as jobs tell it: frozen records that `state.fold` turns into the next State."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dflash_tui.hosts.base import KeyOffer
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.finding import Comparison, Finding
from dflash_tui.records.process import ProgressRecord, RunState
from dflash_tui.records.result import Evaluation
from dflash_tui.transfer.progress import TransferProgress
from dflash_tui.watch.events import (
    CheckpointsListed,
    HostAnswered,
    MachineRead,
    TrainingProgressed,
    WatchLost,
    WatchRestored,
)

Level = Literal["info", "warn", "error"]


@dataclass(frozen=True)
class JobQueued:
    """A job waits for its turn on the evaluation host; its `EvaluationAsked` or `EvaluationEnded` ends the waiting."""

    job: str
    preset: str


@dataclass(frozen=True)
class EvaluationAsked:
    """A job began: it will plan, move what has to move, and evaluate. `label` is what the user asked for."""

    job: str
    preset: str
    label: str


@dataclass(frozen=True)
class PlanMade:
    """What will be done, in words, before it is done. `prompts_present` of `prompts_asked` have hidden states;
    `warnings` are sentences about what will go less well than it could; `subject` is what a drafter of no watched
    training is called, which has no step. `captures`: whether a capture could make the hidden states that are missing,
    as far as is known."""

    job: str
    step: int | None
    lines: tuple[str, ...]
    prompts_asked: tuple[str, ...] = ()
    prompts_present: tuple[str, ...] = ()
    blocks_per_prompt: int = 0
    warnings: tuple[str, ...] = ()
    subject: str = ""
    captures: bool = True


@dataclass(frozen=True)
class TransferStarted:
    """`route` names the hops in order: source host, "here", destination host. `total` in bytes."""

    job: str
    step: int | None
    name: str
    route: tuple[str, ...]
    total: int


@dataclass(frozen=True)
class TransferPlanned:
    """What is going to lie at the destination: `total` bytes of the `original` ones. `kept` names what they hold, and
    `left` what stays behind with its bytes, in words; `why` is the reason why nothing does, though that was asked.
    `resumable` bytes lie there already, `present` ones under their final names."""

    job: str
    total: int
    original: int
    kept: tuple[str, ...] = ()
    left: tuple[tuple[str, int], ...] = ()
    why: str = ""
    resumable: int = 0
    present: int = 0


@dataclass(frozen=True)
class TransferAdvanced:
    """Bytes moved, or a step of verification began."""

    job: str
    progress: TransferProgress


@dataclass(frozen=True)
class TransferEnded:
    """`error` is one sentence, None when the bytes lie verified at `path`; `already_there` when none had to move;
    `bytes` crossed now, without those that an earlier transfer had left; `how` the weights came ("streamed", "linked",
    "copied"), "" where that is not told. `stopped`: it was broken off here, and `kept` bytes that a later transfer
    would go on from lie at the destination."""

    job: str
    path: str = ""
    sha256: str = ""
    seconds: float = 0.0
    already_there: bool = False
    error: str | None = None
    bytes: int = 0
    how: str = ""
    stopped: bool = False
    kept: int = 0


@dataclass(frozen=True)
class EvaluationStarted:
    """The run directory exists and the harness runs detached in it. `begun`: who started it where that was not this
    console just now, in words."""

    job: str
    run_id: str
    run_dir: str
    host: str
    begun: str = ""


@dataclass(frozen=True)
class EvaluationAdvanced:
    """What came home since the last event: new blocks, new log lines, the newest progress."""

    job: str
    run_id: str
    state: RunState
    progress: ProgressRecord | None = None
    blocks: tuple[BlockRecord, ...] = ()
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluationEnded:
    """`error` is one sentence, None when results are there. `existing`: the same request had been answered before."""

    job: str
    run_id: str
    state: RunState
    error: str | None = None
    existing: bool = False


@dataclass(frozen=True)
class CaptureEnded:
    """`captured` are the prompts that have hidden states now; `error` is one sentence, None when all went well."""

    job: str
    captured: tuple[str, ...]
    error: str | None = None


@dataclass(frozen=True)
class ResultsChanged:
    """The result shown, what it stands beside, and what may be believed of both. `common`: both are only what both
    measured."""

    current: Evaluation | None
    previous: Evaluation | None
    comparison: Comparison | None
    caveats: tuple[Finding, ...]
    runs: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    common: bool = False


@dataclass(frozen=True)
class ResultsListed:
    """What a person may choose: `baselines` to compare with (configured ones, then pins), finished `runs` to show,
    newest first."""

    baselines: tuple[str, ...]
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Noticed:
    """A sentence for the person, outside any panel."""

    level: Level
    sentence: str


@dataclass(frozen=True)
class KeyAsked:
    """A host showed a key that is not known; who wanted the host waits until a person has answered."""

    offer: KeyOffer


@dataclass(frozen=True)
class KeyAnswered:
    """The question about a key is settled."""

    offer: KeyOffer


@dataclass(frozen=True)
class Ticked:
    """A second passed: ages grow. `now` is POSIX seconds."""

    now: float


Event = (
    TrainingProgressed
    | CheckpointsListed
    | WatchLost
    | WatchRestored
    | HostAnswered
    | MachineRead
    | JobQueued
    | EvaluationAsked
    | PlanMade
    | TransferStarted
    | TransferPlanned
    | TransferAdvanced
    | TransferEnded
    | EvaluationStarted
    | EvaluationAdvanced
    | EvaluationEnded
    | CaptureEnded
    | ResultsChanged
    | ResultsListed
    | Noticed
    | KeyAsked
    | KeyAnswered
    | Ticked
)
