"""What is loaded when: start-up never pays for torch, headless commands never for Textual, watching never for torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "textual", "asyncssh", "rich", "transformers", "safetensors")


def loaded(code: str) -> set[str]:
    """The heavy packages in sys.modules after running `code` in a fresh interpreter."""
    report = f"import sys; print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


ROOMS = ("records", "measure", "checkpoints", "results", "evals", "watch", "transfer", "hosts", "console")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_below_the_faces_loads_nothing_heavy(room: str) -> None:
    walk = (
        f"import importlib, pkgutil, dflash_tui.{room} as room\n"
        "for item in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "    importlib.import_module(item.name)"
    )
    assert loaded(walk) == set()


def test_the_app_loads_neither_torch_nor_ssh() -> None:
    assert loaded("import dflash_tui.tui.app, dflash_tui.console.console") <= {"textual", "rich"}


def test_the_command_line_loads_nothing_until_a_command_runs() -> None:
    assert loaded("import dflash_tui.cli; dflash_tui.cli.build_parser()") == set()


@pytest.mark.parametrize("command", [["keys", "--json"], ["runs", "--json"], ["--help"]])
def test_a_headless_command_never_loads_textual(command: list[str]) -> None:
    words = ["--state", "/nonexistent/state", *command]
    run = f"from dflash_tui.cli import main\ntry: main({words!r})\nexcept SystemExit: pass"
    assert loaded(run) == set()


def test_the_harness_looks_and_asks_without_torch() -> None:
    assert loaded("import dflash_tui.harness.survey, dflash_tui.harness.process, dflash_tui.harness.__main__") == set()


def test_the_demo_s_world_leaves_torch_to_its_children() -> None:
    assert "torch" not in loaded("import dflash_tui.demo.session")
