"""What ships to an evaluation host runs on Python 3.10, the oldest that is met there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dflash_tui

PACKAGE = Path(dflash_tui.__file__).parent
SHIPPED = ("records", "measure", "checkpoints", "harness")


def interpreters() -> list[str]:
    """Every working Python ≥ 3.10 of this machine by version, the running one among them."""
    found = [shutil.which(f"python3.{minor}") for minor in range(10, 16)]
    works = [path for path in found if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0]
    return [*works, sys.executable]


def test_every_module_that_ships_finds_its_syntax_and_names_on_python_310() -> None:
    rooms = [str(PACKAGE / room) for room in SHIPPED]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-version", "3.10", "--strict", *rooms],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("python", interpreters())
def test_the_survey_and_the_state_command_run_on_every_python_that_is_here(python: str, tmp_path: Path) -> None:
    command = [python, "-m", "dflash_tui.harness"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    asked = subprocess.run(
        [*command, "survey"], input="{}", capture_output=True, text=True, cwd=PACKAGE.parent, env=environment
    )
    assert asked.returncode == 0, asked.stderr
    assert '"memory_total"' in asked.stdout
    (tmp_path / "manifest.json").write_text("{}")
    state = subprocess.run(
        [*command, "state", str(tmp_path)], capture_output=True, text=True, cwd=PACKAGE.parent, env=environment
    )
    assert (state.stdout.strip(), state.stderr) == ("starting", "")
