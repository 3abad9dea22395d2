"""One immutable State, folded from events. Faces read it and never hold the truth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from dflash_tui.console import events as happened
from dflash_tui.hosts.base import KeyOffer
from dflash_tui.measure.summary import by_prompt, score
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.finding import Comparison, Finding
from dflash_tui.records.process import ProgressRecord
from dflash_tui.records.result import Evaluation, Score
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.progress import TransferProgress
from dflash_tui.watch import events as seen
from dflash_tui.watch.machine import Machine
from dflash_tui.watch.progress import Progress

LOG_LINES = 500
NOTICES = 50

Link = Literal["connecting", "live", "lost"]
JobState = Literal["idle", "planning", "running", "done", "failed", "stopped", "lost"]


@dataclass(frozen=True)
class HostLine:
    """A host's link: round trip in milliseconds, when it last answered and when it is tried again (POSIX seconds;
    `retry_at` None: not before a person acts)."""

    name: str
    link: Link = "connecting"
    milliseconds: float | None = None
    answered_at: float | None = None
    reason: str = ""
    retry_at: float | None = None


@dataclass(frozen=True)
class TrainingPane:
    """The watched training: its progress, the last log lines and its checkpoints, oldest first. `listed`: they have
    been looked for, so that none found means that there is none."""

    name: str = ""
    host: str = ""
    progress: Progress | None = None
    log: tuple[str, ...] = ()
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    listed: bool = False
    checkpoints_problem: str = ""
    machine: Machine | None = None

    @property
    def newest(self) -> SavedCheckpoint | None:
        """The newest complete checkpoint."""
        complete = [item for item in self.checkpoints if item.completeness == "complete"]
        return complete[-1] if complete else None

    @property
    def saving(self) -> SavedCheckpoint | None:
        """The checkpoint that is being written now."""
        return next((item for item in reversed(self.checkpoints) if item.completeness == "saving"), None)

    @property
    def steps_behind(self) -> int | None:
        """Live step minus the newest saved one; negative where the log is at a lower step."""
        newest = self.newest
        if newest is None or newest.step is None or self.progress is None or self.progress.step is None:
            return None
        return self.progress.step - newest.step


@dataclass(frozen=True)
class TransferPane:
    """A transfer. `total` in bytes, of `original` ones at the source; `kept` and `left` (with its bytes) say what these
    are, `why` why nothing is left though that was asked. `bytes` crossed in `seconds`, once it has ended, `how` the
    weights came. `planned`: its turn has come, and it is known what has to move."""

    job: str = ""
    state: JobState = "idle"
    step: int | None = None
    name: str = ""
    route: tuple[str, ...] = ()
    total: int = 0
    original: int = 0
    kept: tuple[str, ...] = ()
    left: tuple[tuple[str, int], ...] = ()
    why: str = ""
    progress: TransferProgress | None = None
    path: str = ""
    sha256: str = ""
    bytes: int = 0
    seconds: float = 0.0
    already_there: bool = False
    how: str = ""
    error: str | None = None
    planned: bool = False

    @property
    def continuable(self) -> int:
        """About how many of its bytes a later transfer would not send again, were it stopped now: whole pieces."""
        moved = self.progress
        if moved is None or not moved.total:
            return 0
        return moved.written if moved.written >= moved.total else moved.written // CHUNK * CHUNK


@dataclass(frozen=True)
class PromptLine:
    """A prompt of the running evaluation: `total` blocks are asked, `score` is of those drafted so far."""

    id: str
    present: bool
    done: int = 0
    total: int = 0
    score: Score | None = None


@dataclass(frozen=True)
class EvaluationPane:
    """The newest evaluation or capture job. `subject`: what is evaluated where that is no checkpoint of the watched
    training, as "baseline z-lab". `first_progress` is the first drafting that was seen here: of a run that
    was found again, what it had done before is not its speed. `captures`: whether a capture could make the hidden
    states that are missing."""

    job: str = ""
    state: JobState = "idle"
    preset: str = ""
    label: str = ""
    step: int | None = None
    subject: str = ""
    plan: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    run_id: str = ""
    run_dir: str = ""
    host: str = ""
    begun: str = ""
    progress: ProgressRecord | None = None
    prompts: tuple[PromptLine, ...] = ()
    captures: bool = True
    blocks: tuple[BlockRecord, ...] = ()
    log: tuple[str, ...] = ()
    first_progress: ProgressRecord | None = None
    error: str | None = None
    existing: bool = False


@dataclass(frozen=True)
class ResultsPane:
    """What is compared with what, and what may be believed of it. `common`: both are only what both measured."""

    current: Evaluation | None = None
    previous: Evaluation | None = None
    comparison: Comparison | None = None
    caveats: tuple[Finding, ...] = ()
    runs: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    common: bool = False


@dataclass(frozen=True)
class Choices:
    """What a person may have compared with (`baselines`) or shown (`runs`, newest first), by name."""

    baselines: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """Everything a face shows. `transfers` are all that have not ended, in the order that they began in; `transfer` is
    the newest of them that moves something, else the last that ended. `queue` are the jobs that wait for their turn on
    the evaluation host, `now` is POSIX seconds of the last tick; `question` is the host key that a person is asked
    about."""

    training: TrainingPane = TrainingPane()
    transfer: TransferPane = TransferPane()
    transfers: tuple[TransferPane, ...] = ()
    evaluation: EvaluationPane = EvaluationPane()
    queue: tuple[happened.JobQueued, ...] = ()
    results: ResultsPane = ResultsPane()
    choices: Choices = Choices()
    hosts: dict[str, HostLine] = field(default_factory=dict)
    notices: tuple[happened.Noticed, ...] = ()
    question: KeyOffer | None = None
    now: float = 0.0

    @property
    def beside(self) -> tuple[TransferPane, ...]:
        """The transfers that have not ended, without the one that is shown."""
        return tuple(pane for pane in self.transfers if pane.job != self.transfer.job)


def fold(state: State, event: happened.Event) -> State:
    """The next state. Pure: an event of an older job never changes the pane of a newer one."""
    match event:
        case happened.Ticked(now):
            return replace(state, now=now)
        case happened.Noticed():
            return replace(state, notices=(*state.notices, event)[-NOTICES:])
        case seen.HostAnswered() | seen.WatchLost() | seen.WatchRestored():
            return _link(state, event)
        case seen.TrainingProgressed() | seen.CheckpointsListed() | seen.MachineRead():
            return replace(state, training=_training(state.training, event))
        case (
            happened.TransferStarted()
            | happened.TransferPlanned()
            | happened.TransferAdvanced()
            | happened.TransferEnded()
        ):
            return _transfers(state, event)
        case happened.ResultsChanged(current, previous, comparison, caveats, runs, pins, common):
            return replace(state, results=ResultsPane(current, previous, comparison, caveats, runs, pins, common))
        case happened.ResultsListed(baselines, runs):
            return replace(state, choices=Choices(baselines, runs))
        case happened.KeyAsked(offer):
            return replace(state, question=offer)
        case happened.KeyAnswered():
            return replace(state, question=None)
        case happened.JobQueued():
            return replace(state, queue=(*state.queue, event))
        case _:
            queue = tuple(waiting for waiting in state.queue if waiting.job != event.job)
            return replace(state, evaluation=_evaluation(state.evaluation, event), queue=queue)


def _link(state: State, event: seen.HostAnswered | seen.WatchLost | seen.WatchRestored) -> State:
    name = event.host if isinstance(event, seen.HostAnswered) else state.training.host
    line = state.hosts.get(name, HostLine(name))
    match event:
        case seen.HostAnswered():
            line = replace(
                line, link="live", milliseconds=event.milliseconds, answered_at=state.now, reason="", retry_at=None
            )
        case seen.WatchLost():
            again = state.now + event.retry_in if event.retry_in is not None else None
            line = replace(line, link="lost", reason=event.reason, retry_at=again)
        case seen.WatchRestored():
            line = replace(line, link="live", answered_at=state.now, reason="", retry_at=None)
    return replace(state, hosts={**state.hosts, name: line})


def _training(
    pane: TrainingPane, event: seen.TrainingProgressed | seen.CheckpointsListed | seen.MachineRead
) -> TrainingPane:
    if isinstance(event, seen.MachineRead):
        return replace(pane, machine=event.machine)
    if isinstance(event, seen.CheckpointsListed):
        listed = pane.listed or not event.problem
        return replace(pane, checkpoints=event.checkpoints, listed=listed, checkpoints_problem=event.problem)
    before = () if event.first else pane.log
    return replace(pane, progress=event.progress, log=(*before, *event.new_lines)[-LOG_LINES:])


TransferEvent = happened.TransferStarted | happened.TransferPlanned | happened.TransferAdvanced | happened.TransferEnded


def _transfers(state: State, event: TransferEvent) -> State:
    """Every transfer has a pane until it ends; nothing that runs is hidden by what only waits, or has ended."""
    before = next((pane for pane in state.transfers if pane.job == event.job), None)
    if before is None and not isinstance(event, happened.TransferStarted):
        return state
    pane = _transfer(before or TransferPane(), event)
    others = tuple(item for item in state.transfers if item.job != pane.job)
    if pane.state != "running":
        shown = _shown(others) or pane
        return replace(state, transfers=others, transfer=shown)
    if before is None or isinstance(event, happened.TransferStarted):
        active = (*others, pane)
    else:
        active = tuple(pane if item.job == pane.job else item for item in state.transfers)
    return replace(state, transfers=active, transfer=_shown(active) or pane)


def _shown(active: tuple[TransferPane, ...]) -> TransferPane | None:
    """The newest that moves something, else the one whose turn comes first."""
    moving = [pane for pane in active if pane.planned]
    return moving[-1] if moving else active[0] if active else None


def _transfer(pane: TransferPane, event: TransferEvent) -> TransferPane:
    match event:
        case happened.TransferStarted(job, step, name, route, total):
            return TransferPane(
                job=job, state="running", step=step, name=name, route=route, total=total, original=total
            )
        case happened.TransferPlanned():
            return replace(
                pane,
                total=event.total,
                original=event.original,
                kept=event.kept,
                left=event.left,
                why=event.why,
                planned=True,
            )
        case happened.TransferAdvanced():
            return replace(pane, progress=event.progress, planned=True)
        case happened.TransferEnded():
            return replace(
                pane,
                state="failed" if event.error else "done",
                path=event.path,
                sha256=event.sha256,
                bytes=event.bytes,
                seconds=event.seconds,
                already_there=event.already_there,
                how=event.how,
                error=event.error,
            )


def _drafting(progress: ProgressRecord | None) -> ProgressRecord | None:
    """What tells the speed: blocks that are drafted, or what a script of the user's own counts."""
    return progress if progress is not None and progress.phase in ("drafting", "script") else None


def _evaluation(pane: EvaluationPane, event: happened.Event) -> EvaluationPane:
    match event:
        case happened.EvaluationAsked(job, preset, label):
            return EvaluationPane(job=job, state="planning", preset=preset, label=label)
        case (
            happened.PlanMade()
            | happened.EvaluationStarted()
            | happened.EvaluationAdvanced()
            | happened.EvaluationEnded()
            | happened.CaptureEnded()
        ) if event.job != pane.job:
            return pane
        case happened.PlanMade():
            prompts = tuple(
                PromptLine(id=prompt, present=prompt in event.prompts_present, total=event.blocks_per_prompt)
                for prompt in event.prompts_asked
            )
            return replace(
                pane,
                plan=event.lines,
                warnings=event.warnings,
                step=event.step,
                subject=event.subject,
                prompts=prompts,
                captures=event.captures,
            )
        case happened.EvaluationStarted():
            return replace(
                pane, state="running", run_id=event.run_id, run_dir=event.run_dir, host=event.host, begun=event.begun
            )
        case happened.EvaluationAdvanced():
            blocks = (*pane.blocks, *event.blocks)
            return replace(
                pane,
                progress=event.progress or pane.progress,
                first_progress=pane.first_progress or _drafting(event.progress),
                blocks=blocks,
                prompts=_scored(pane.prompts, blocks) if event.blocks else pane.prompts,
                log=(*pane.log, *event.log)[-LOG_LINES:],
            )
        case happened.EvaluationEnded(_, run_id, state, error, existing):
            ended: JobState = "done" if error is None else state if state in ("stopped", "lost") else "failed"
            return replace(pane, state=ended, run_id=run_id, error=error, existing=existing)
        case happened.CaptureEnded():
            prompts = tuple(replace(line, present=line.present or line.id in event.captured) for line in pane.prompts)
            return replace(pane, state="failed" if event.error else "done", prompts=prompts, error=event.error)
        case _:
            return pane


def _scored(prompts: tuple[PromptLine, ...], blocks: tuple[BlockRecord, ...]) -> tuple[PromptLine, ...]:
    groups = by_prompt(blocks)
    return tuple(
        replace(line, done=len(groups[line.id]), score=score(groups[line.id])) if line.id in groups else line
        for line in prompts
    )
