"""The edges to a real terminal: whether there is one, what is written to it, what gets into a clipboard."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_tui.tui.copying import copy

ROOT = Path(__file__).parents[2]
RUN = """
import sys
from tests.tui import story
from tests.tui.recording import RecordingConsole
from dflash_tui.tui.app import DflashApp
DflashApp(RecordingConsole(getattr(story, sys.argv[1])())).run()
"""


def _missing(program: str) -> bool:
    if shutil.which(program):
        return False
    if os.environ.get("DFLASH_REQUIRE_ALL") == "1":
        pytest.fail(f"{program} is missing and DFLASH_REQUIRE_ALL=1")
    pytest.skip(f"{program} is not installed")


@pytest.mark.parametrize(
    ("stdin", "stderr", "named"),
    [(True, False, "stderr is"), (False, True, "stdin is"), (False, False, "stdin and stderr are")],
)
def test_without_a_terminal_one_sentence_names_the_headless_command(stdin: bool, stderr: bool, named: str) -> None:
    code = (
        "from dflash_tui.tui.terminal import refusal; import sys; "
        "print(refusal(), any('textual' in m for m in sys.modules))"
    )
    master, slave = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
            stdin=slave if stdin else subprocess.DEVNULL, stderr=slave if stderr else subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        os.close(master)
        os.close(slave)
    assert f"dflash-tui: {named} not a terminal" in done.stdout
    assert "dflash-tui status" in done.stdout
    assert done.stdout.rstrip().endswith("False")


def test_with_a_terminal_nothing_is_refused() -> None:
    master, slave = pty.openpty()
    try:
        code = "from dflash_tui.tui.terminal import refusal; print(refusal())"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdin=slave,
            stderr=slave,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    finally:
        os.close(master)
        os.close(slave)
    assert done.stdout.strip() == "None"


FOREIGN = ("TMUX", "NO_COLOR", "COLUMNS", "LINES")
"""What the terminal of whoever runs the tests says of itself."""


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    """A tmux server of its own, without anybody's configuration."""
    _missing("tmux")
    command = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
    yield command
    subprocess.run([*command, "kill-server"], capture_output=True, check=False)


def _start(tmux: list[str], width: int, height: int, state: str, environment: dict[str, str] | None = None) -> None:
    variables = {"PYTHONPATH": str(ROOT), **(environment or {})}
    settings = [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", str(width), "-y", str(height), *settings, sys.executable, "-c", RUN, state],
        check=True, cwd=ROOT, env={name: text for name, text in os.environ.items() if name not in FOREIGN},
    )  # fmt: skip


def _screen(tmux: list[str], until: str, *options: str) -> str:
    """The screen, as soon as it shows `until`."""
    shown = ""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        shown = subprocess.run(
            [*tmux, "capture-pane", "-p", *options], capture_output=True, text=True, check=False
        ).stdout
        if until in shown:
            return shown
        time.sleep(0.05)  # between two looks at another process's screen
    raise AssertionError(f"{until!r} did not appear in:\n{shown}")


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (60, 16)])
def test_all_four_panels_stand_in_a_real_terminal(tmux: list[str], width: int, height: int) -> None:
    _start(tmux, width, height, "finished")
    shown = _screen(tmux, "q Quit")
    for words in (
        "2 Training",
        "3 Transfer",
        "4 Evaluation",
        "5 Results",
        "step 5,329/20,000",
        "3.333",
        "+2.400",
        "0.778",
        "● live",
    ):
        assert words in shown
    assert len(shown.splitlines()) <= height
    subprocess.run([*tmux, "send-keys", "5"], check=True)
    _screen(tmux, "[5]")
    subprocess.run([*tmux, "send-keys", "Escape"], check=True)
    _screen(tmux, "[1]")


def test_a_terminal_that_is_too_small_gets_one_honest_line(tmux: list[str]) -> None:
    _start(tmux, 50, 12, "finished")
    shown = " ".join(_screen(tmux, "need 60x16").split())
    assert "terminal is 50x12; need 60x16 · q quit · headless: dflash-tui status" in shown


def test_no_color_sends_no_colour_and_keeps_meaning_in_weight_and_reverse(tmux: list[str]) -> None:
    _start(tmux, 120, 40, "finished", {"NO_COLOR": "1"})
    _screen(tmux, "q Quit")
    subprocess.run([*tmux, "send-keys", "5"], check=True)
    shown = _screen(tmux, "\x1b[1;7m", "-e")  # the cursor
    assert "┏" in shown  # the focus
    codes = {code for group in re.findall("\x1b\\[([0-9;]*)m", shown) for code in group.split(";")}
    assert codes <= {"", "0", "1", "2", "4", "7", "39", "49", "22", "24", "27"}
    assert "1" in codes


async def test_inside_tmux_a_copy_reaches_tmuxs_buffer(tmux: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run([*tmux, "new-session", "-d", "sleep", "60"], check=True)
    socket = subprocess.run(
        [*tmux, "display-message", "-p", "#{socket_path},#{pid},0"], capture_output=True, text=True, check=True
    )
    monkeypatch.setenv("TMUX", socket.stdout.strip())
    sent: list[str] = []
    text = "τ 4.333\n| +2.400 |"
    assert "tmux" in await copy(text, os.environ, sent.append)
    assert sent == []
    assert subprocess.run([*tmux, "show-buffer"], capture_output=True, text=True, check=True).stdout == text


@pytest.mark.parametrize("environment", [{}, {"TMUX": "/nowhere/tmux,1,0"}])
async def test_elsewhere_or_when_tmux_refuses_a_copy_is_sent_as_osc_52(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", environment.get("TMUX", ""))
    sent: list[str] = []
    assert "OSC 52" in await copy("text", environment, sent.append)
    assert sent == ["text"]
