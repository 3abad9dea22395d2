"""The app as a whole: what it does first, how often it paints, what it survives."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dflash_tui.console import events as happened
from dflash_tui.console.state import State
from dflash_tui.tui.app import DflashApp
from dflash_tui.tui.widgets.panel import Panel
from tests.tui import story
from tests.tui.recording import RecordingConsole
from tests.tui.test_keys import _shown, _text


async def test_the_connection_begins_only_after_all_four_panels_are_painted() -> None:
    seen: list[bool] = []

    async def connect() -> None:
        seen.append(all(panel.drawing.lines and panel.region.area for panel in app.overview.panels.values()))

    app = DflashApp(RecordingConsole(story.EMPTY), connect)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.1)
    assert seen == [True]


async def test_without_a_connect_the_console_is_started_once() -> None:
    console = RecordingConsole(story.EMPTY)
    async with DflashApp(console).run_test() as pilot:
        await pilot.pause(0.1)
    assert console.started == 1


async def test_a_console_that_connecting_makes_is_shown_and_listened_to() -> None:
    console = RecordingConsole(story.running())

    async def connect() -> RecordingConsole:
        return console

    app = DflashApp(connect=connect)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.1)
        await _shown(pilot)
        assert "slammed5" in _text(app)
        await pilot.press("t")
        assert console.begun == [("fetch", {})]
        console.emit(*story.evaluated(), story.results())
        await _shown(pilot)
        assert "✓ done" in _text(app)


async def test_before_anything_is_connected_an_act_says_so() -> None:
    connected = asyncio.Event()

    async def connect() -> None:
        await connected.wait()

    console = RecordingConsole(story.EMPTY)
    app = DflashApp(console, connect)
    async with app.run_test() as pilot:
        await pilot.pause(0.1)
        await pilot.press("e")
        assert any("not connected yet" in note.message for note in app._notifications)
        connected.set()
        await pilot.pause(0.1)
        await pilot.press("e")
    assert console.begun == [("evaluate", {"preset": "quick"})]


async def test_a_connection_that_fails_is_a_sentence_and_the_app_stays() -> None:
    async def connect() -> None:
        raise OSError("ct200: no route to host; is the VPN up?")

    app = DflashApp(RecordingConsole(story.EMPTY), connect)
    async with app.run_test() as pilot:
        await pilot.pause(0.2)
        assert any("is the VPN up?" in note.message for note in app._notifications)
        assert app.is_running


async def test_a_burst_of_events_paints_each_panel_at_most_four_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    console = RecordingConsole(story.running())
    app = DflashApp(console)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.4)
        paints: list[str] = []
        original = Panel.refresh

        def counted(self: Panel, *args: object, **options: object) -> object:
            paints.append(str(self.id))
            return original(self, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Panel, "refresh", counted)
        loop = asyncio.get_running_loop()
        began = loop.time()
        written = story.SLIM // 2
        while loop.time() - began < 1.0:
            written += 1_000_000
            console.emit(happened.TransferAdvanced("job 1", story.transfer_progress(written)))
            await asyncio.sleep(0.005)
        assert set(paints) == {"transfer"}  # nothing else changed
        assert 2 <= len(paints) <= 5
        await _shown(pilot)
        assert app.overview.panels["transfer"].drawing == app.overview.panels["transfer"].draw(
            console.state, app.overview.panels["transfer"].view
        )


async def test_a_panel_that_is_not_seen_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    console = RecordingConsole(story.running())
    app = DflashApp(console)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.1)
        await pilot.press("5")
        before = app.overview.panels["transfer"].drawing
        console.emit(*story.moved())
        await _shown(pilot)
        assert app.overview.panels["transfer"].drawing is before
        await pilot.press("3")
        assert "sha256 equal at both ends" in _text(app)


async def test_ages_grow_with_the_consoles_clock() -> None:
    console = RecordingConsole(story.running())
    app = DflashApp(console)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.1)
        assert "2 s ago" in _text(app)
        console.emit(happened.Ticked(story.NOW + 5))
        await _shown(pilot)
        assert "7 s ago" in _text(app)


async def test_each_notice_becomes_one_toast_and_its_text_is_no_markup() -> None:
    console = RecordingConsole(story.EMPTY)
    app = DflashApp(console)
    async with app.run_test(notifications=True) as pilot:
        await pilot.pause(0.1)
        console.emit(happened.Noticed("error", "ct129: [bold]no[/] space\x1b[2J left"))
        await _shown(pilot)
        console.emit(happened.Noticed("info", "pinned"), happened.Ticked(1.0))
        await _shown(pilot)
        console.emit(happened.Ticked(2.0))
        await _shown(pilot)
        messages = [note.message for note in app._notifications]
        assert messages == ["ct129: [bold]no[/] space␛[2J left", "pinned"]
        await pilot.pause(0.1)
        assert "[bold]no[/] space" in _text(app)


async def test_hostile_names_reach_the_screen_as_text() -> None:
    hostile = "\x1b]0;title\x07[@click=app.exit]x[/]\u202e"
    state = story.running()
    state = replace(
        state,
        training=replace(state.training, name=hostile, log=(hostile,) * 5),
        evaluation=replace(state.evaluation, host=hostile, plan=(hostile,), log=(hostile,)),
        transfer=replace(state.transfer, name=hostile, step=None, route=(hostile, "here", hostile)),
    )
    app = DflashApp(RecordingConsole(state))
    async with app.run_test(size=(140, 50)) as pilot:
        for key in "12345":
            await pilot.press(key)
            shown = _text(app)
            assert "\x1b" not in shown
            assert "\x07" not in shown
            assert "\u202e" not in shown
        await pilot.press("1")
        assert "[@click=app.exit]x" in _text(app)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.tuples(st.integers(20, 200), st.integers(6, 60)), min_size=1, max_size=4),
    state=st.sampled_from([story.EMPTY, story.finished(), story.running(), story.failed(), story.lost()]),
    keys=st.lists(st.sampled_from([*"12345zfkjgG", "tab", "escape", "question_mark", "K"]), max_size=8),
)
@example(sizes=[(20, 6)], state=story.finished(), keys=["5", "question_mark"])
@example(sizes=[(59, 16), (60, 15), (60, 16)], state=story.running(), keys=["K", "escape", "5"])
@example(sizes=[(99, 24), (100, 24), (100, 16)], state=story.running(), keys=["4"])
def test_any_size_any_state_and_any_keys_never_break_the_app(
    sizes: list[tuple[int, int]], state: State, keys: list[str]
) -> None:
    async def play() -> None:
        app = DflashApp(RecordingConsole(state))
        async with app.run_test(size=sizes[0]) as pilot:
            await pilot.press(*keys)
            for width, height in sizes[1:]:
                await pilot.resize_terminal(width, height)
                await pilot.pause()
                lines = _text(app).split("\n")
                assert len(lines) == height
            assert app._exception is None

    asyncio.run(play())


def test_textual_and_the_console_alone_are_imported_for_the_first_paint() -> None:
    import subprocess

    code = (
        "import sys; from dflash_tui.tui.app import DflashApp; "
        "print([m for m in ('torch', 'numpy', 'asyncssh', 'transformers', 'dflash_tui.evals', 'dflash_tui.demo', "
        "'dflash_tui.harness', 'dflash_tui.hosts.ssh') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
