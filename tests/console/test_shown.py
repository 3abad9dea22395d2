"""Which result is shown and what it stands beside: chosen by name, told for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dflash_tui.config import BaselineConfig
from dflash_tui.console import events as happened
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.acts.shown import compare_with, pin_shown, show_newest, show_run
from dflash_tui.console.console import Console
from dflash_tui.console.errors import ConsoleError
from dflash_tui.results.errors import UnknownReference
from tests.console.test_baseline_drafters import configured, drafter
from tests.console.world import Bench, bench


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench(tmp_path)
    made.save(4000)
    yield made
    await made.console.close()


def beside(console: Console) -> str | None:
    previous = console.state.results.previous
    return previous.name if previous is not None else None


async def test_a_person_chooses_what_is_compared_with_and_what_is_shown(tiny: Bench) -> None:
    published = BaselineConfig("published", drafter=str(drafter(tiny, "published")))
    console = configured(tiny, published, BaselineConfig("later", drafter=str(tiny.root / "not-there")))
    with pytest.raises(ConsoleError, match="nothing to compare yet"):
        await compare_with(console, name="published")
    first = await evaluate(console)
    await pin_shown(console, name="mine")
    second = await evaluate(console, block_size=6)
    (run,) = [run for run in console.state.choices.runs if run.startswith("baseline-published-") and "-b6-" in run]
    assert {first.run_id, second.run_id, run} <= set(console.state.choices.runs)
    assert console.state.choices.baselines == ("published", "later", "mine")
    assert beside(console) == "mine"
    await compare_with(console, name="published")
    assert beside(console) == "published"
    await show_run(console, run_id=first.run_id)
    assert console.state.results.current is not None
    assert console.state.results.current.name == first.run_id
    assert beside(console) == "published"
    await compare_with(console, name="later")
    assert beside(console) is None
    assert "later is not evaluated yet" in console.state.notices[-1].sentence
    with pytest.raises(UnknownReference):
        await compare_with(console, name="nothing")
    assert console.against == "later"


async def test_a_pin_says_how_long_it_is_compared_with_and_how_to_go_back(tiny: Bench) -> None:
    console = tiny.console
    await evaluate(console)
    await pin_shown(console, name="mine")
    (said,) = [
        event.sentence for event in tiny.told if isinstance(event, happened.Noticed) and "mine" in event.sentence
    ]
    assert "until this console closes (for longer: a [[baseline]], or eval --against mine)" in said
    assert "dflash-tui pin --remove mine" in said
    later = Console(console.config, console.store, console.hosts)
    show_newest(later)
    assert beside(later) != "mine"
