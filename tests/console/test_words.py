"""Answers as text and JSON, whatever a host called its files and whatever a terminal can show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_tui.console.answers import Logs, Status
from dflash_tui.console.words import as_json, as_text
from tests.runs import TEN, drafted, manifest, write_run


def status(seconds: float | None) -> Status:
    return Status("slammed5", "ct200", 5329, 20000, 2.0, None, None, None, None, "training", "", seconds, None, None)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_json_can_be_written_in_any_charset(encoding: str) -> None:
    lines = ("step_\udcff", "τ = 3 𝜏", "\x1b[31m")
    text = as_json(Logs("ct200:/log", lines), encoding)
    assert json.loads(text.encode(encoding)) == {"source": "ct200:/log", "lines": list(lines)}


def test_json_for_utf_8_is_readable() -> None:
    assert "τ" in as_json(Logs("ct200:/log", ("τ",)))


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_terminal_without_greek_shows_the_rest(tmp_path: Path, options: list[str]) -> None:
    write_run(tmp_path / "runs" / "good", manifest("good"), drafted(TEN[:3]))
    command = [sys.executable, "-m", "dflash_tui", "--config", str(tmp_path / "none"), "--state", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*command, "show", "good", *options], capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"good" in done.stdout
    assert not options or json.loads(done.stdout)["result"]["name"] == "good"


@pytest.mark.parametrize(("seconds", "said"), [(2.0, "2 s ago"), (150.0, "2 min ago"), (3e5, "3 d ago")])
def test_a_step_says_how_old_it_is(seconds: float, said: str) -> None:
    assert f"step 5,329/20,000, {said}" in as_text(status(seconds))
    assert "ago" not in as_text(status(None))
