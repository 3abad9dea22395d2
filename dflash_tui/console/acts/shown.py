"""Which result is shown, what it stands beside, and pinning it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts.baselines import as_of_now
from dflash_tui.console.acts.references import waits
from dflash_tui.console.errors import ConsoleError
from dflash_tui.records.result import Evaluation
from dflash_tui.results import baselines
from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.common import on_common_parts
from dflash_tui.results.compare import compare
from dflash_tui.results.errors import NothingInCommon, ResultError
from dflash_tui.results.evaluation import from_run, quick_of
from dflash_tui.results.pins import Pin
from dflash_tui.results.store import Store

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

OFFERED = 20  # finished runs that may be chosen by name


def show(console: Console, current: Evaluation) -> None:
    """Show a result beside its baseline; one that is damaged is told, and hides no result."""
    current = as_of_now(console, current)
    previous, common = baseline_or_notice(console, current), False
    if console.common and previous is not None:
        try:
            (current, previous), common = on_common_parts(current, previous), True
        except NothingInCommon as error:
            console.emit(happened.Noticed("warn", f"compared on everything that was measured: {error}"))
    comparison = compare(current, previous) if previous else None
    console.emit(
        happened.ResultsChanged(
            current=current,
            previous=previous,
            comparison=comparison,
            caveats=comparison.caveats if comparison else caveats_of(current),
            runs=tuple(run.run_id for run in console.store.runs()),
            pins=_pins(console.store),
            common=common,
        )
    )
    tell_choices(console)


def tell_choices(console: Console) -> None:
    """Tell what may be compared with, and which results may be shown."""
    names = (*(item.name for item in console.config.baselines), *_pins(console.store))
    finished = [run.run_id for run in console.store.runs() if run.finished]
    console.emit(happened.ResultsListed(tuple(dict.fromkeys(names)), tuple(finished[:OFFERED])))


async def compare_with(console: Console, *, name: str) -> None:
    """Set the shown result against a baseline, pin or other result from now on. Raises ConsoleError, ResultError."""
    current = _shown(console, "compare")
    if waits(console, name):
        said = f"{name} is not evaluated yet: the next evaluation does that, and is compared with it"
    else:
        baselines.resolve(console.store, name)
        said = f"results are compared with {name} until this console closes"
    console.against = name
    console.emit(happened.Noticed("info", said))
    show(console, console.store.resolve(current.path))


async def show_run(console: Console, *, run_id: str) -> None:
    """Show the result of an earlier run. Raises ResultError."""
    show(console, console.store.resolve(run_id))


def show_newest(console: Console) -> None:
    """Show the newest finished run of the watched training, if there is one; a baseline stands beside others."""
    ours = ("", console.config.training.name)
    every = (run for run in console.store.runs() if run.manifest and not run.manifest.baseline)
    runs = (run for run in every if run.manifest and run.manifest.checkpoint.training in ours)
    newest = next((run for run in runs if run.finished), None)
    if newest is not None:
        show(console, from_run(newest.folder))


@dataclass(frozen=True)
class Chosen:
    """What stands beside a result. `passed`: the baselines before it in the config, which are not comparable."""

    previous: Evaluation | None = None
    passed: tuple[str, ...] = ()


def baseline_for(console: Console, current: Evaluation) -> Chosen:
    """What a result is compared with: what was asked for, else the first configured baseline that it can be compared
    with (of a drafter's runs the one that matches best), else the first that is there, else the newest pin that is no
    run of another training. A quick result stands beside the quick part of a full one; nothing stands beside itself.

    Raises ResultError when a baseline can't be read."""
    store, against = console.store, console.against
    if against:
        if waits(console, against):
            return Chosen()
        asked = baselines.resolve(store, against, current)
        return Chosen(matching(current, asked) if asked.sha256 != current.sha256 else None)
    pins = store.pins.entries()
    there: list[Evaluation] = []
    for item in console.config.baselines:
        found = store.pins.load(item.name) if item.name in pins else None
        if item.drafter and found is None:
            found = baselines.beside(store, item.name, current)
        if found is None or found.sha256 == current.sha256:
            continue
        found = matching(current, found)
        if compare(current, found).verdict != "not comparable":
            return Chosen(found, tuple(passed.name for passed in there))
        there.append(found)
    if there:
        return Chosen(there[0])
    configured = {item.name for item in console.config.baselines}
    for name in sorted(pins.keys() - configured, key=lambda name: pins[name].pinned_at, reverse=True):
        if pins[name].sha256 != current.sha256:
            pinned = store.pins.load(name)
            if not _of_another_training(pinned, current):
                return Chosen(matching(current, pinned))
    return Chosen()


def _of_another_training(pinned: Evaluation, current: Evaluation) -> bool:
    return (
        pinned.origin == "run"
        and None not in (pinned.training, current.training)
        and (pinned.training != current.training)
    )


def baseline_or_notice(console: Console, current: Evaluation) -> Evaluation | None:
    """`baseline_for`, with a notice instead of the error of a baseline that nobody asked for just now."""
    try:
        chosen = baseline_for(console, current)
    except ResultError as error:
        console.emit(happened.Noticed("warn", f"no comparison: {error}"))
        return None
    if chosen.passed and chosen.previous is not None:
        name = chosen.previous.name
        sentence = f"compared with {name}: with {', '.join(chosen.passed)} {current.name} is not comparable"
        if all(notice.sentence != sentence for notice in console.state.notices):
            console.emit(happened.Noticed("info", sentence))
    return chosen.previous


def matching(current: Evaluation, previous: Evaluation) -> Evaluation:
    """The part of a full result that a quick one can stand beside, anchor by anchor."""
    if current.preset != "quick" or previous.preset != "full" or not previous.blocks:
        return previous
    try:
        return quick_of(previous)
    except ResultError:
        return previous  # none of its first prompts was measured: the comparison itself says what is not comparable


async def toggle_common(console: Console) -> None:
    """Compare on the common prompts and the common horizon, or again on everything; the results' title says which.
    Raises ConsoleError and NothingInCommon, and stays at everything then."""
    whole = console.store.resolve(_shown(console, "compare").path)
    if not console.common:
        if (previous := console.state.results.previous) is None:
            raise ConsoleError("no baseline stands beside this result, so they have no common parts; pin one (b)")
        on_common_parts(whole, previous)
    console.common = not console.common
    what = "what both measured: common prompts, common horizon" if console.common else "everything that was measured"
    console.emit(happened.Noticed("info", f"results are compared on {what}"))
    show(console, whole)


async def pin_shown(console: Console, *, name: str = "") -> Pin:
    """Pin the result that is shown and compare against it from now on. Raises ConsoleError, ResultError."""
    current = _shown(console, "pin")
    name = name or default_name(current)
    pin = console.store.pins.pin(name, Path(current.path))
    console.against = name
    console.emit(
        happened.Noticed(
            "info",
            f"pinned {current.name} as {name}; results are compared with it until this console closes (for longer: a "
            f"[[baseline]], or eval --against {name}); back: Compare in the palette (ctrl+p), dflash-tui pin --remove "
            f"{name}",
        )
    )
    show(console, current)
    return pin


def _shown(console: Console, purpose: str) -> Evaluation:
    current = console.state.results.current
    if current is None:
        raise ConsoleError(f"nothing to {purpose} yet; evaluate a checkpoint first (e)")
    return current


def _pins(store: Store) -> tuple[str, ...]:
    try:
        return tuple(store.pins.entries())
    except ResultError:
        return ()  # whoever looks for a baseline says what is wrong with them


def default_name(evaluation: Evaluation) -> str:
    """A pin's name when none is given: training, step and preset, or the result's own name."""
    if evaluation.step is None or evaluation.training is None:
        return evaluation.name[:64]
    return "-".join(part for part in (evaluation.training, f"step{evaluation.step}", evaluation.preset) if part)[:64]
