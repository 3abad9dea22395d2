"""Whether an evaluation could run: everything on its host, and the newest checkpoint where it lies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from dflash_tui.console.answers import CheckItem
from dflash_tui.console.checks import checkpoint, python, root, routes
from dflash_tui.console.checks.items import Group, Items, Reached, bounded, failed
from dflash_tui.console.checks.paths import where
from dflash_tui.console.checks.training import Training
from dflash_tui.console.console import Console
from dflash_tui.console.quantities import counted, megabytes
from dflash_tui.evals.caches import choose
from dflash_tui.evals.preflight import preflight
from dflash_tui.evals.ship import ship
from dflash_tui.evals.survey import survey
from dflash_tui.hosts.base import FileMissing
from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.requests import SurveyRequest
from dflash_tui.records.settings import DrafterSettings
from dflash_tui.records.survey import Survey, SurveyedCache, SurveyedPrompt, SurveyProblem

GROUP = Group("evaluation")
PYTHON_SECONDS = python.START_SECONDS + python.IMPORT_SECONDS
SURVEY_SECONDS = 120.0
SURVEYED = ("target", "prompts", "hidden states", "capture", "memory", "load")
DRAFTER_SECONDS = 120.0
FEW, ALL = (PRESETS[name][0] for name in ("quick", "full"))  # prompts


async def look(console: Console, reached: Reached, training: asyncio.Task[tuple[Training, Reached]]) -> Items:
    """Everything about evaluation. `training` is what was found of the training, and whether its host was reached."""
    host_items = [GROUP.skip(name, reached.cause) for name in ("python", "root", "route", "drafter", *SURVEYED)]
    if reached.cause:
        return host_items
    began = asyncio.create_task(bounded(GROUP, "python", lambda: python.look(console), PYTHON_SECONDS))
    try:
        found, source = await asyncio.shield(training)
        newest = found.newest
        ways = await routes.look(console, source)
        rooms = await bounded(GROUP, "root", lambda: root.look(console, newest))
        drafter, settings = await _drafter(console, found, source)
        pythons = await began
    finally:
        began.cancel()
    detaching = [_detaching(console)]
    cause = _cause(console, pythons, rooms)
    if cause:
        return [*detaching, *pythons, *rooms, *ways, *drafter, *(GROUP.skip(name, cause) for name in SURVEYED)]
    surveyed = await bounded(GROUP, "target", lambda: _surveyed(console, settings), SURVEY_SECONDS)
    return [*detaching, *pythons, *rooms, *ways, *drafter, *surveyed]


def _cause(console: Console, pythons: Items, rooms: Items) -> str:
    """Why nothing can be asked of the harness there; it needs no torch for that."""
    if failed(pythons, "python"):
        return f"{console.evaluation.python} can't run the harness"
    if failed(rooms, "root", "space"):
        return f"the harness can't be kept in {console.evaluation.root}"
    return ""


def _detaching(console: Console) -> CheckItem:
    host = console.evaluation_host
    if host.detaches:
        return GROUP.ok("detached work", f"an evaluation is left running on {host.name} and found again")
    return GROUP.warn(
        "detached work",
        f"what is started on {host.name} ends with its launcher, so an evaluation is held open: it ends when this "
        "program or the connection does",
    )


async def _drafter(console: Console, found: Training, source: Reached) -> tuple[Items, DrafterSettings | None]:
    if source.cause:
        return [GROUP.skip("drafter", source.cause)], None
    newest = found.newest
    if newest is None:
        return [GROUP.skip("drafter", "there is no complete checkpoint to look at")], None
    settings: DrafterSettings | None = None

    async def judged() -> Items:
        nonlocal settings
        items, settings = await checkpoint.drafter(console, newest)
        items = checkpoint.disagreeing(items, settings, found.facts)
        return items

    return await bounded(GROUP, "drafter", judged, DRAFTER_SECONDS), settings


async def _surveyed(console: Console, settings: DrafterSettings | None) -> Items:
    """What the product's own survey says, item by item."""
    host, wanted = console.evaluation_host, console.evaluation
    harness = await ship(host, wanted.root)
    request = SurveyRequest(
        target=wanted.target,
        prompts_path=wanted.prompts,
        hidden_states=tuple(wanted.hidden_states),
        space_at=wanted.root,
        settings=settings,
        prompts_asked=ALL,
        weights_id=False,
    )
    found = await survey(host, wanted.python, harness, request)
    chosen, _ = choose(found)
    target = await _target(console, found)
    prompts = await _prompts(console, found)
    hidden = [GROUP.skip("hidden states", "the prompts can't be read")]
    if not failed(prompts, "prompts"):
        hidden = await _hidden_states(console, found)
    hidden.append(_capture(found, host.name, failed([*target, *prompts], "target", "prompts")))
    return [*target, *prompts, *hidden, *_memory(chosen, host.name), *_load(chosen, host.name, wanted.threads)]


def _errors(problems: Sequence[SurveyProblem], about: str) -> str:
    return "; ".join(problem.sentence for problem in problems if (problem.severity, problem.about) == ("error", about))


async def _target(console: Console, found: Survey) -> Items:
    host, path = console.evaluation_host, console.evaluation.target
    if not (error := _errors(found.problems, "target")) and found.target is not None:
        sentence = f"{host.name}:{path}: {found.target.name}, {megabytes(found.target.bytes)} of weights"
        return [GROUP.ok("target", sentence)]
    try:
        await host.stat(path)
    except FileMissing:
        return [GROUP.fail("target", await where(host, path, "the target, a Hugging Face folder (evaluation.target)"))]
    sentence = f"{host.name}: {error or path + ' can not be read'}"
    return [GROUP.fail("target", f"{sentence}; expected evaluation.target to be a whole Hugging Face folder")]


async def _prompts(console: Console, found: Survey) -> Items:
    host, path = console.evaluation_host, console.evaluation.prompts
    if error := _errors(found.problems, "prompts"):
        try:
            await host.stat(path)
        except FileMissing:
            sentence = await where(host, path, "the prompts, one JSON object a line (evaluation.prompts)")
            return [GROUP.fail("prompts", sentence)]
        return [GROUP.fail("prompts", f"{host.name}: {error} (evaluation.prompts)")]
    count = len(found.prompts)
    sentence = f"{host.name}:{path}: {'at least ' if count == ALL else ''}{counted(count, 'prompt')}"
    if count < ALL:
        wanted = f"quick asks the first {FEW} and full the first {ALL}"
        return [GROUP.warn("prompts", f"{sentence}, {wanted}: fewer prompts make wider intervals")]
    return [GROUP.ok("prompts", sentence)]


async def _hidden_states(console: Console, found: Survey) -> Items:
    """Each folder; none that can be used at all is a failure, and it is told of the first."""
    several = len(found.caches) > 1
    usable = any(prompt.features for cache in found.caches for prompt in cache.prompts)
    items: Items = []
    for number, cache in enumerate(found.caches):
        name = f"hidden states {number + 1}" if several else "hidden states"
        place = f"{console.evaluation_host.name}:{cache.folder}"
        items.append(_cache(name, place, cache, found.capture_refused, usable=usable))
        if not any(prompt.found for prompt in cache.prompts) and await _absent(console, cache.folder):
            sentence = items[-1].sentence.replace(place, f"{place} does not exist (evaluation.hidden_states)", 1)
            items[-1] = replace(items[-1], sentence=sentence)
        if items[-1].state == "fail":
            break
    return items


async def _absent(console: Console, folder: str) -> bool:
    try:
        await console.evaluation_host.stat(folder)
    except FileMissing:
        return True
    return False


def _capture(found: Survey, host: str, blind: bool) -> CheckItem:
    """Whether the hidden states that are missing could be made, as a capture would find it, without one."""
    if blind or found.target is None:
        return GROUP.skip("capture", "the target or the prompts can't be read")
    if not found.capture_refused:
        return GROUP.ok("capture", f"{host}: hidden states can be captured from {found.target.name}")
    return GROUP.warn("capture", f"{host}: hidden states can't be captured: {found.capture_refused}")


def _cache(name: str, place: str, cache: SurveyedCache, capture_refused: str, *, usable: bool) -> CheckItem:
    have = [prompt for prompt in cache.prompts if prompt.features]
    refused = [prompt for prompt in cache.prompts if prompt.refused]
    count = f"{place}: {len(have)} of {counted(len(cache.prompts), 'prompt')} can be used"
    if not usable:
        if not refused:
            make = "put your own there" if capture_refused else "make them with: dflash-tui capture"
            return GROUP.fail(name, f"{count}, expected hidden states of at least one; {make}")
        make = "put your own in their place" if capture_refused else "make others with: dflash-tui capture"
        return GROUP.fail(
            name,
            f"{count}, {_refused(refused)}; expected those of this target, these prompts and the drafter's taps: move "
            f"them away and {make}",
        )
    if len(have) < len(cache.prompts):
        why = f", {_refused(refused)}" if refused else ""
        make = "can't be captured" if capture_refused else "are made with: dflash-tui capture"
        return GROUP.warn(name, f"{count}{why}; the others {make}")
    unrecorded = [prompt for prompt in have if not prompt.identity.get("target_config_sha256")]
    origin = f"; {len(unrecorded)} do not record which target they are of" if unrecorded else ""
    return GROUP.ok(name, f"{count}{origin}")


def _refused(prompts: Sequence[SurveyedPrompt]) -> str:
    return f"{len(prompts)} refused, first {prompts[0].refused}"


def _memory(found: Survey, host: str) -> Items:
    if found.memory_needed is None:
        return [GROUP.skip("memory", "how much is needed depends on the drafter's settings")]
    machine = replace(found.host, free_bytes=None, loadavg=())
    judged = preflight(replace(found, problems=(), host=machine), host, 0)
    if judged.refusals:
        return [GROUP.fail("memory", "; ".join(judged.refusals))]
    if judged.warnings:
        return [GROUP.warn("memory", "; ".join(judged.warnings))]
    free = found.host.memory_available
    have = f"{megabytes(free)} free, " if free is not None else ""
    return [GROUP.ok("memory", f"{host}: {have}about {megabytes(found.memory_needed)} needed")]


def _load(found: Survey, host: str, threads: int) -> Items:
    machine = replace(found.host, free_bytes=None)
    judged = preflight(
        replace(found, problems=(), host=machine, memory_needed=None), host, threads or max(1, machine.cpus_usable - 1)
    )
    if judged.warnings:
        return [GROUP.warn("load", "; ".join(judged.warnings))]
    load = f"load {machine.loadavg[0]:.1f} on " if machine.loadavg else ""
    waiting = f"; {counted(len(found.working), 'run')} at work there" if found.working else ""
    return [GROUP.ok("load", f"{host}: {load}{counted(machine.cpus_usable, 'core')}{waiting}")]
