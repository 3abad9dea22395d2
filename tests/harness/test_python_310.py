"""What ships to an evaluation host runs on Python 3.10, the oldest that is met there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import dflash_tui

PACKAGE = Path(dflash_tui.__file__).parent
SHIPPED = ("records", "measure", "checkpoints", "harness")

LOOK = """
import ast, importlib, pathlib, sys
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    for node in ast.walk(ast.parse(path.read_bytes(), name)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in sys.stdlib_module_names:
            module = importlib.import_module(node.module)
            for item in node.names:
                if not hasattr(module, item.name):
                    print(f"{path}:{node.lineno}: {node.module} has no {item.name}")
"""


def python_310() -> str:
    places = [shutil.which("python3.10"), *map(str, (Path.home() / ".pyenv/versions").glob("3.10.*/bin/python"))]
    for place in places:
        if place and subprocess.run([place, "-c", ""], capture_output=True).returncode == 0:
            return place
    if os.environ.get("DFLASH_REQUIRE_ALL") == "1":
        pytest.fail("no working python3.10 on this machine")
    pytest.skip("no working python3.10 on this machine")


def test_every_module_that_ships_parses_and_finds_its_names_on_python_310() -> None:
    files = [str(path) for room in SHIPPED for path in sorted((PACKAGE / room).glob("*.py"))]
    done = subprocess.run([python_310(), "-c", LOOK, *files], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert len(files) > 40


def test_the_survey_and_the_state_command_run_on_python_310(tmp_path: Path) -> None:
    command = [python_310(), "-m", "dflash_tui.harness"]
    where = {"cwd": PACKAGE.parent, "env": {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}}
    asked = subprocess.run([*command, "survey"], input="{}", capture_output=True, text=True, **where)  # type: ignore[call-overload]
    assert asked.returncode == 0, asked.stderr
    assert '"python": "3.10.' in asked.stdout
    (tmp_path / "manifest.json").write_text("{}")
    state = subprocess.run([*command, "state", str(tmp_path)], capture_output=True, text=True, **where)  # type: ignore[call-overload]
    assert (state.stdout.strip(), state.stderr) == ("starting", "")
