"""What was promised: nothing that exists is touched, nothing is staged here, and a run outlives who started it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_tui.config import load_config
from dflash_tui.console.console import Console
from dflash_tui.harness.process import start_ticks
from dflash_tui.results.store import Store
from tests.cli.world import Desk
from tests.workstation import line_with, tree, until

BIG = 96 << 20


class Started:
    """An `eval` whose run goes on detached: the command, the run's id, and its process, held until it is woken."""

    def __init__(self, world: Desk, state: Path) -> None:
        before = world.run_dirs()
        self.command = world.begin("eval", "--again", "--json", state=state)  # whatever others have asked
        until(lambda: world.run_dirs() - before or self.command.poll() is not None, "a run directory")
        assert self.command.poll() is None, self.command.communicate()
        (self.run_id,) = world.run_dirs() - before
        self.run_dir = world.evaluations / "runs" / self.run_id
        until(lambda: (self.run_dir / "process.json").exists(), "process.json")
        self.pid = world.process(self.run_id).pid
        os.kill(self.pid, signal.SIGSTOP)
        assert not (self.run_dir / "exit.json").exists()

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill_the_command(self) -> None:
        self.command.kill()
        self.command.communicate()


@pytest.fixture
def started(world: Desk, quick: Any, apart: Path) -> Iterator[Started]:
    made = Started(world, apart)
    yield made
    made.kill_the_command()
    with suppress(ProcessLookupError):
        os.kill(made.pid, signal.SIGKILL)


def test_what_lay_on_the_hosts_is_untouched(world: Desk, quick: Any, full: Any, wide: Any) -> None:
    for folder, before in world.before.items():
        now = tree(folder)
        assert {name: now.get(name) for name in before} == before, folder


def test_nothing_is_written_to_the_training_s_container(world: Desk, quick: Any, full: Any) -> None:
    (container,) = [folder for folder in world.before if folder == world.container]
    kept = {name for name in tree(container) if name.startswith("data/slammed5/")}
    assert kept == {name for name in world.before[container] if name.startswith("data/slammed5/")}


def test_a_run_directory_holds_the_checkpoint_as_a_hard_link(world: Desk, quick: Any, full: Any) -> None:
    fetched = world.evaluations / "checkpoints" / "slammed5" / "step_4000" / "checkpoint.pt"
    for answer in (quick, full):
        manifest = world.manifest(answer["result"]["run_id"])
        linked = Path(answer["result"]["run_dir"]) / manifest.checkpoint.linked
        assert linked.samefile(fetched)
        assert manifest.checkpoint.link_method == "hardlink"
    assert fetched.stat().st_nlink >= 3


def test_nothing_of_a_checkpoint_is_staged_on_this_workstation(world: Desk, apart: Path) -> None:
    path = world.container / "data" / "big" / "checkpoints" / "step_10" / "checkpoint.pt"
    path.parent.mkdir(parents=True)
    noise = torch.randint(0, 255, (BIG,), dtype=torch.uint8)
    torch.save({"model_state_dict": {"norm.weight": torch.ones(8)}, "optimizer": noise}, path)
    config = world.other_config("big.toml", training={"checkpoints": "/data/big/checkpoints"})
    command, most = world.begin("--config", config, "fetch", "--full", "--json", state=apart), 0
    while command.poll() is None:
        most = max(most, *(_size(folder) for folder in (world.temporary, world.home, apart)))
        time.sleep(0.005)
    out, err = command.communicate()
    assert command.returncode == 0, err
    assert f'"bytes": {path.stat().st_size}' in out
    assert most < 1 << 20
    assert list(world.temporary.iterdir()) == []


def test_runs_keep_records_at_home_and_no_weights(world: Desk, quick: Any, full: Any) -> None:
    home = world.state / "runs" / full["result"]["run_id"]
    assert {path.suffix for path in home.iterdir()} <= {".json", ".jsonl", ".txt"}
    assert list(world.temporary.iterdir()) == []


def test_an_interrupt_is_exit_130_and_leaves_the_run_going(started: Started) -> None:
    line_with(started.command.stderr, f"run {started.run_id}")
    started.command.send_signal(signal.SIGINT)
    out, err = started.command.communicate(timeout=60)
    assert started.command.returncode == 130
    assert out == ""
    assert err.splitlines()[-2:] == [
        f"{started.run_id} goes on at ct129; the same request, or dflash-tui show {started.run_id}, follows it",
        "interrupted",
    ]
    assert Path(f"/proc/{started.pid}").exists()


def test_a_killed_command_leaves_the_run_and_the_same_request_follows_it(
    world: Desk, started: Started, apart: Path
) -> None:
    started.kill_the_command()
    assert [(run["run_id"], run["state"]) for run in world.json("runs", state=apart)["runs"]] == [
        (started.run_id, "running")
    ]
    before = world.run_dirs()
    second = world.begin("eval", "--json", state=apart)
    line_with(second.stderr, f"{started.run_id} works on the same request already; it is followed")
    started.wake()
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    assert '"existing": true' in out
    assert f'"run_id": "{started.run_id}"' in out
    assert world.run_dirs() == before
    assert [run["state"] for run in world.json("runs", state=apart)["runs"]] == ["finished"]


def test_a_run_that_was_left_can_be_stopped_by_its_name(world: Desk, started: Started, apart: Path) -> None:
    started.kill_the_command()
    stopping = world.begin("stop", started.run_id, "--json", state=apart)
    line_with(stopping.stderr, f"{started.run_id} is asked to stop")
    started.wake()
    out, err = stopping.communicate(timeout=60)
    assert stopping.returncode == 0, err
    assert json.loads(out) == {
        "host": "ct129", "run_id": started.run_id, "run_dir": str(started.run_dir), "state": "stopped",
    }  # fmt: skip
    until(lambda: start_ticks(started.pid) is None, "the stopped process is gone")
    assert [run["state"] for run in world.json("runs", state=apart)["runs"]] == ["stopped"]
    again = world.run("stop", started.run_id, state=apart)
    assert "has ended already: stopped" in again.failed(1)


def test_show_follows_a_run_that_was_left_to_its_end(world: Desk, started: Started, apart: Path) -> None:
    started.kill_the_command()
    shown = world.begin("show", started.run_id, "--json", state=apart)
    line_with(shown.stderr, "attached again")
    started.wake()
    out, err = shown.communicate(timeout=60)
    assert shown.returncode == 0, err
    assert '"blocks": 45' in out


def test_logs_of_a_run_that_was_left_are_brought_home_first(world: Desk, started: Started, apart: Path) -> None:
    started.kill_the_command()
    with (started.run_dir / "log.txt").open("a") as log:
        log.write("written since\n")
    assert world.json("logs", started.run_id, "-n", "1", state=apart)["lines"] == ["written since"]


def test_a_run_that_was_lost_is_said_and_shown_as_lost(world: Desk, started: Started, apart: Path) -> None:
    started.kill_the_command()
    os.kill(started.pid, signal.SIGKILL)
    ran = world.run("show", started.run_id, state=apart)
    assert f"{started.run_id}: lost: the process is gone from ct129" in ran.err
    assert "no block was measured; it was lost: the process is gone from ct129" in ran.failed(1)
    assert [run["state"] for run in world.json("runs", state=apart)["runs"]] == ["lost"]


async def test_a_later_console_finds_a_run_that_finished_meanwhile(
    world: Desk, started: Started, apart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started.kill_the_command()
    started.wake()
    until(lambda: (started.run_dir / "exit.json").exists(), "the end of the run")
    monkeypatch.setenv("HOME", os.fspath(world.home))
    console = Console(load_config(world.config), Store(apart))
    await console.start()
    try:
        async with asyncio.timeout(60):
            while console.state.results.current is None:
                await asyncio.sleep(0.01)
    finally:
        await console.close()
    assert console.state.results.current.name == started.run_id
    assert console.state.results.current.pooled.blocks == 45


def test_no_command_was_left_behind(world: Desk) -> None:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert [line for line in listed.splitlines() if f"--state {world.root}" in line] == []


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.lstat().st_size
    return total
