"""What the headless commands answer: one documented record a command, printed as JSON with --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.finding import Comparison, Finding, MetricComparison, Verdict
from dflash_tui.records.leftovers import Kept, Leftover
from dflash_tui.records.result import Evaluation, Score
from dflash_tui.results.caveats import voided


@dataclass(frozen=True)
class PromptEntry:
    """One prompt of a result: `streak` {top1, top4, top8} and `tau` over its `blocks`."""

    blocks: int
    streak: dict[str, float]
    tau: float


@dataclass(frozen=True)
class Entry:
    """A result. `prompts` were evaluated, of `prompts_asked`; `streak` are pooled means over `blocks`, `tau` is
    streak.top1 + 1; `ddtree` maps a node budget to accepted drafts (no bonus). Where one of its caveats is
    a `void` of the whole result (without scope), no value is given: `streak`, `ddtree`, `per_prompt` are empty, `tau`
    is null."""

    name: str
    run_id: str | None
    run_dir: str | None
    checkpoint: str | None
    training: str | None
    step: int | None
    preset: str | None
    block_size: int | None
    anchors: str | None
    created_at: str | None
    weights_id: str | None
    streak: dict[str, float]
    tau: float | None
    ddtree: dict[str, float]
    blocks: int
    prompts: int | None
    prompts_asked: int | None
    per_prompt: dict[str, PromptEntry]
    caveats: tuple[Finding, ...]


@dataclass(frozen=True)
class Status:
    """``status``: the training's log as read once. `state`: waiting (for a first step), live, stale, presumed dead,
    failed or finished; `trouble`: why it is not well, as sentences, also where its loss is not a number (`loss` is null
    then). `seconds` since the log was last written to; `steps_behind` is live step minus newest complete checkpoint's,
    null where that is ahead; `eta_seconds` and `steps_per_second` come from the log's time stamps, or are null; a
    stalled training has no ETA. `problems`: what could not be read, as sentences."""

    training: str
    host: str
    step: int | None
    total: int | None
    loss: float | None
    lr: float | None
    throughput: dict[str, Any] | None
    steps_per_second: float | None
    eta_seconds: float | None
    phase: str
    last_line: str
    seconds: float | None
    newest_saved: SavedCheckpoint | None
    steps_behind: int | None
    problems: tuple[str, ...] = ()
    state: str = "live"
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListedCheckpoint(SavedCheckpoint):
    """A checkpoint with what only the command asks for. `age` in seconds by its host's clock; `weights_size`: bytes of
    the drafter's own tensors, about what a slim copy has (null: they can't be told, `weights_problem` why); `sha256` of
    its file with the weights, known of a copy of the whole file at the evaluation host, null without one."""

    age: float | None = None
    weights_size: int | None = None
    weights_problem: str = ""
    sha256: str | None = None


@dataclass(frozen=True)
class Checkpoints:
    """``checkpoints``: every checkpoint under the watched folder, newest last."""

    host: str
    root: str
    checkpoints: tuple[ListedCheckpoint, ...]


@dataclass(frozen=True)
class LeftAtSource:
    """What a copy leaves where it is: `what` in words, and its `bytes`."""

    what: str
    bytes: int


@dataclass(frozen=True)
class FetchAnswer:
    """``fetch``: `files` lie in `folder` on `host` (with `dry_run`: would lie); `bytes` moved now (`dry_run`: would),
    `sha256` of the first file at both ends ("" before it is known).

    `source` is HOST:PATH, where the checkpoint has `original` bytes. `copy`: slim (without what an evaluation does not
    read), plain (the files that it reads, as they are) or full (every file); `size` is its bytes, `kept` and `left` say
    what these are, `why` the reason why a copy that was to be slim is not. `route`: relay, joined (two `ssh` and a
    pipe), direct or same host: what carried last (`dry_run`: what would begin). `present` bytes were there already,
    `resumed` ones from an earlier attempt; `free_bytes` and `free_inodes` (null: no fixed number) were free there."""

    host: str
    folder: str
    files: tuple[str, ...]
    step: int | None
    bytes: int
    sha256: str
    seconds: float
    already_there: bool
    source: str = ""
    original: int = 0
    copy: str = "full"
    size: int = 0
    kept: tuple[str, ...] = ()
    left: tuple[LeftAtSource, ...] = ()
    why: str = ""
    route: str = ""
    present: int = 0
    resumed: int = 0
    free_bytes: int = 0
    free_inodes: int | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class EvalAnswer:
    """``eval``: `existing` when the same request had been answered or begun before (then no run was started)."""

    existing: bool
    result: Entry
    comparison: Comparison | None


@dataclass(frozen=True)
class CaptureAnswer:
    """``capture``: prompts that got hidden states now, and all of those asked that have them."""

    host: str
    folder: str
    captured: tuple[str, ...]
    present: tuple[str, ...]
    asked: tuple[str, ...]


@dataclass(frozen=True)
class StopAnswer:
    """``stop``: the run's end. `state` is stopped, or finished, failed or lost where that came first."""

    host: str
    run_id: str
    run_dir: str
    state: str


@dataclass(frozen=True)
class CleanAnswer:
    """``clean``: what has gone from below `root` (with `dry_run`: would go), and what looks like it and stays, each
    with its reason; `bytes` that the disk gets back."""

    host: str
    root: str
    dry_run: bool
    found: tuple[Leftover, ...]
    kept: tuple[Kept, ...]
    bytes: int


@dataclass(frozen=True)
class PruneAnswer:
    """``prune``: which fetched checkpoints below `root` have gone (with `dry_run`: would go), and what stays, each with
    its reason; `bytes` that the disk gets back. `repeat` is the command that removes them ("" where it was this)."""

    host: str
    root: str
    dry_run: bool
    found: tuple[Leftover, ...]
    kept: tuple[Kept, ...]
    bytes: int
    repeat: str = ""


@dataclass(frozen=True)
class RunLine:
    """A run kept on this workstation. `state`: finished, failed, stopped, lost, running (no end known here), or damaged
    (its records can't be read). `baseline`: the configured baseline drafter that it is a run of, else empty; `training`
    is empty for a drafter of no watched training. `void`: the codes of caveats for which no value is given (`streak` is
    empty then)."""

    run_id: str
    state: str
    created_at: str
    training: str
    step: int | None
    preset: str
    block_size: int
    streak: dict[str, float]
    blocks: int
    baseline: str = ""
    void: tuple[str, ...] = ()


@dataclass(frozen=True)
class Runs:
    """``runs``: every run, oldest first, and the pins. `problems`: what could not be read, as sentences."""

    runs: tuple[RunLine, ...]
    pins: tuple[dict[str, Any], ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Show:
    """``show``: one result with its caveats, and where its files lie here."""

    path: str
    result: Entry


@dataclass(frozen=True)
class Logs:
    """``logs``: the last lines of a run's log, or of the training's."""

    source: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ImportAnswer:
    """``import`` and ``pin``: the pin that keeps it. `sha256` names the pin's folder."""

    name: str
    sha256: str
    path: str
    result: Entry


@dataclass(frozen=True)
class UnpinAnswer:
    """``pin --remove``: the name that means nothing any more. `path` still keeps what it meant; `result` is null."""

    name: str
    sha256: str
    path: str
    result: None


@dataclass(frozen=True)
class Compared:
    """``compare``: `delta` {top1, top4, top8}, null where withheld; `verdict`, `why`; every open caveat of the pair and
    of the current result. `blocks`: how many the deltas are between (current, previous), null when withheld."""

    current: Entry
    previous: Entry
    delta: dict[str, float | None]
    verdict: Verdict
    why: tuple[str, ...]
    caveats: tuple[Finding, ...]
    rows: tuple[MetricComparison, ...]
    pairing: str
    blocks: tuple[int, int] | None = None


@dataclass(frozen=True)
class ReportAnswer:
    """``report``: the Markdown text."""

    markdown: str


@dataclass(frozen=True)
class TrustedKey:
    """A key that was added: the host (or jump) it is of, as known_hosts spells that, and the file it went to."""

    host: str
    entry: str
    key_type: str
    fingerprint: str
    file: str


@dataclass(frozen=True)
class TrustAnswer:
    """``trust``: the keys that were `added` on the way to `host`, none when all were known. `problem`: why the login
    failed nevertheless, else ""."""

    host: str
    added: tuple[TrustedKey, ...]
    problem: str = ""


CheckState = Literal["ok", "warn", "fail", "not tried"]


@dataclass(frozen=True)
class CheckItem:
    """One thing that was looked at. `name` tells it from the others of its group; `sentence` says what was found and,
    unless all is well, what was expected and what to do."""

    group: str
    name: str
    state: CheckState
    sentence: str


@dataclass(frozen=True)
class Check:
    """``check``: every item, causes before their consequences. `failed` and `warned` count them, `seconds` is what it
    took."""

    config: str
    items: tuple[CheckItem, ...]
    failed: int
    warned: int
    seconds: float


@dataclass(frozen=True)
class DemoAnswer:
    """``demo --headless``: the shipped baseline drafter and each evaluated checkpoint of the training, oldest first;
    `comparisons` sets each checkpoint against the baseline, in the same order."""

    baseline: Entry
    checkpoints: tuple[Entry, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class ConfigPath:
    """``config path``: the file that is used, and whether it is there."""

    path: str
    exists: bool


@dataclass(frozen=True)
class ConfigShow:
    """``config show``: `config` holds every table with all values that count; `defaults` are the dotted keys of those
    that the file leaves out. Values of environment variables are not shown."""

    path: str
    config: dict[str, Any]
    defaults: tuple[str, ...]


@dataclass(frozen=True)
class InitAnswer:
    """``init``: the file that was written; `kept` is where an older one lies now ("": there was none); `next` are the
    commands to go on with."""

    path: str
    kept: str
    next: tuple[str, ...]


@dataclass(frozen=True)
class Key:
    """``keys``: an action of the app (a list of these)."""

    id: str
    keys: tuple[str, ...]
    description: str
    group: str


def entry(evaluation: Evaluation, caveats: tuple[Finding, ...]) -> Entry:
    """A result as the commands print it."""
    void = bool(voided(evaluation))
    return Entry(
        name=evaluation.name,
        run_id=evaluation.name if evaluation.origin == "run" else None,
        run_dir=evaluation.run_dir,
        checkpoint=evaluation.checkpoint_path or evaluation.checkpoint_name,
        training=evaluation.training,
        step=evaluation.step,
        preset=evaluation.preset,
        block_size=evaluation.block_size,
        anchors=evaluation.anchors,
        created_at=evaluation.created_at,
        weights_id=evaluation.weights_id,
        streak={} if void else evaluation.pooled.streak,
        tau=None if void else evaluation.pooled.tau,
        ddtree={} if void else evaluation.pooled.ddtree,
        blocks=evaluation.pooled.blocks,
        prompts=evaluation.prompt_count,
        prompts_asked=evaluation.prompts_asked_count,
        per_prompt={prompt: _prompt(score) for prompt, score in evaluation.per_prompt.items() if not void},
        caveats=caveats,
    )


def _prompt(score: Score) -> PromptEntry:
    return PromptEntry(blocks=score.blocks, streak=score.streak, tau=score.tau)
