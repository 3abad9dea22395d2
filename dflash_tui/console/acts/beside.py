"""The baseline drafters that are evaluated in the same job as a checkpoint: planned, found answered, or withheld."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dflash_tui.config import BaselineConfig
from dflash_tui.console import events as happened
from dflash_tui.console.acts.follow import ask, follow
from dflash_tui.console.acts.reattach import Left, begun
from dflash_tui.console.acts.subject import Subject, of_drafter
from dflash_tui.console.acts.survey import Asked, look
from dflash_tui.console.errors import TROUBLE
from dflash_tui.evals.caches import choose
from dflash_tui.evals.errors import ending
from dflash_tui.evals.plan import Plan, Wish, plan_evaluation, request_id
from dflash_tui.evals.ship import harness_file
from dflash_tui.records.manifest import Manifest
from dflash_tui.results import baselines as kept

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


@dataclass(frozen=True)
class Beside:
    """A baseline drafter that stands beside an evaluation. `answered`: a finished run of it, `left`: one that still
    works; without either it is to be evaluated."""

    name: str
    subject: Subject
    plan: Plan
    answered: str = ""
    left: Left | None = None

    @property
    def waits(self) -> bool:
        """Whether it is to be evaluated."""
        return not self.answered and self.left is None


@dataclass(frozen=True)
class Gathered:
    """`found` are the names of those that are no reason to miss one: what stands `beside`, and what is evaluated
    itself. `withheld` are the names of those that can't be evaluated, and why."""

    beside: tuple[Beside, ...] = ()
    found: tuple[str, ...] = ()
    withheld: tuple[tuple[str, str], ...] = ()


async def gather(console: Console, job: str, harness: str, main: Plan, wish: Wish) -> Gathered:
    """Every configured baseline drafter, planned to stand beside `main`: on its prompts, anchors, block size and hidden
    states. One that can't is told and withheld: it never fails the evaluation that it is for. One that is the very
    drafter that `main` evaluates has nothing to add."""
    found: list[Beside] = []
    same: list[str] = []
    withheld: list[tuple[str, str]] = []
    for baseline in console.config.baselines:
        if not baseline.drafter:
            continue
        try:
            item = await _planned(console, job, harness, main.manifest, wish, baseline)
        except TROUBLE as error:
            withheld.append((baseline.name, str(error)))
            console.emit(happened.Noticed("warn", f"baseline {baseline.name} is not evaluated: {error}"))
            continue
        if request_id(_of_none(item.plan.manifest)) == request_id(_of_none(main.manifest)):
            sentence = f"baseline {baseline.name} has the very weights that are evaluated: it is not evaluated twice"
            console.emit(happened.Noticed("info", sentence))
            same.append(baseline.name)
            continue
        news = tuple(warning for warning in item.plan.warnings if warning not in main.warnings)
        found.append(replace(item, plan=replace(item.plan, warnings=news)))
    return Gathered(tuple(found), (*(item.name for item in found), *same), tuple(withheld))


async def follow_one(console: Console, job: str, harness: str, item: Beside, run_id: str, run_dir: str) -> bool:
    """Follow a baseline's run to its end in the evaluation's pane; whether it has finished. What goes wrong with it is
    told, and fails nothing else. Raises HostError when the host can't be used any more."""
    manifest, host = item.plan.manifest, console.evaluation_host
    console.emit(happened.EvaluationAsked(job, manifest.preset, f"baseline {item.name}"))
    console.emit(told(job, item.plan))
    console.emit(happened.EvaluationStarted(job, run_id, run_dir, host.name))
    ended = await follow(console, job, run_id, run_dir, harness, console.store.run_folder(run_id))
    if ended.state == "finished":
        console.emit(happened.EvaluationEnded(job, run_id, "finished"))
        return True
    sentence = f"baseline {item.name}: {run_id}: {ending(ended.state, ended.error)}"
    console.emit(happened.EvaluationEnded(job, run_id, ended.state, error=sentence))
    console.emit(happened.Noticed("warn", sentence))
    return False


async def bring_end(console: Console, harness: str, run_id: str, run_dir: str) -> None:
    """What became of a run that nobody follows. A host that can't say is told: it is asked again at the next start."""
    try:
        await ask(console, run_dir, harness, console.store.run_folder(run_id))
    except TROUBLE as error:
        console.emit(happened.Noticed("warn", str(error)))


def told(job: str, plan: Plan) -> happened.PlanMade:
    """A plan as an event."""
    manifest = plan.manifest
    return happened.PlanMade(
        job,
        manifest.checkpoint.step,
        plan.lines,
        tuple(prompt.id for prompt in manifest.prompts),
        plan.prompts_present,
        manifest.blocks_per_prompt,
        plan.warnings,
        plan.subject,
        plan.captures,
    )


def _of_none(manifest: Manifest) -> Manifest:
    """The same of a drafter of no training, as baselines are."""
    return replace(manifest, checkpoint=replace(manifest.checkpoint, training=""))


async def _planned(
    console: Console, job: str, harness: str, main: Manifest, wish: Wish, baseline: BaselineConfig
) -> Beside:
    asked = Asked(prompts=tuple(prompt.id for prompt in main.prompts), folders=(main.hidden_states,))
    host = console.host(baseline.host) if baseline.host else console.evaluation_host
    subject = await of_drafter(console, host, baseline.drafter, baseline.config, job, asked, baseline.name)
    own = replace(wish, block_size=main.block_size, name=baseline.name, baseline=baseline.name, like=None)
    own = replace(own, cache=replace(wish.cache, why=""), blocks_per_prompt=main.blocks_per_prompt)
    known = _same_files(console, subject, baseline.name)
    plan = await _plan(console, harness, subject, own, asked, identified=known is None)
    if known is not None:
        manifest = replace(plan.manifest, checkpoint=replace(plan.manifest.checkpoint, weights_id=known))
        plan = replace(plan, manifest=replace(manifest, request_id=request_id(manifest)))
        if answered := kept.holding(console.store, plan.manifest):
            return Beside(baseline.name, subject, plan, answered)
        plan = await _plan(console, harness, subject, own, asked, identified=True)
    if answered := kept.holding(console.store, plan.manifest):
        return Beside(baseline.name, subject, plan, answered)
    left = await begun(console, harness, plan.manifest.request_id, baseline.name)
    if left is not None and left.ended:
        return Beside(baseline.name, subject, plan, left.run_id)
    return Beside(baseline.name, subject, plan, left=left)


async def _plan(
    console: Console, harness: str, subject: Subject, wish: Wish, asked: Asked, *, identified: bool
) -> Plan:
    host = console.evaluation_host
    weights = replace(subject.weights, identified=identified)
    found, _ = choose(await look(console, harness, weights, asked))
    now = datetime.fromtimestamp(console.clock(), UTC)
    return plan_evaluation(wish, subject.origin, found, host.name, harness_file().sha256, subject.facts, now)


def _same_files(console: Console, subject: Subject, name: str) -> str | None:
    """The weights' identity as an earlier run of this baseline found it, where its files are the same by place, size,
    time and inode: gigabytes need not be hashed at every evaluation."""
    origin = subject.origin
    for run in kept.runs_of(console.store, name):
        assert run.manifest is not None
        seen, inode = run.manifest.checkpoint, _inode(run.manifest)
        same = (seen.host, seen.path, seen.size, seen.mtime, inode) == (
            origin.host, origin.path, origin.size, origin.mtime, origin.inode,
        )  # fmt: skip
        if same and run.finished and seen.weights_id:
            return seen.weights_id
    return None


def _inode(manifest: Manifest) -> int | None:
    files = (fact.value for fact in manifest.facts if fact.kind == "checkpoint.file" and isinstance(fact.value, dict))
    return next((value.get("inode") for value in files), None)
