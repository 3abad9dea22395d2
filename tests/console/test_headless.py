"""The commands that need hosts, over real files and a real harness."""

from __future__ import annotations

import os
import re
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.cli import build_parser
from dflash_tui.config import BaselineConfig
from dflash_tui.console import events as happened
from dflash_tui.console.acts import headless
from dflash_tui.console.errors import ConsoleError
from dflash_tui.console.words import as_text
from dflash_tui.results.errors import ResultError
from tests.console.test_baseline_drafters import configured, drafter
from tests.console.world import Bench, bench

EVAL = build_parser().parse_args(["eval"])


def asked(**options: Any) -> Namespace:
    """The arguments of an `eval` with these options."""
    return Namespace(**{**vars(EVAL), **options})


def sentences(tiny: Bench) -> list[str]:
    return [event.sentence for event in tiny.told if isinstance(event, happened.Noticed)]


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


def logged(tiny: Bench, text: str, age: float = 0.0) -> None:
    log = tiny.workspace / "train.log"
    log.write_text(text)
    os.utime(log, (time.time() - age, time.time() - age))


async def test_status_tells_a_loss_that_is_no_number(tiny: Bench) -> None:
    logged(tiny, "step=5998/20000 loss=2.0 lr=1e-4\nstep=5999/20000 loss=nan lr=1e-4\n")
    answer = await headless.status(tiny.console, EVAL)
    assert (answer.loss, answer.state, answer.trouble) == (None, "live", ("loss is not a number since step 5,999",))
    text = as_text(answer)
    assert "✖ loss is not a number since step 5,999\nlr 1.00e-04" in text


async def test_status_tells_a_failure_and_takes_its_age_from_the_file(tiny: Bench) -> None:
    lines = "[2026-05-21 09:36:25] step=5329/20000 loss=2.0\ntorch.cuda.OutOfMemoryError: CUDA out of memory\n"
    logged(tiny, lines, age=120)
    answer = await headless.status(tiny.console, EVAL)
    assert answer.state == "failed"
    assert answer.seconds == pytest.approx(120, abs=30)
    assert len(answer.trouble) == 1
    assert answer.trouble[0].startswith("failed: ")
    assert "out of memory" in answer.trouble[0].lower()
    assert re.search(r"step 5,329/20,000, 2 min ago, failed\n✖ failed: .*memory", as_text(answer))


async def test_status_tells_that_a_training_stands_still(tiny: Bench) -> None:
    steps = "".join(f"step={step}/20000 loss=2.0\n" for step in range(1, 9))
    logged(tiny, steps, age=300)
    answer = await headless.status(tiny.console, EVAL)
    assert (answer.state, answer.trouble) == ("stale", ("stale: no new step for 5 min",))
    assert "✖ stale: no new step for 5 min" in as_text(answer)
    logged(tiny, steps, age=3600)
    assert (await headless.status(tiny.console, EVAL)).state == "presumed dead"


async def test_a_misspelt_baseline_costs_no_evaluation(tiny: Bench) -> None:
    with pytest.raises(
        ResultError, match=r"--against: 'nope' is no run, pin or file.*; configured baselines: previous"
    ):
        await headless.evaluate(tiny.console, asked(against="nope"))
    with pytest.raises(ResultError, match=r"--like: 'privious' is no run.*; did you mean 'previous'"):
        await headless.evaluate(tiny.console, asked(like="privious"))
    assert not tiny.console.store.pins.folder.exists()  # no baseline was read either
    assert not tiny.of(happened.EvaluationAsked)


async def test_a_baseline_file_that_can_t_be_read_costs_no_evaluation(tiny: Bench) -> None:
    with pytest.raises(
        ConsoleError, match=r"--against z-lab: the baseline's file lab:.*no-such-file.json could not be"
    ):
        await headless.evaluate(tiny.console, asked(against="z-lab"))
    assert not tiny.of(happened.EvaluationAsked)


async def test_a_baseline_drafter_is_evaluated_before_it_is_missed(tiny: Bench) -> None:
    folder = drafter(tiny, "published")
    console = configured(tiny, BaselineConfig("published", drafter=str(folder)))
    arguments = asked(against="published")
    answer = await headless.evaluate(console, arguments)
    assert answer.comparison is not None
    assert answer.comparison.previous == "published"
    assert not headless.blocked(answer, arguments)
    assert not [said for said in sentences(tiny) if "no comparison" in said]


async def test_a_comparison_that_was_asked_for_and_could_not_be_made_is_told_and_is_no_success(tiny: Bench) -> None:
    console = configured(tiny, BaselineConfig("published", drafter=str(tiny.root / "no-such-drafter")))
    arguments = asked(against="published")
    answer = await headless.evaluate(console, arguments)
    assert answer.comparison is None
    assert headless.blocked(answer, arguments)
    (said,) = [said for said in sentences(tiny) if "no comparison" in said]
    assert said.startswith("no comparison with published: ")
    assert "no-such-drafter: does not exist" in said
    arguments = asked(against=answer.result.run_id)
    assert headless.blocked(await headless.evaluate(console, arguments), arguments)
    assert f"no comparison with {answer.result.run_id}: it is this very result" in sentences(tiny)


async def test_a_baseline_that_is_configured_no_more_is_not_missed(tiny: Bench) -> None:
    codes = {finding.code for finding in (await headless.evaluate(tiny.console, asked())).result.caveats}
    assert "BASELINE_MISSING" in codes  # z-lab
    console = configured(tiny, tiny.console.config.baselines[0])
    answer = await headless.evaluate(console, asked())
    assert answer.existing
    assert "BASELINE_MISSING" not in {finding.code for finding in answer.result.caveats}
    assert "BASELINE_MISSING" not in {finding.code for finding in console.state.results.caveats}


async def test_like_a_result_is_compared_with_it(tiny: Bench) -> None:
    first = await headless.evaluate(tiny.console, asked(block_size=6))
    assert first.result.run_id is not None
    other = str(drafter(tiny, "other"))
    answer = await headless.evaluate(tiny.console, asked(like=first.result.run_id, model=other))
    assert answer.comparison is not None
    assert (answer.comparison.previous, answer.comparison.pairing) == (first.result.run_id, "anchors")
    for options in ({"against": "previous", "model": other}, {}):  # the second is that very result again
        answer = await headless.evaluate(tiny.console, asked(like=first.result.run_id, **options))
        assert answer.comparison is not None
        assert answer.comparison.previous == "previous"


async def test_like_a_drafter_that_was_never_evaluated_is_refused(tiny: Bench) -> None:
    console = configured(tiny, BaselineConfig("published", drafter=str(drafter(tiny, "published"))))
    with pytest.raises(ConsoleError, match="--like published: this baseline is a drafter that has not been evaluated"):
        await headless.evaluate(console, asked(like="published"))


async def test_the_first_baseline_that_a_result_can_be_compared_with_stands_beside_it(tiny: Bench) -> None:
    published = BaselineConfig("published", drafter=str(drafter(tiny, "published")))
    console = configured(tiny, tiny.console.config.baselines[0], published)
    answer = await headless.evaluate(console, asked())
    assert answer.comparison is not None
    assert answer.comparison.previous == "published"
    said = f"compared with published: with previous {answer.result.run_id} is not comparable"
    assert sentences(tiny).count(said) == 1
    answer = await headless.evaluate(console, asked(against="previous"))
    assert answer.comparison is not None
    assert answer.comparison.verdict == "not comparable"


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
