"""The commands that need hosts, over real files and a real harness."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dflash_tui.cli import build_parser
from dflash_tui.console import events as happened
from dflash_tui.console.acts import headless
from dflash_tui.results.errors import ResultError
from tests.console.world import Bench, bench

EVAL = build_parser().parse_args(["eval"])


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench(tmp_path)
    made.save(4000)
    yield made
    await made.console.close()


async def test_a_training_that_fell_silent_has_an_age_and_no_eta(tiny: Bench) -> None:
    assert (await headless.status(tiny.console, EVAL)).eta_seconds is not None
    two_days_ago = time.time() - 2 * 86400
    os.utime(tiny.workspace / "train.log", (two_days_ago, two_days_ago))
    answer = await headless.status(tiny.console, EVAL)
    assert answer.eta_seconds is None
    assert answer.seconds == pytest.approx(2 * 86400, abs=60)


async def test_a_misspelt_baseline_costs_no_evaluation(tiny: Bench) -> None:
    with pytest.raises(ResultError, match="'nope' is no run, pin or file"):
        await headless.evaluate(tiny.console, Namespace(**{**vars(EVAL), "against": "nope"}))
    assert not tiny.of(happened.EvaluationAsked)


async def test_damaged_pins_hide_no_result(tiny: Bench) -> None:
    pins = tiny.console.store.pins.folder
    pins.mkdir(parents=True)
    (pins / "pins.json").write_text("{")
    answer = await headless.evaluate(tiny.console, EVAL)
    assert answer.result.blocks == 45
    assert answer.comparison is None
    said = [event.sentence for event in tiny.told if isinstance(event, happened.Noticed)]
    assert any("pins.json" in sentence for sentence in said)
    assert tiny.console.state.evaluation.state == "done"
