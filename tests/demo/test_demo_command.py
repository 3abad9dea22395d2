"""The demo as a user runs it: a real process, real sockets, a real training; nothing patched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.demo.test_reaper import reapers
from tests.demo.worlds import marked

LIMIT = 180.0  # seconds that the issue allows on two cores


def demo(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], float, Path]:
    """Run `dflash-tui demo --headless --json`; the process, its seconds, and its temporary folder."""
    base = folder / "tmp"
    base.mkdir()
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "dflash_tui", "demo", "--headless", "--json", *options],
        env=os.environ | {"TMPDIR": str(base)},
        capture_output=True,
        text=True,
        timeout=LIMIT * 2,
        check=False,
    )
    return done, time.monotonic() - begun, base


def codes(entry: dict[str, Any]) -> set[str]:
    return {caveat["code"] for caveat in entry["caveats"]}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], float, Path]:
    done, seconds, base = demo(tmp_path_factory.mktemp("demo"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), seconds, base


def test_it_ends_by_itself_in_time_and_leaves_nothing(answer: tuple[dict[str, Any], float, Path]) -> None:
    _, seconds, base = answer
    assert seconds <= LIMIT
    assert list(base.iterdir()) == []
    assert marked(base) == set()


def test_the_drafter_learns_and_passes_the_baseline(answer: tuple[dict[str, Any], float, Path]) -> None:
    data = answer[0]
    baseline, checkpoints = data["baseline"], data["checkpoints"]
    assert len(checkpoints) >= 3
    assert [entry["step"] for entry in checkpoints] == sorted({entry["step"] for entry in checkpoints})
    assert checkpoints[0]["streak"]["top1"] < 1.5
    assert checkpoints[-1]["streak"]["top1"] >= 2.5
    assert checkpoints[-1]["streak"]["top1"] > baseline["streak"]["top1"]
    for entry in (baseline, *checkpoints):
        streak = entry["streak"]
        assert streak["top1"] <= streak["top4"] <= streak["top8"]
        assert entry["tau"] == pytest.approx(streak["top1"] + 1)
        assert (entry["blocks"], entry["prompts"]) == (90, 3)


def test_the_baseline_is_measured_on_the_anchors_of_the_checkpoints(
    answer: tuple[dict[str, Any], float, Path],
) -> None:
    data = answer[0]
    assert data["baseline"]["name"] == "published"
    assert data["baseline"]["training"] is None
    assert {comparison["pairing"] for comparison in data["comparisons"]} == {"anchors"}
    assert all(blocks == 90 for comparison in data["comparisons"] for blocks in comparison["blocks"])


def test_the_caveats_are_real(answer: tuple[dict[str, Any], float, Path]) -> None:
    last = answer[0]["checkpoints"][-1]
    assert {"BLOCK_SIZE_MISMATCH", "PARTIAL_PROMPT_COVERAGE", "STEP_BEHIND_LIVE"} <= codes(last)
    assert all(caveat["severity"] in ("warn", "note") for caveat in last["caveats"])


def test_with_all_prompts_and_the_trained_block_two_caveats_are_gone(tmp_path: Path) -> None:
    done, _, base = demo(tmp_path, "--capture", "--block-size", "32")
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout)["checkpoints"][-1]
    assert last["prompts"] == 10
    assert not {"BLOCK_SIZE_MISMATCH", "PARTIAL_PROMPT_COVERAGE"} & codes(last)
    assert list(base.iterdir()) == []


MOMENTS = {
    "before the first log line": "",
    "in training": "waiting for its first checkpoint",
    "in transfer": "moving step_",
    "in evaluation": "run tiny-dflash",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_it_leaves_no_process_and_no_folder(tmp_path: Path, moment: str) -> None:
    base = tmp_path / "tmp"
    base.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "dflash_tui", "demo", "--headless"],
        env=os.environ | {"TMPDIR": str(base)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    if MOMENTS[moment]:
        assert any(MOMENTS[moment] in line for line in process.stderr), f"it ended before {moment}"
    else:
        deadline = time.monotonic() + 30
        while not marked(base):
            assert time.monotonic() < deadline, "the trainer never started"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    deadline = time.monotonic() + 5
    while marked(base) or reapers(base) or any(base.iterdir()):
        assert time.monotonic() < deadline, (marked(base), list(base.iterdir()))
        time.sleep(0.02)
