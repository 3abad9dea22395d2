"""The README promises what the code does."""

from __future__ import annotations

import argparse
import dataclasses
import re
from pathlib import Path
from typing import get_args

import pytest

from dflash_tui.cli import build_parser
from dflash_tui.config import HostConfig
from dflash_tui.console import answers
from dflash_tui.records.finding import Verdict
from dflash_tui.tui.actions import ACTIONS

README = (Path(__file__).parent.parent / "README.md").read_text()

ANSWERS: dict[str, type] = {
    "init": answers.InitAnswer,
    "config path": answers.ConfigPath,
    "config show": answers.ConfigShow,
    "check": answers.Check,
    "trust": answers.TrustAnswer,
    "status": answers.Status,
    "checkpoints": answers.Checkpoints,
    "fetch": answers.FetchAnswer,
    "eval": answers.EvalAnswer,
    "capture": answers.CaptureAnswer,
    "stop": answers.StopAnswer,
    "clean": answers.CleanAnswer,
    "prune": answers.PruneAnswer,
    "runs": answers.Runs,
    "show": answers.Show,
    "logs": answers.Logs,
    "import": answers.ImportAnswer,
    "pin": answers.ImportAnswer,
    "compare": answers.Compared,
    "report": answers.ReportAnswer,
    "demo": answers.DemoAnswer,
    "keys": answers.Key,
}


def documented() -> dict[str, set[str]]:
    """Command → the keys that the README names."""
    table = README.split("<!-- commands -->")[1].split("<!-- end commands -->")[0]
    rows = re.findall(r"^\| `(\w+(?: (?:path|show)\b)?).* — (.*) \|$", table, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", keys)) for name, keys in rows}


def test_every_verdict_is_explained() -> None:
    table = README.split("| verdict | |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w[\w ]*)`", table)) >= set(get_args(Verdict))


def test_every_key_of_a_host_and_every_flag_that_changes_what_a_command_does_is_told() -> None:
    sample = README.split("## The config")[1].split("```toml")[1].split("```")[0]
    for key in ("threads", *(field.name for field in dataclasses.fields(HostConfig) if field.name != "name")):
        assert re.search(rf"^(# )?{key} = ", sample, re.MULTILINE), key
    for told in ("eval --again", "clean --checkpoints"):
        assert f"`{told}`" in README


def test_every_command_is_documented_and_exists() -> None:
    parser = build_parser()
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    assert set(documented()) == set(ANSWERS)
    assert set(commands.choices) == {name.split()[0] for name in ANSWERS}


@pytest.mark.parametrize("command", ANSWERS)
def test_the_documented_keys_are_those_that_are_printed(command: str) -> None:
    fields = {field.name for field in dataclasses.fields(ANSWERS[command])}
    assert documented()[command] == fields


def test_every_key_in_the_readme_is_bound() -> None:
    table = README.split("### Keys")[1].split("`dflash-tui keys`")[0]
    named = set(re.findall(r"`([^`]+)`", table)) - {"…"}
    spelled = {"?": "question_mark", "esc": "escape"}
    bound = {key for action in ACTIONS for key in action.keys} | {"ctrl+p"}
    assert {spelled.get(key, key) for key in named} <= bound
