"""What each key does, driven through the app as a person would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from textual.events import MouseScrollUp
from textual.pilot import Pilot
from textual.widgets import Static

from dflash_tui.console import events as happened
from dflash_tui.console.state import State
from dflash_tui.tui.app import DflashApp
from dflash_tui.tui.screens.help import help_lines
from dflash_tui.tui.widgets.panel import Panel
from tests.tui import story
from tests.tui.recording import RecordingConsole

SIZE = (120, 40)


class Session:
    """An app over a recording console."""

    def __init__(self, state: State) -> None:
        self.console = RecordingConsole(state)
        self.app = DflashApp(self.console)

    @asynccontextmanager
    async def run(self, size: tuple[int, int] = SIZE) -> AsyncIterator[Pilot[None]]:
        """The app in a terminal of that size, painted and focused."""
        async with self.app.run_test(size=size) as pilot:
            await pilot.pause()
            yield pilot

    @property
    def top(self) -> str:
        """Which screen lies on top."""
        return type(self.app.screen).__name__

    @property
    def toasts(self) -> list[str]:
        return [f"{note.title} {note.message}" for note in self.app._notifications]


@pytest.mark.parametrize(
    ("key", "begun"),
    [
        ("e", ("evaluate", {"preset": "quick"})),
        ("E", ("evaluate", {"preset": "full"})),
        ("x", ("external", {"preset": "quick"})),
        ("t", ("fetch", {})),
        ("c", ("capture", {})),
        ("R", ("reconnect", {})),
        ("b", ("pin", {})),
    ],
)
async def test_a_key_begins_its_act(key: str, begun: tuple[str, dict[str, str]]) -> None:
    session = Session(story.finished())
    async with session.run() as pilot:
        await pilot.press(key)
    assert session.console.begun == [begun]


async def test_acts_stay_reachable_from_every_zoomed_panel() -> None:
    session = Session(story.finished())
    async with session.run() as pilot:
        for view in "2345":
            await pilot.press(view, "t")
    assert session.console.begun == [("fetch", {})] * 4


async def test_the_key_bar_offers_pinning_only_when_there_is_a_result() -> None:
    for state, offered in ((story.EMPTY, False), (story.finished(), True)):
        session = Session(state)
        async with session.run():
            assert ("b Pin" in _text(session.app)) == offered


async def test_the_wheel_reads_upwards_in_a_zoomed_log() -> None:
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.press("2")
        panel = session.app.overview.panels["training"]
        newest = panel.drawing.lines[-1].plain
        for _ in range(3):
            panel.post_message(_wheel_up(panel))
        await pilot.pause()
        assert panel.view.back > 0
        assert panel.drawing.lines[-1].plain != newest


@pytest.mark.parametrize(("key", "name"), [("2", "training"), ("3", "transfer"), ("4", "evaluation"), ("5", "results")])
async def test_a_digit_shows_one_panel_alone_and_1_brings_back_all(key: str, name: str) -> None:
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.press(key)
        panels = session.app.overview.panels
        assert [each for each, panel in panels.items() if panel.display] == [name]
        assert panels[name].region.height == SIZE[1] - 2
        assert panels[name].region.width == SIZE[0]
        await pilot.press("1")
        assert all(panel.display for panel in panels.values())


async def test_z_and_enter_zoom_the_focused_panel_and_escape_steps_back() -> None:
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.press("tab", "tab", "z")
        assert session.app.overview.shown == "evaluation"
        await pilot.press("escape")
        assert session.app.overview.shown == "overview"
        await pilot.press("enter")
        assert session.app.overview.shown == "evaluation"
        await pilot.press("z")
        assert session.app.overview.shown == "overview"


async def test_tab_walks_the_panels_in_order_and_shift_tab_back() -> None:
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.pause()
        seen = []
        for _ in range(4):
            seen.append(session.app.screen.focused.id)  # type: ignore[union-attr]
            await pilot.press("tab")
        assert seen == ["training", "transfer", "evaluation", "results"]
        await pilot.press("shift+tab")
        assert session.app.screen.focused.id == "results"  # type: ignore[union-attr]


async def test_escape_leaves_one_layer_at_a_time() -> None:
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.press("5", "question_mark")
        assert session.top == "Help"
        await pilot.press("escape")
        assert session.top == "Overview"
        assert session.app.overview.shown == "results"
        await pilot.press("escape")
        assert session.app.overview.shown == "overview"
        await pilot.press("escape")
        assert session.app.is_running


async def test_ctrl_p_opens_the_palette_and_runs_what_was_chosen() -> None:
    session = Session(story.finished())
    async with session.run() as pilot:
        await pilot.press("ctrl+p")
        await pilot.press(*"Fetch")
        await pilot.pause(0.3)
        await pilot.press("enter", "enter")
        await pilot.pause(0.2)
    assert session.console.begun == [("fetch", {})]


async def test_q_leaves_at_once_while_nothing_runs() -> None:
    session = Session(story.finished())
    async with session.run() as pilot:
        await pilot.press("q")
        await pilot.pause()
        assert not session.app.is_running


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
async def test_leaving_asks_while_something_runs_and_only_y_says_yes(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _clock(monkeypatch)
    session = Session(story.running())
    async with session.run() as pilot:
        for refusal in ("escape", "n", "enter", "q"):
            await pilot.press(key)
            assert session.top == "Confirm"
            await pilot.press(refusal)
            assert session.top == "Overview"
        await pilot.press(key)
        await pilot.press("y")  # too soon: the key may still be repeating
        assert session.top == "Confirm"
        clock[0] += 1.0
        await pilot.press("y")
        await pilot.pause()
        assert not session.app.is_running


async def test_stopping_asks_with_the_host_and_begins_only_after_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _clock(monkeypatch)
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.press("K", "escape")
        assert session.console.begun == []
        await pilot.press("K")
        assert "ct129" in _text(session.app)
        clock[0] += 1.0
        await pilot.press("y")
    assert session.console.begun == [("stop", {"job": session.console.state.transfer.job})]


async def test_stopping_names_the_run_what_it_is_and_who_started_it() -> None:
    state = story.running()
    session = Session(state)
    async with session.run() as pilot:
        await pilot.press("K")
        await pilot.pause()
        assert f"Stop moving {state.transfer.name}?" in _text(session.app)
    state, pane = replace(state, transfer=replace(state.transfer, state="done")), state.evaluation
    for begun, said in (("", "started here"), ("started from another workstation", "started from another workstation")):
        session = Session(replace(state, evaluation=replace(pane, begun=begun)))
        async with session.run() as pilot:
            await pilot.press("K")
            await pilot.pause()
            for words in (pane.run_id, pane.label, pane.preset, said):
                assert words in _text(session.app)


async def test_every_transfer_is_counted_and_named_before_it_is_stopped_or_left() -> None:
    session = Session(story.running())
    console = session.console
    shown = console.state.transfer
    async with session.run() as pilot:
        route = ("ct200", "here", "ct129")
        console.emit(happened.TransferStarted("job 9", 4200, "step_4200", route, 10))
        await _shown(pilot)
        assert "1 more waits" in _text(session.app)
        await pilot.press("K")
        await pilot.pause()
        text = _text(session.app)
        assert f"Stop moving {shown.name}?" in text
        assert "step_4200 to ct129 goes on" in text
        await pilot.press("escape")
        console.emit(happened.TransferEnded(shown.job, error="stopped", stopped=True))
        await _shown(pilot)
        await pilot.press("K")
        await pilot.pause()
        assert "Stop moving step_4200?" in _text(session.app)
        assert "nothing is kept of it yet: whole pieces of 64 MiB are" in _text(session.app)
        await pilot.press("escape", "q")
        await pilot.pause()
        assert "Leave while this runs?" in _text(session.app)


async def test_the_key_bar_has_the_key_that_stops_while_something_runs() -> None:
    for state, shown in ((story.running(), True), (story.finished(), False)):
        session = Session(state)
        async with session.run() as pilot:
            await pilot.pause()
            assert ("stop" in {action.id for action in session.app.overview.available()}) is shown


async def test_stopping_nothing_asks_nothing() -> None:
    session = Session(story.finished())
    async with session.run() as pilot:
        await pilot.press("K")
        assert session.top == "Overview"
        assert any("nothing runs" in toast for toast in session.toasts)


async def test_f_holds_the_log_while_lines_arrive_and_follows_again() -> None:
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.press("4")
        panel = session.app.overview.panels["evaluation"]
        before = panel.drawing.lines[-1].plain
        await pilot.press("f")
        session.console.emit(happened.EvaluationAdvanced("job 1", "r", "running", log=("one more line",)))
        await _shown(pilot)
        assert panel.drawing.lines[-1].plain == before
        assert any("1 new line" in each.plain for each in panel.drawing.lines)
        await pilot.press("f")
        assert panel.drawing.lines[-1].plain == "one more line"


async def test_reading_upwards_holds_the_log() -> None:
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.press("4")
        panel = session.app.overview.panels["evaluation"]
        newest = panel.drawing.lines[-1].plain
        await pilot.press("up", "k")
        assert panel.view.held is not None
        assert newest not in [each.plain for each in panel.drawing.lines]
        await pilot.press("end")
        assert panel.drawing.lines[-1].plain == newest


async def test_f_where_there_is_no_log_says_where_one_is() -> None:
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.press("5", "f")
        assert any("no log here" in toast for toast in session.toasts)


async def test_the_detail_of_the_results_follows_the_cursor() -> None:
    session = Session(story.finished())
    async with session.run() as pilot:
        await pilot.press("5", "G")
        assert "STEP_BEHIND_LIVE" in _text(session.app)
        await pilot.press("k")
        assert "SKIPPED_WEIGHTS" in _text(session.app)
        await pilot.press("g")
        assert "what a plain chain of drafts wins" in _text(session.app)


async def test_copying_says_what_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    session = Session(story.finished())
    async with session.run() as pilot:
        await pilot.press("4", "y")
        await pilot.pause()
        assert session.app.clipboard == "/root/eval/runs/slammed5-step4000-full-20260521"
        assert any("copied" in toast and "OSC 52" in toast for toast in session.toasts)
        await pilot.press("1", "tab", "y")
        await pilot.pause()
        assert session.app.clipboard.startswith("| metric | step 4000 · full | previous | Δ |")


async def test_the_key_bar_answers_clicks() -> None:
    session = Session(story.finished())
    async with session.run() as pilot:
        await pilot.pause()
        await pilot.click("#keybar", offset=(24, 0))
        await pilot.pause()
    assert session.console.begun == [("fetch", {})]


async def test_the_next_theme_is_used_and_how_to_keep_it_is_said() -> None:
    session = Session(story.finished())
    async with session.run() as pilot:
        await pilot.pause()
        before = session.app.theme
        session.app.do_theme()
        await pilot.pause()
        assert session.app.theme != before
        assert any(f'theme = "{session.app.theme}"' in toast for toast in session.toasts)


def _clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The question's clock, which only the test moves."""
    now = [100.0]
    monkeypatch.setattr("dflash_tui.tui.screens.confirm.monotonic", lambda: now[0])
    return now


def _wheel_up(panel: Panel) -> MouseScrollUp:
    return MouseScrollUp(panel, 5, 5, 0, -1, 0, False, False, False)


async def _shown(pilot: Pilot[None]) -> None:
    """Wait until the newest state is on the screen (at most four paints a second)."""
    app = pilot.app
    assert isinstance(app, DflashApp)
    for _ in range(40):
        await pilot.pause(0.05)
        if app._shown is app.newest:
            return
    raise AssertionError("the newest state was not shown within two seconds")


def _text(app: DflashApp) -> str:
    """What is on the screen, as text."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


async def test_an_error_that_stands_in_a_panel_is_not_said_over_the_results_too() -> None:
    session = Session(story.EMPTY)
    error = "ct129: no connection: refused"
    failed = (
        happened.EvaluationAsked("job 1", "quick", "newest"),
        happened.EvaluationEnded("job 1", "", "failed", error=error),
        happened.Noticed("error", error),
    )
    async with session.run() as pilot:
        session.console.emit(*failed)
        await pilot.pause()
        assert not session.app._notifications
        await pilot.press("5")
        session.console.emit(happened.Noticed("error", error))
        await pilot.pause(0.3)
        assert [each.message for each in session.app._notifications] == [error]


async def test_what_was_said_stays_readable_in_the_help() -> None:
    session = Session(story.folded((happened.Noticed("warn", "baseline previous: ct129: no connection"),)))
    async with session.run() as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        shown = "\n".join(each.plain for each in help_lines(90, session.console.state.notices))
        assert "▲ baseline previous: ct129: no connection" in shown
        assert "baseline previous" in str(session.app.screen.query_one(Static).content)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
async def test_no_line_of_the_help_runs_over(width: int) -> None:
    session = Session(story.EMPTY)
    async with session.run((width, 40)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        text = session.app.screen.query_one(Static)
        assert max(each.width for each in help_lines(text.size.width)) <= text.size.width
        assert text.size.height == len(str(text.content).splitlines())


@pytest.mark.parametrize("keys", [("tab",), ("4",)])
async def test_a_terminal_that_was_too_small_for_a_while_keeps_the_focus(keys: tuple[str, ...]) -> None:
    session = Session(story.running())
    async with session.run() as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        before = session.app.overview.focused
        assert before is not None
        await pilot.resize_terminal(50, 12)
        await pilot.pause()
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        await pilot.pause()
        assert session.app.overview.focused is before
