"""The evaluation's panel while a script of the user's own evaluates: what it prints, how far it is, how it ended."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.console import events as happened
from dflash_tui.console.state import State
from dflash_tui.records.process import ProgressRecord
from dflash_tui.tui.drawing import Drawing, View
from dflash_tui.tui.widgets.evaluation import draw_evaluation
from tests.tui import story

PLAN = (
    "step 4000 of slammed5, quick, by /root/eval/run_eval.py on ct129",
    "kept as they are while it runs: eval_results.json",
    "15 threads, nice 10",
)


def text(drawing: Drawing) -> str:
    return "\n".join(each.plain for each in (drawing.title, *drawing.lines, drawing.note))


def state(*events: happened.Event) -> State:
    began = (
        happened.EvaluationAsked("job 1", "quick", "own script"),
        happened.PlanMade("job 1", 4000, PLAN),
        happened.EvaluationStarted("job 1", "slammed5-step4000-external-quick-1", "/root/eval/runs/1", "ct129"),
    )
    return story.folded((*began, *events), story.folded(story.training()))


def printed(done: int, at: str, *lines: str) -> happened.EvaluationAdvanced:
    progress = ProgressRecord(at, "script", done, 45, "blocks")
    return happened.EvaluationAdvanced("job 1", "slammed5-step4000-external-quick-1", "running", progress, (), lines)


RUNNING = state(
    printed(5, "2026-05-21T09:36:00Z", "loading the target", "fizzbuzz: block 4"),
    printed(15, "2026-05-21T09:36:10Z", "fizzbuzz: block 14"),
)


@pytest.mark.parametrize("height", [8, 12, 20])
def test_its_last_lines_and_its_progress_stand_in_the_panel(height: int) -> None:
    shown = text(draw_evaluation(RUNNING, View(56, height)))
    assert "fizzbuzz: block 14" in shown
    assert "script" in shown
    assert "33 %" in shown
    assert "15/45  ETA 0:30" in shown
    assert "● running · own script · on ct129" in shown


def test_zoomed_it_shows_the_plan_and_the_whole_log() -> None:
    shown = text(draw_evaluation(RUNNING, View(100, 30, zoomed=True)))
    assert all(line in shown for line in (*PLAN, "loading the target", "fizzbuzz: block 4"))


def test_a_failure_is_its_last_line() -> None:
    error = "1: failed: python run_eval.py ended with status 1: KeyError: 'fc.weight'"
    failed = state(happened.EvaluationEnded("job 1", "1", "failed", error=error))
    assert "KeyError: 'fc.weight'" in text(draw_evaluation(failed, View(80, 10))).replace("\n", " ")


@settings(max_examples=60, deadline=None)
@given(width=st.integers(1, 200), height=st.integers(1, 60), zoomed=st.booleans())
def test_the_panel_fills_no_more_than_its_room(width: int, height: int, zoomed: bool) -> None:
    drawing = draw_evaluation(RUNNING, View(width, height, zoomed=zoomed))
    assert len(drawing.lines) <= height
    assert all(line.width <= width for line in drawing.lines)


def test_what_it_prints_moves_no_cursor() -> None:
    drawn = draw_evaluation(state(printed(1, "2026-05-21T09:36:00Z", "\x1b[31mred\x07\r")), View(60, 12))
    assert not any(ord(char) < 32 for line in drawn.lines for char in line.plain)


def test_without_progress_yet_it_shows_what_it_will_do() -> None:
    shown = text(draw_evaluation(state(), View(80, 12)))
    assert all(line in shown for line in PLAN)
