"""Answers as text and JSON, whatever a host called its files and whatever a terminal can show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.console.answers import Compared, FetchAnswer, LeftAtSource, Logs, RunLine, Runs, Show, Status, entry
from dflash_tui.console.quantities import time_left
from dflash_tui.console.words import as_json, as_text
from dflash_tui.results.compare import compare
from tests.evaluations import OTHER, bare, on, result
from tests.runs import TEN, drafted, manifest, write_run


def status(seconds: float | None) -> Status:
    return Status("slammed5", "ct200", 5329, 20000, 2.0, None, None, None, None, "training", "", seconds, None, None)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_json_can_be_written_in_any_charset(encoding: str) -> None:
    lines = ("step_\udcff", "τ = 3 𝜏", "\x1b[31m")
    text = as_json(Logs("ct200:/log", lines), encoding)
    assert json.loads(text.encode(encoding)) == {"source": "ct200:/log", "lines": list(lines)}


def test_json_moves_no_cursor() -> None:
    lines = ("\x9b2J", "\x7f", "\u202egnp.exe", "\U000e0041", "\x1b]0;title\x07", 'quoted "and" \\ back')
    text = as_json(Logs("ct200:/log", lines))
    assert all(char == "\n" or char.isprintable() for char in text)
    assert json.loads(text)["lines"] == list(lines)


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


@pytest.mark.parametrize("seconds", [0.0, 9.4, 41.0, 300.0, 23760.0, 172799.0, 273600.0])
def test_a_time_to_come_is_the_app_s(seconds: float) -> None:
    assert f"ETA {time_left(seconds)}\n" in as_text(replace(status(2.0), eta_seconds=seconds))


def test_a_log_without_steps_says_that_it_names_none() -> None:
    assert "ct200: training, the log names no steps\nloss 2.0000" in as_text(replace(status(None), step=None))
    assert "no step yet (waiting)" in as_text(replace(status(None), step=None, loss=None, phase="waiting"))


def test_runs_name_their_figure_and_count_one_block_as_one() -> None:
    done = RunLine("r1", "finished", "", "t", 1, "quick", 16, {"top1": 3.3333}, 1)
    broken = replace(done, run_id="r2", state="damaged", streak={}, blocks=0)
    assert as_text(Runs((done, broken), ())).splitlines() == [
        "r1  finished  top-1  3.333  1 block",
        "r2  damaged                 0 blocks",
    ]


def test_a_result_shows_its_real_trees_where_there_are_some() -> None:
    shown = as_text(Show("/state/runs/r1", entry(result(), ())))
    trees = result().pooled.ddtree["64"]
    assert f"  DDTree b=64     {trees:7.3f}   τ {trees + 1:7.3f}" in shown
    assert "300 blocks, 10 prompts" in shown
    assert "DDTree b=" not in as_text(
        Show("/state/pins/p", entry(replace(bare(), pooled=replace(bare().pooled, ddtree={})), ()))
    )
    one = as_text(Show("/state/runs/r1", entry(replace(on(TEN[:1]), prompts_asked_count=1), ())))
    assert "30 blocks, 1 of 1 prompt\n" in one


def test_a_difference_below_zero_has_one_minus_everywhere() -> None:
    found = compare(OTHER, result())
    sides = entry(OTHER, ()), entry(result(), ())
    text = as_text(Compared(*sides, found.delta, found.verdict, found.why, (), found.rows, found.pairing))
    assert text.count("−") == 5  # three deltas and the two ends of an interval
    assert " -" not in text
    assert "[-" not in text


def test_what_no_wire_carried_is_not_said_to_have_moved() -> None:
    moved = FetchAnswer("lab", "/eval/step_1", ("checkpoint.pt",), 1, 0, "ab", 0.1, False)
    assert as_text(moved).startswith("lab:/eval/step_1  checkpoint.pt  placed, nothing crossed a wire")
    assert "1.50 kB in 0.1 s" in as_text(replace(moved, bytes=1500))


def test_a_plan_tells_what_moves_what_stays_what_is_there_and_what_is_free() -> None:
    left = (LeftAtSource("optimizer", 6_924_000_000), LeftAtSource("frozen embed/lm_head", 5_086_000_000))
    plan = FetchAnswer(
        "ct129", "/eval/step_4000", ("checkpoint.pt",), 4000, 2_260_000_000, "", 0.0, False,
        source="ct200:/w/step_4000/checkpoint.pt", original=15_470_000_000, copy="slim", size=3_460_000_000,
        kept=("drafter",), left=left, route="relay", resumed=1_200_000_000, free_bytes=80_000_000_000,
        free_inodes=1_000_000, dry_run=True,
    )  # fmt: skip
    assert as_text(plan).splitlines() == [
        "ct200:/w/step_4000/checkpoint.pt to ct129:/eval/step_4000",
        "3.46 of 15.47 GB: drafter; optimizer, frozen embed/lm_head left",
        "  left     6.92 GB  optimizer",
        "  left     5.09 GB  frozen embed/lm_head",
        "files  checkpoint.pt",
        "route  through this machine",
        "there  0 B, and 1.20 GB to be continued",
        "moves  2.26 GB",
        "free   80.00 GB, 1,000,000 inodes on ct129",
    ]
    there = replace(plan, already_there=True, bytes=0)
    assert "there  all of it, with the same bytes: nothing would move" in as_text(there)
    moved = replace(plan, dry_run=False, bytes=3_460_000_000, seconds=8.6)
    assert "3.46 of 15.47 GB: drafter; optimizer, frozen embed/lm_head left" in as_text(moved).splitlines()


def test_no_line_of_an_answer_ends_in_a_space() -> None:
    answers = [status(2.0), Runs((), ({"name": "p", "sha256": ""},)), Show("/x", entry(result(), ()))]
    assert all(line == line.rstrip() for answer in answers for line in as_text(answer).splitlines())
