"""Panels as pure drawings: at any size, with any text, with nothing and with everything."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.console import events as happened
from dflash_tui.console.state import State, TrainingPane, fold
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.process import ProgressRecord
from dflash_tui.tui.arrange import MINIMUM, arrange
from dflash_tui.tui.drawing import Drawing, View
from dflash_tui.tui.lines import Line
from dflash_tui.tui.widgets.evaluation import draw_evaluation
from dflash_tui.tui.widgets.header import draw_header
from dflash_tui.tui.widgets.results import as_markdown, draw_results
from dflash_tui.tui.widgets.training import draw_training
from dflash_tui.tui.widgets.transfer import draw_transfer
from dflash_tui.watch.events import CheckpointsListed, HostAnswered, MachineRead, TrainingProgressed, WatchLost
from dflash_tui.watch.fold import Fold
from dflash_tui.watch.lines import LineSplitter
from dflash_tui.watch.machine import Gpu, Machine
from tests.tui import story

LONG = "a_prompt_with_a_name_that_is_longer_than_any_column_for_it"
Draw = Callable[[State, View], Drawing]
PANELS: dict[str, Draw] = {
    "training": draw_training,
    "transfer": draw_transfer,
    "evaluation": draw_evaluation,
    "results": draw_results,
}
STATES: dict[str, Callable[[], State]] = {
    "empty": lambda: story.EMPTY,
    "finished": story.finished,
    "running": story.running,
    "failed": story.failed,
    "lost": story.lost,
}
HOSTILE = "\x1b[31m[bold]x[/]\x07\r\n\u202e[@click=app.quit]y[/]\x9b2J訓練\tend"


def text(drawing: Drawing) -> str:
    return "\n".join(each.plain for each in (drawing.title, *drawing.lines, drawing.note))


@pytest.mark.parametrize("name", PANELS)
@pytest.mark.parametrize("state", STATES)
@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 220),
    height=st.integers(1, 70),
    zoomed=st.booleans(),
    cursor=st.integers(0, 60),
    back=st.integers(0, 900),
)
def test_a_panel_fills_no_more_than_its_room(
    name: str, state: str, width: int, height: int, zoomed: bool, cursor: int, back: int
) -> None:
    view = View(width, height, zoomed=zoomed, focused=True, cursor=cursor, back=back)
    drawing = PANELS[name](STATES[state](), view)
    assert len(drawing.lines) <= height
    assert max((each.width for each in drawing.lines), default=0) <= width


@given(st.integers(1, 260), st.integers(1, 90))
def test_the_rows_of_a_screen_are_given_out_exactly(width: int, height: int) -> None:
    rows = arrange(width, height)
    if rows.kind == "tiny":
        assert width < MINIMUM[0] or height < MINIMUM[1]
        return
    stacked = rows.training + rows.transfer + rows.evaluation + rows.results
    beside = max(rows.training, rows.transfer + rows.evaluation) + rows.results
    assert (beside if rows.kind == "wide" else stacked) == height - 2
    assert min(rows.training, rows.evaluation) >= 3
    assert rows.transfer == 1 or rows.transfer >= 4
    assert rows.results >= 5


def _sizes() -> dict[str, tuple[View, View, View, View]]:
    """Inner sizes of training, transfer, evaluation and results at the two sizes that everybody has."""
    wide, stacked = arrange(120, 40), arrange(80, 24)
    return {
        "120x40": (
            View(56, wide.training - 2),
            View(56, wide.transfer - 2),
            View(56, wide.evaluation - 2),
            View(116, wide.results - 2),
        ),
        "80x24": (
            View(76, stacked.training - 2),
            View(76, 1),
            View(76, stacked.evaluation - 2),
            View(76, stacked.results - 2),
        ),
    }


@pytest.mark.parametrize("size", ["120x40", "80x24"])
def test_the_story_is_told_whole_at_both_sizes(size: str) -> None:
    state = story.finished()
    shown = "\n".join(text(draw(state, view)) for draw, view in zip(PANELS.values(), _sizes()[size], strict=True))
    for words in (
        "step 5,329/20,000", "27 %", "19.5 Ktok/s scope?", "ETA 6 h 36", "1.62 s/step", "lr 2.9e-4", "loss 2.0065 ↓",
        "saved ◆4000", "1,329 steps behind live", "3 of 10", "fizzbuzz", "30/30", "3.67", "6.83", "8.13",
        "binary_search",
        "9.60", "linked_list_reverse", "2.93", "8.57", "3.333", "6.911", "8.767", "0.778", "1.111", "1.467", "+2.400¹",
        "+4.578¹", "+6.689¹", "4.333", "1.778", "untestable", "previous result keeps no per-prompt values", "3 prompts",
        "¹ Δ at 45 against 45 blocks",
    ):  # fmt: skip
        assert words in shown
    figures = "\n".join(each for each in shown.splitlines() if re.search(r"\d\.\d{3}", each))
    assert not re.search(r"[\d.]…", re.sub(r"[0-9a-f]{8}…", "", figures))


def test_all_ten_caveats_stand_in_the_overview_at_120x40() -> None:
    shown = text(draw_results(story.finished(), _sizes()["120x40"][3]))
    assert len(re.findall("^[▲●] (?!vanilla|DDTree|τ)", shown, re.MULTILINE)) == 10


def test_a_smaller_view_counts_the_caveats_that_it_hides() -> None:
    assert "+9 more (5)" in text(draw_results(story.finished(), View(76, 7)))


def _judged(verdict: str, delta: float | None, severity: str = "warn", scope: str = "") -> State:
    state = story.finished()
    comparison = state.results.comparison
    assert comparison is not None
    rows = tuple(replace(row, delta=delta) for row in comparison.rows)
    finding = Finding("CODE", severity, "a sentence.", (1, 2), scope=scope)  # type: ignore[arg-type]
    changed = replace(comparison, verdict=verdict, rows=rows, why=("because",), blocks=None)  # type: ignore[arg-type]
    return replace(state, results=replace(state.results, comparison=changed, caveats=(finding,)))


def _roles(drawing: Drawing, part: str) -> set[str]:
    return {role for each in drawing.lines for piece, role in each if part in piece}


def test_a_withheld_difference_is_a_word_and_the_true_values_stay() -> None:
    drawing = draw_results(_judged("not comparable", None, "block"), View(116, 18))
    assert _roles(drawing, "n/c") == {"block"}
    assert "3.333" in text(drawing)
    assert "0.778" in text(drawing)
    assert "+2.4" not in text(drawing)


def test_a_value_that_can_not_be_believed_is_void_and_raw_only_in_the_detail() -> None:
    state = _judged("not comparable", None, "void")
    assert "3.333" not in text(draw_results(state, View(116, 18)))
    assert "void" in text(draw_results(state, View(116, 18)))
    assert "3.333" in text(draw_results(state, View(116, 36, zoomed=True)))


def test_a_void_baseline_shows_no_value_either() -> None:
    state = story.finished()
    previous = state.results.previous
    assert previous is not None
    source = Source("ct129", "/eval/previous", "checkpoint")
    facts = tuple(Fact(kind, {"a.pt": {"size": n}}, source, "") for kind, n in (("link.record", 1), ("link.now", 2)))
    voided = replace(state, results=replace(state.results, previous=replace(previous, facts=facts)))
    for view in (View(116, 18), View(116, 36, zoomed=True)):
        shown = text(draw_results(voided, view))
        assert re.search(r"vanilla top-1 +3.333 .* void ", shown)
        assert "0.778" not in shown


def test_a_void_prompt_voids_its_own_row_only() -> None:
    shown = text(draw_results(_judged("inconclusive", 1.0, "void", "fizzbuzz"), View(116, 36, zoomed=True)))
    assert "3.333" in shown
    assert re.search(r"fizzbuzz +30 +void +void +void", shown)
    assert re.search(r"binary_search +30 +3.400", shown)


@pytest.mark.parametrize(
    ("verdict", "delta", "role"),
    [
        ("better", 1.0, "better"),
        ("worse", -1.0, "worse"),
        ("inconclusive", 1.0, "strong"),
        ("untestable", 1.0, "strong"),
    ],
)
def test_only_a_verdict_that_is_believed_has_a_colour(verdict: str, delta: float, role: str) -> None:
    drawing = draw_results(_judged(verdict, delta), View(116, 18))
    assert _roles(drawing, "1.000") == {role}


def test_a_difference_inside_the_noise_says_about() -> None:
    assert "≈ +0.120" in text(draw_results(_judged("inside noise", 0.12), View(116, 18)))


def test_every_caveat_opens_to_its_code_values_evidence_and_key() -> None:
    state = story.finished()
    seen = ""
    items = draw_results(state, View(116, 36, zoomed=True)).items
    for cursor in range(items):
        seen += text(draw_results(state, View(116, 36, zoomed=True, focused=True, cursor=cursor)))
    for finding in state.results.caveats:
        assert finding.code in seen
        for source in finding.evidence:
            assert str(source) in seen
    assert "c Make the missing hidden states" in seen


def test_the_copied_table_holds_every_figure_and_caveat() -> None:
    state = story.finished()
    copied = as_markdown(state.results)
    assert copied is not None
    assert "| vanilla top-1 | 3.333 | 0.778 | +2.400¹ |" in copied
    assert all(finding.sentence in copied for finding in state.results.caveats)


def _hostile() -> State:
    state = story.running()
    assert state.results.current is not None
    named = replace(state.results.current, name=HOSTILE, training=HOSTILE, step=None)
    finding = Finding("X", "warn", HOSTILE, (HOSTILE,), scope=HOSTILE)
    return replace(
        state,
        training=replace(state.training, name=HOSTILE, log=(HOSTILE,) * 9),
        transfer=replace(state.transfer, name=HOSTILE, step=None, route=(HOSTILE, HOSTILE), error=HOSTILE),
        evaluation=replace(
            state.evaluation, host=HOSTILE, error=HOSTILE, plan=(HOSTILE,), log=(HOSTILE,), run_dir=HOSTILE
        ),
        results=replace(state.results, current=named, previous=replace(named), caveats=(finding,)),
    )


@pytest.mark.parametrize("name", PANELS)
@pytest.mark.parametrize("zoomed", [False, True])
def test_no_control_character_of_a_remote_text_gets_into_a_drawing(name: str, zoomed: bool) -> None:
    shown = text(PANELS[name](_hostile(), View(90, 30, zoomed=zoomed)))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "[bold]" in shown  # markup is shown as the text that it is
    assert "[bold]" in text(Drawing((draw_header(_hostile(), 1, 160),)))


def _log(*lines: str) -> State:
    reading = Fold()
    for line in LineSplitter().feed("".join(f"{each}\n" for each in lines).encode(), story.NOW):
        reading.add(line)
    return story.folded((happened.Ticked(story.NOW), TrainingProgressed(reading.snapshot(story.NOW), lines)))


def test_the_machine_says_whether_the_next_save_fits() -> None:
    busy = Machine("ct200", 90.0, None, None, (Gpu(97.0, 60000.0, 81559.0),) * 8, "8 GPUs · 97 %", 425_000_000_000)
    fits = text(draw_training(fold(story.running(), MachineRead(busy)), View(80, 20)))
    assert "8 GPUs · 97 % · disk 425 GB free · next save fits" in fits
    full = fold(story.running(), MachineRead(replace(busy, free=9_000_000_000, gpu=(), gpus="no GPU to be seen")))
    assert "disk 9.00 GB free · ▲ the next save needs 15.5 GB" in text(draw_training(full, View(80, 20)))
    assert "no GPU to be seen" in text(draw_training(full, View(120, 40, zoomed=True)))


def test_a_loss_that_is_no_number_is_said_with_its_step() -> None:
    state = _log("step=10/100 loss=2.0", "step=11/100 loss=nan")
    assert "loss is not a number since step 11" in text(draw_training(state, View(56, 16)))


def test_a_training_without_a_total_shows_no_bar_and_no_share() -> None:
    shown = text(draw_training(_log("step=10 loss=2.0"), View(56, 16)))
    assert "step 10" in shown
    assert "%" not in shown


def test_a_checkpoint_being_written_is_told_apart_from_the_newest_complete_one() -> None:
    state = story.finished()
    (complete,) = state.training.checkpoints
    saving = replace(
        complete,
        step=5000,
        path="/workspace/checkpoints/step_5000/checkpoint.pt",
        completeness="saving",
        reason="3.1 of 15.5 GB",
    )
    state = replace(state, training=replace(state.training, checkpoints=(complete, saving)))
    shown = text(draw_training(state, View(76, 4)))
    assert "saved ◆4000" in shown
    assert "saving 5000" in shown
    assert "3.1 of 15.5 GB" in text(draw_training(state, View(116, 36, zoomed=True)))


@pytest.mark.parametrize(
    ("silence", "word"), [(1, "● live"), (200, "◐ stale"), (700, "✖ presumed dead, silent 11 min")]
)
def test_silence_becomes_stale_and_then_presumed_dead(silence: float, word: str) -> None:
    state = story.folded((happened.Ticked(story.NOW - 2 + silence),), story.finished())
    assert word in draw_header(state, 1, 120).plain


def test_the_header_names_the_lost_link_and_how_old_the_data_is() -> None:
    shown = draw_header(story.lost(), 1, 120).plain
    assert "○ reconnecting" in shown
    assert "92 s ago" in shown
    assert "connection reset by peer" in " ".join(text(draw_training(story.lost(), View(56, 16))).split())


@given(st.integers(1, 250), st.integers(1, 5))
def test_the_header_never_overflows(width: int, view: int) -> None:
    for state in STATES.values():
        assert draw_header(state(), view, width).width <= width


def test_a_failed_plan_shows_its_sentence_whole_at_both_sizes() -> None:
    for view in (View(56, 10), View(76, 4)):
        shown = " ".join(text(draw_evaluation(story.failed(), view)).split())
        assert "3.1 GB free, 15.5 GB needed; free space there or point evaluation.root elsewhere" in shown


def test_an_empty_start_says_which_key_does_what_next() -> None:
    state = State(training=TrainingPane(name="slammed5", host="ct200"))
    assert "ct200" in text(draw_training(state, View(56, 16)))
    state = story.folded(story.training())
    assert "e evaluates step 4000" in text(draw_evaluation(state, View(56, 10)))
    assert "E up to 10 × 30" in text(draw_evaluation(state, View(76, 10)))
    assert "nothing evaluated yet" in text(draw_evaluation(state, View(56, 10)))
    assert "t fetches step 4000 · 15.5 GB" in text(draw_transfer(state, View(56, 4)))


def test_a_result_that_is_shown_again_was_evaluated() -> None:
    again = replace(story.folded(story.training()), results=story.finished().results)
    shown = text(draw_evaluation(again, View(56, 10)))
    assert "nothing is being evaluated" in shown
    assert "yet" not in shown


def test_the_key_that_makes_hidden_states_is_named_only_where_it_can() -> None:
    (plan,) = [event for event in story.planned() if isinstance(event, happened.PlanMade)]
    can, cannot = (
        story.folded((*story.training(), story.planned()[0], replace(plan, captures=captures)))
        for captures in (True, False)
    )
    assert "7 prompts without hidden states (c makes them)" in text(draw_evaluation(can, View(76, 24)))
    shown = text(draw_evaluation(cannot, View(76, 24)))
    assert "7 prompts without hidden states" in shown
    assert "c makes" not in shown


def _evaluation(*events: happened.Event) -> State:
    return story.folded(events, story.finished())


def _captures(*events: happened.Event) -> State:
    missing = ("graph_bfs", "merge_sort", "lru_cache")
    return _evaluation(
        happened.EvaluationAsked("job 2", "capture", "missing hidden states"),
        happened.PlanMade("job 2", None, ("3 of 10 prompts to capture",), missing),
        happened.EvaluationStarted("job 2", "capture-1", "/root/eval/runs/capture-1", "ct129"),
        happened.EvaluationAdvanced(
            "job 2", "capture-1", "running", ProgressRecord("", "capture", 1, 3, "merge_sort", 64, 512)
        ),
        *events,
    )


@pytest.mark.parametrize("zoomed", [False, True])
def test_a_capture_shows_prompts_and_tokens_and_no_streaks(zoomed: bool) -> None:
    shown = text(draw_evaluation(_captures(), View(76, 24, zoomed=zoomed)))
    assert "● capturing · 3 prompts · on ct129" in shown
    assert "1/3" in shown
    assert re.search("merge_sort +● 64 tokens", shown)
    assert re.search("lru_cache +waiting", shown)
    assert "top-1" not in shown
    assert "0/0" not in shown


def test_a_capture_that_ended_tells_what_it_left_out() -> None:
    shown = text(draw_evaluation(_captures(happened.CaptureEnded("job 2", ("graph_bfs",))), View(76, 12)))
    assert "✓ done · 1 of 3 prompts captured" in shown
    assert re.search("graph_bfs +✓ captured", shown)
    assert re.search("merge_sort +not captured", shown)


@pytest.mark.parametrize(("behind", "said"), [("full-1", "queued behind full-1"), ("", "queued behind another run")])
def test_a_run_that_waits_for_another_console_s_says_so(behind: str, said: str) -> None:
    state = _evaluation(
        *story.planned("job 2"),
        happened.EvaluationStarted("job 2", "run", "/root/eval/runs/run", "ct129"),
        happened.EvaluationAdvanced("job 2", "run", "running", ProgressRecord("", "queued", 0, 0, behind=behind)),
    )
    shown = text(draw_evaluation(state, View(76, 24)))
    assert "◌ queued" in shown
    assert said in shown
    assert "0/0" not in shown


def test_jobs_that_wait_stand_in_the_title() -> None:
    state = _captures(happened.JobQueued("job 3", "full"), happened.JobQueued("job 4", "quick"))
    assert "then full, quick" in draw_evaluation(state, View(56, 1)).title.plain


def test_an_answer_from_an_earlier_run_shows_no_empty_rows() -> None:
    again = story.planned("job 2")
    state = _evaluation(*again, happened.EvaluationEnded("job 2", "slammed5-step4000-full", "finished", existing=True))
    shown = text(draw_evaluation(state, View(56, 10)))
    assert "nothing was started: slammed5-step4000-full has answered it" in " ".join(shown.split())
    assert "0/30" not in shown


def test_a_plan_s_warning_stands_in_the_panel_while_it_runs() -> None:
    planned = story.planned("job 2")[1]
    assert isinstance(planned, happened.PlanMade)
    busy = replace(planned, warnings=("ct129 is busy: load 15.2 on 16 cores",))
    state = _evaluation(story.planned("job 2")[0], busy, *story.evaluating(job="job 2"))
    assert "▲ ct129 is busy: load 15.2 on 16 cores" in text(draw_evaluation(state, View(56, 14)))
    state = story.folded((happened.EvaluationEnded("job 2", "run", "finished"),), state)
    assert "busy" not in text(draw_evaluation(state, View(56, 14)))
    assert "busy" in text(draw_evaluation(state, View(116, 36, zoomed=True)))


def test_columns_that_lost_their_head_are_named_at_the_edge_and_hidden_prompts_counted() -> None:
    drawing = draw_evaluation(story.finished(), View(76, 4))
    assert "prompt " not in text(replace(drawing, note=Line()))
    assert drawing.note.plain == "blocks · top-1 · top-4 · top-8"
    drawing = draw_evaluation(story.running(), View(56, 3))
    assert drawing.note.plain.endswith("+2 prompts (4)")
    assert "linked_list_reverse" in text(drawing)
    assert "pooled" in text(drawing)


def test_twelve_prompts_with_long_names_keep_their_figures() -> None:
    names = tuple(f"{LONG}_{index}" for index in range(12))
    blocks = tuple(replace(block, prompt=name) for name in names for block in story.blocks("fizzbuzz", 2))
    state = _evaluation(
        happened.EvaluationAsked("job 2", "full", "newest checkpoint"),
        happened.PlanMade("job 2", 4000, (), names, names, 2),
        happened.EvaluationStarted("job 2", "run", "/root/eval/runs/run", "ct129"),
        happened.EvaluationAdvanced("job 2", "run", "running", None, blocks),
    )
    for width in (46, 56, 76):
        shown = draw_evaluation(state, View(width, 16))
        assert sum("8.00" in each.plain for each in shown.lines) == 13


def test_what_a_run_did_before_it_was_found_again_is_not_its_speed() -> None:
    def progress(second: int, done: int) -> happened.EvaluationAdvanced:
        record = ProgressRecord(f"2026-05-21T09:36:{second:02d}Z", "drafting", done, 90, "fizzbuzz", 1, 30)
        return happened.EvaluationAdvanced("job 2", "run", "running", record)

    state = _evaluation(
        *story.planned("job 2"), happened.EvaluationStarted("job 2", "run", "/runs/run", "ct129"), progress(0, 80)
    )
    assert "ETA" not in text(draw_evaluation(state, View(76, 10)))
    state = story.folded((progress(20, 82),), state)
    assert "82/90  ETA 1:20" in text(draw_evaluation(state, View(76, 10)))


def test_a_host_that_never_answered_is_not_reached_and_nothing_is_said_of_its_checkpoints() -> None:
    state = story.folded((happened.Ticked(story.NOW), WatchLost("ct200: no connection: refused", 8.0)))
    shown = text(draw_training(state, View(56, 16)))
    assert "○ not reached, again in 8 s (R now): ct200: no connection: refused" in " ".join(shown.split())
    assert "checkpoint yet" not in shown
    later = story.folded((happened.Ticked(story.NOW + 5),), state)
    assert "again in 3 s" in text(draw_training(later, View(56, 16)))
    overdue = story.folded((happened.Ticked(story.NOW + 9),), state)
    assert "trying now" in text(draw_training(overdue, View(56, 16)))
    assert "○ not reached" in draw_header(state, 1, 120).plain


def test_a_folder_that_can_not_be_listed_says_so_whole() -> None:
    sentence = "ct200: /a/rather/long/path/of/a/workspace/with/checkpoints does not exist"
    state = story.folded((*story.training(), CheckpointsListed((), sentence)))
    assert "does not exist" in text(draw_training(state, View(56, 16)))


def test_bytes_that_were_there_already_have_no_speed() -> None:
    ended = happened.TransferEnded("job 2", path="/root/eval/c/checkpoint.pt", sha256=story.SHA256, seconds=0.01,
                                   already_there=True)  # fmt: skip
    shown = text(draw_transfer(story.folded((*story.moving(job="job 2"), ended)), View(56, 4)))
    assert "already there with the same bytes: nothing moved" in shown
    assert "/s" not in shown


def test_the_first_caveat_on_a_small_screen_says_most() -> None:
    shown = text(draw_results(story.finished(), View(76, 7)))
    assert "Evaluated at block size 16, trained at 32" in shown


def test_a_verdict_without_a_row_of_its_own_stands_at_the_edge() -> None:
    drawing = draw_results(story.finished(), View(56, 4))
    assert drawing.note.plain == "untestable · ¹ Δ at 45 against 45 blocks"


def test_the_speed_of_a_continued_transfer_is_of_the_bytes_that_crossed_now() -> None:
    ended = happened.TransferEnded("job 2", path="/root/eval/c/checkpoint.pt", sha256=story.SHA256, seconds=10.0,
                                   bytes=1_000_000_000)  # fmt: skip
    shown = text(draw_transfer(story.folded((*story.moving(job="job 2"), ended)), View(56, 4)))
    assert "100 MB/s" in shown


@pytest.mark.parametrize("every", [10, 40, 200, 500])
def test_steps_on_the_axis_follow_their_mark_however_many_checkpoints_there_are(every: int) -> None:
    state = _log(*(f"step={step}/2000 loss={3 - step / 1000}" for step in range(0, 2001, 5)))
    (saved,) = story.finished().training.checkpoints
    listed = CheckpointsListed(tuple(replace(saved, step=step) for step in range(every, 2001, every)))
    axis = text(draw_training(story.folded((listed,), state), View(56, 16))).splitlines()[-2]
    steps = re.findall(r"◆(\d+)", axis)
    assert steps
    assert all(int(step) % every == 0 for step in steps)
    assert not re.search(r"\d◆", axis)


def test_a_training_that_stands_still_has_no_time_to_come() -> None:
    state = story.finished()
    progress = state.training.progress
    assert progress is not None
    assert "ETA 6 h 36" in text(draw_training(state, View(56, 16)))
    silent = story.folded((happened.Ticked(story.NOW + 700),), state)
    assert "ETA" not in text(draw_training(silent, View(56, 16)))
    done = replace(state, training=replace(state.training, progress=replace(progress, phase="finished")))
    assert "ETA" not in text(draw_training(done, View(56, 16)))


def test_a_baseline_that_is_evaluated_in_the_job_of_a_checkpoint_is_named() -> None:
    state = _evaluation(
        happened.EvaluationAsked("job 2", "full", "baseline z-lab"),
        happened.PlanMade("job 2", None, ("baseline z-lab: dflash",), ("p0",), ("p0",), 30, subject="baseline z-lab"),
    )
    drawn = draw_evaluation(state, View(76, 12))
    assert drawn.title is not None
    assert "full · baseline z-lab" in drawn.title.plain


def test_a_log_that_does_not_exist_is_said_and_is_not_live() -> None:
    reading = replace(Fold().snapshot(story.NOW), waiting="ct200: /data/no.log does not exist")
    state = story.folded((happened.Ticked(story.NOW), HostAnswered("ct200", 3.0), TrainingProgressed(reading)))
    for view in (View(56, 16), View(76, 6), View(116, 36, zoomed=True)):
        assert "ct200: /data/no.log does not exist" in " ".join(text(draw_training(state, view)).split())
    assert "○ no log" in draw_header(state, 1, 120).plain
    assert "live" not in draw_header(state, 1, 120).plain


def test_a_checkpoint_of_before_a_restart_is_not_behind_by_a_negative_number() -> None:
    (saved,) = story.finished().training.checkpoints
    restarted = fold(_log("step=5800 loss=2.0", "step=10 loss=3.0"), CheckpointsListed((replace(saved, step=5800),)))
    assert "saved ◆5800 · 35 min ago · of before the log went back" in text(draw_training(restarted, View(76, 16)))
    begun = fold(_log("step=10 loss=3.0"), CheckpointsListed((replace(saved, step=5800),)))
    assert "ahead of the log" in text(draw_training(begun, View(76, 16)))


def _transferring(**known: Any) -> State:
    return story.folded((*story.training(), *story.moving(**known)))


def test_a_slim_transfer_says_what_moves_and_what_stays() -> None:
    state = _transferring()
    assert "drafter 3.46 of 15.5 GB · relay" in text(draw_transfer(state, View(56, 4)))
    assert "left      12.0 GB: optimizer, frozen embed/lm_head" in text(draw_transfer(state, View(56, 5)))
    zoomed = text(draw_transfer(state, View(116, 30, zoomed=True)))
    assert "3,462,406,528 of 15,470,000,128" in zoomed
    assert "left   optimizer  6.92 GB" in zoomed
    assert "3.46 of 15.5 GB moved" in text(draw_transfer(story.finished(), View(76, 1)))


def test_what_could_not_be_made_slim_says_why() -> None:
    why = "moved as it is, because it can't be made slim: a zip that is compressed"
    plan = happened.TransferPlanned("job 1", story.SIZE, story.SIZE, why=why)
    state = story.folded((*story.training(), story.moving()[0], plan))
    for view in (View(90, 5), View(116, 30, zoomed=True)):
        assert why in text(draw_transfer(state, view))


@pytest.mark.parametrize("view", [View(56, 4), View(76, 1), View(116, 30, zoomed=True)])
def test_bytes_that_lay_there_before_have_another_shade(view: View) -> None:
    assert "╍" not in text(draw_transfer(_transferring(), view))
    drawing = draw_transfer(_transferring(resumed=1_200_000_000), view)
    assert _roles(drawing, "╍╍") == {"muted"}
    shares = [each.plain.count("╍") / sum(each.plain.count(cell) for cell in "╍━╸─") for each in drawing.lines
              if "╍╍" in each.plain]  # fmt: skip
    assert all(abs(share - 1.2e9 / story.SLIM) < 0.06 for share in shares)


@pytest.mark.parametrize("view", [View(56, 4), View(76, 1), View(116, 30, zoomed=True)])
def test_the_proof_is_a_step_of_its_own_with_a_bar(view: View) -> None:
    total = 2 * story.SLIM
    state = _transferring(written=story.SLIM, phase="verifying", verified=total // 2, to_verify=total, rate=840e6)
    shown = next(each.plain for each in draw_transfer(state, view).lines if "verify" in each.plain)
    assert "50 %" in shown
    assert "840 MB/s" in shown
    assert "━" in shown


def test_what_goes_from_host_to_host_has_one_hop() -> None:
    shown = text(draw_transfer(_transferring(route="direct"), View(56, 5)))
    assert "ct200 ▸ ct129" in shown
    assert "here" not in shown
    assert "direct" in shown
    joined = text(draw_transfer(_transferring(route="joined"), View(116, 30, zoomed=True)))
    assert "ct200 ▸ here ▸ ct129  through this machine by two ssh and one pipe" in joined


def test_before_a_byte_moves_it_says_what_it_does() -> None:
    state = story.folded((*story.training(), story.moving()[0]))
    assert "step 4000 · 15.5 GB · looks at what has to move" in text(draw_transfer(state, View(56, 4)))


def test_a_transfer_that_waits_says_for_whom_and_that_is_no_attempt() -> None:
    waits = "process 7 on laptop, which fills ct129:/x"
    waiting = replace(story.transfer_progress(0, "planning"), waits_for=waits)
    state = fold(story.running(), happened.TransferAdvanced("job 1", waiting))
    shown = text(draw_transfer(state, View(100, 8)))
    assert f"waits     for {waits}" in shown
    assert "attempt" not in shown
    assert f"waits for {waits}" in text(draw_transfer(state, View(100, 1)))
