"""Pictures of every screen: kept as SVG and compared; the README's two byte by byte.

After a wanted change: pytest tests/tui/test_screens.py --snapshot-update, look at the report, and run
python -m tests.tui.screens for the README's.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from dflash_tui.console.state import State
from dflash_tui.tui.app import DflashApp
from tests.tui import story
from tests.tui.recording import RecordingConsole
from tests.tui.screens import FOLDER, SIZES, PicturedApp, picture

Compare = Callable[..., bool]
RICH = "https://www.textualize.io"  # named in a comment by what draws the picture
WIDE, STACKED = (120, 40), (80, 24)
STATES: dict[str, Callable[[], State]] = {
    "empty": lambda: story.EMPTY,
    "running": story.running,
    "failed": story.failed,
    "lost": story.lost,
    "unreachable": story.unreachable,
    "capturing": story.capturing,
}


def _app(state: State, theme: str = "harbour") -> DflashApp:
    return PicturedApp(RecordingConsole(state), theme=theme)


async def _settled(pilot: Pilot[None]) -> None:
    await pilot.pause()
    await pilot.pause()


@pytest.mark.parametrize("name", SIZES)
async def test_a_picture_asks_for_nothing_from_elsewhere(name: str) -> None:
    kept = (FOLDER / name).read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\s\"'<)]+", kept.replace("http://www.w3.org/2000/svg", "")) == [RICH]


@pytest.mark.parametrize("name", SIZES)
async def test_the_readmes_picture_is_what_the_app_shows(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == await picture(*SIZES[name]), "python -m tests.tui.screens"


@pytest.mark.parametrize("size", [WIDE, STACKED], ids=["120x40", "80x24"])
@pytest.mark.parametrize("state", STATES)
def test_overview(state: str, size: tuple[int, int], snap_compare: Compare) -> None:
    assert snap_compare(_app(STATES[state]()), terminal_size=size, run_before=_settled)


@pytest.mark.parametrize("size", [WIDE, STACKED], ids=["120x40", "80x24"])
@pytest.mark.parametrize("key", ["2", "3", "4", "5"])
def test_zoom(key: str, size: tuple[int, int], snap_compare: Compare) -> None:
    assert snap_compare(_app(story.running()), press=[key], terminal_size=size, run_before=_settled)


@pytest.mark.parametrize("theme", ["chalk", "ember", "parchment", "plain"])
def test_theme(theme: str, snap_compare: Compare) -> None:
    assert snap_compare(_app(story.running(), theme), terminal_size=(100, 30), run_before=_settled)


def test_help(snap_compare: Compare) -> None:
    assert snap_compare(_app(story.running()), press=["question_mark"], terminal_size=(100, 34), run_before=_settled)


def test_question(snap_compare: Compare) -> None:
    assert snap_compare(_app(story.running()), press=["K"], terminal_size=STACKED, run_before=_settled)


def test_too_small(snap_compare: Compare) -> None:
    assert snap_compare(_app(story.running()), terminal_size=(50, 12), run_before=_settled)
