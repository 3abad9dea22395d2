"""`fetch`: what an evaluation reads of a checkpoint, or all of it; planned first, and shown while it moves."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.world import Desk
from tests.test_readme import documented
from tests.workstation import RAW, SECONDS


def training(world: Desk, name: str, step: int = 4000) -> Path:
    """A config of a training of its own that has saved that step."""
    world.save(step, name)
    return world.other_config(f"{name}.toml", training={"checkpoints": f"/data/{name}/checkpoints"})


def weights(path: Path) -> dict[str, torch.Tensor]:
    """The model in a file; only the trainer's own may hold classes of its arguments."""
    loaded: dict[str, torch.Tensor] = torch.load(path, weights_only=path != RAW)["model_state_dict"]
    return loaded


def seen(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_it_brings_what_an_evaluation_reads_and_says_what_stays(world: Desk) -> None:
    config = training(world, "slimmed")
    answer: Any = world.json("--config", config, "fetch")
    folder = world.evaluations / "checkpoints" / "slimmed" / "step_4000"
    assert set(answer) == documented()["fetch"]
    assert (answer["host"], answer["folder"], answer["files"]) == ("ct129", str(folder), ["checkpoint.pt"])
    assert (answer["step"], answer["copy"], answer["already_there"]) == (4000, "slim", False)
    assert answer["source"].startswith("ct200:/data/slimmed/checkpoints/step_4000")
    assert answer["original"] == RAW.stat().st_size
    assert {item["what"] for item in answer["left"]} == {"optimizer", "frozen embed/lm_head"}
    assert answer["bytes"] == answer["size"] == sum((folder / name).stat().st_size for name in seen(folder))
    assert answer["size"] < RAW.stat().st_size / 3
    assert answer["route"] == "relay"
    assert seen(folder) == {"checkpoint.pt", "checkpoint.pt.slim.json"}
    assert answer["sha256"] == hashlib.sha256((folder / "checkpoint.pt").read_bytes()).hexdigest()
    before, after = weights(RAW), weights(folder / "checkpoint.pt")
    assert set(before) - set(after) == {"embed_tokens.weight", "lm_head.weight"}
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())
    again = world.json("--config", config, "fetch", "step_4000")
    assert (again["already_there"], again["bytes"], again["present"]) == (True, 0, answer["size"])
    assert again["folder"] == answer["folder"]


def test_full_moves_the_file_as_it_is_beside_the_slim_one(world: Desk) -> None:
    config = training(world, "whole")
    world.json("--config", config, "fetch")
    answer = world.json("--config", config, "fetch", "latest", "--full")
    folder = world.evaluations / "checkpoints" / "whole" / "step_4000-full"
    assert (answer["folder"], answer["copy"], answer["left"]) == (str(folder), "full", [])
    assert answer["bytes"] == RAW.stat().st_size
    assert answer["sha256"] == hashlib.sha256(RAW.read_bytes()).hexdigest()
    assert (folder / "checkpoint.pt").read_bytes() == RAW.read_bytes()
    assert not list(folder.parent.glob("**/*.part"))


def test_the_config_can_ask_for_full_copies_and_the_command_for_a_slim_one(world: Desk) -> None:
    world.save(4000, "mode")
    config = world.other_config(
        "mode.toml", training={"checkpoints": "/data/mode/checkpoints"}, transfer={"mode": "full"}
    )
    assert world.json("--config", config, "fetch", "--dry-run")["copy"] == "full"
    assert world.json("--config", config, "fetch", "--dry-run", "--slim")["copy"] == "slim"


def test_a_dry_run_tells_the_plan_and_moves_nothing(world: Desk) -> None:
    config = training(world, "dry")
    answer = world.json("--config", config, "fetch", "--dry-run")
    assert set(answer) == documented()["fetch"]
    assert (answer["dry_run"], answer["copy"], answer["route"], answer["sha256"]) == (True, "slim", "relay", "")
    assert answer["bytes"] == answer["size"] < answer["original"]
    assert answer["free_bytes"] > answer["size"]
    assert not (world.evaluations / "checkpoints" / "dry").exists()
    told = world.run("--config", config, "fetch", "--dry-run", "--json").err.splitlines()
    assert [json.loads(line)["event"] for line in told] == ["started", "planned"]
    said = world.run("--config", config, "fetch", "--dry-run").out
    assert "of 1.35 MB: drafter, verifier norm; optimizer, frozen embed/lm_head left" in said
    assert "route  through this machine" in said
    assert "MB free" in said or "GB" in said.split("free ")[1]
    world.json("--config", config, "fetch")
    there = world.json("--config", config, "fetch", "--dry-run")
    assert (there["already_there"], there["bytes"], there["present"]) == (True, 0, there["size"])
    assert "nothing would move" in world.run("--config", config, "fetch", "--dry-run").out


def test_with_json_progress_is_json_lines_on_stderr_and_the_answer_alone_on_stdout(world: Desk) -> None:
    config = training(world, "lines")
    ran = world.run("--config", config, "fetch", "--json")
    assert ran.data["step"] == 4000
    events = [json.loads(line) for line in ran.err.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[:2] == ["started", "planned"]
    assert kinds[-1] == "ended"
    assert "progress" in kinds
    planned = events[1]
    assert (planned["total"], planned["original"]) == (ran.data["size"], RAW.stat().st_size)
    assert {item["what"] for item in planned["left"]} == {"optimizer", "frozen embed/lm_head"}
    progress = next(event for event in events if event["event"] == "progress")
    assert {"phase", "read", "written", "total", "resumed", "rate", "eta", "route", "verified", "to_verify"} <= set(
        progress
    )
    assert events[-1]["sha256"] == ran.data["sha256"]


def test_with_json_a_failure_is_json_too_with_its_end(world: Desk) -> None:
    ran = world.run("fetch", "1234", "--json")
    assert "no checkpoint of step 1234" in ran.failed(1)
    *_, ended, error = map(json.loads, ran.err.splitlines())
    assert (ended["event"], ended["stopped"], error["event"]) == ("ended", False, "error")
    assert ended["error"] == error["sentence"]
    assert error["sentence"].startswith("no checkpoint of step 1234")
    ran = world.run("--config", world.home / "none.toml", "fetch", "--json")
    ran.failed(2)
    assert [json.loads(line)["event"] for line in ran.err.splitlines()] == ["ended", "error"]


def test_with_json_an_interrupt_is_json_too_and_says_what_is_kept(world: Desk) -> None:
    config = training(world, "interrupted")
    command = world.begin("--config", config, "fetch", "--full", "--limit", "100 kB/s", "--json")
    assert command.stderr is not None
    lines = []
    for text in command.stderr:
        lines.append(json.loads(text))
        if lines[-1]["event"] == "progress" and lines[-1]["phase"] == "moving":
            command.send_signal(signal.SIGINT)
            break
    lines += map(json.loads, command.stderr)
    assert command.wait(timeout=SECONDS) == 130, lines
    *_, ended, error = lines
    assert (ended["event"], ended["stopped"], ended["kept"]) == ("ended", True, 0)
    assert "nothing of it is kept" in ended["error"]
    assert error == {"event": "error", "sentence": "interrupted"}


def test_where_it_lies_is_told_once_and_what_describes_it_is_not_called_the_file(world: Desk) -> None:
    config = training(world, "once")
    ran = world.run("--config", config, "fetch")
    assert "step_4000" in ran.out
    assert "moved in" not in ran.err
    assert "slim.json" not in ran.err


def test_this_machine_is_no_hop_of_its_own(world: Desk, tmp_path: Path) -> None:
    config = training(world, "home")
    assert "ct200 ▸ local\n" in world.run("--config", config, "fetch", "--to", f"local:{tmp_path}/home").err


def test_a_dry_run_refuses_a_folder_that_can_t_be_made_as_the_real_one_does(world: Desk, tmp_path: Path) -> None:
    config = training(world, "refused")
    (tmp_path / "file").touch()
    for more in ((), ("--dry-run",)):
        said = world.run("--config", config, "fetch", "--to", f"ct129:{tmp_path}/file/y", *more).failed(1)
        assert f"ct129:{tmp_path}/file/y/step_4000 can't be made: {tmp_path}/file is no folder" in said
        assert "with --to" in said
    new = tmp_path / "new" / "y"
    assert world.json("--config", config, "fetch", "--to", f"ct129:{new}", "--dry-run")["folder"] == f"{new}/step_4000"
    assert not new.parent.exists()


def test_a_second_one_says_at_once_whom_it_waits_for(world: Desk) -> None:
    config = training(world, "waiting")
    folder = world.evaluations / "checkpoints" / "waiting" / "step_4000"
    slow = world.command("--config", config, "fetch", "--limit", "100 kB/s")
    first = subprocess.Popen(
        slow, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=world.home, env=world.environment()
    )
    while not (folder / ".transfer.claim").exists():
        assert first.poll() is None
        time.sleep(0.05)
    code, out, shown = on_a_terminal(world, "--config", config, "fetch")
    assert first.wait(timeout=SECONDS) == 0
    assert code == 0
    assert f"waits for process {first.pid} on " in shown
    assert "already there" in out


def test_without_a_terminal_it_is_told_in_lines(world: Desk) -> None:
    config = training(world, "narrated")
    ran = world.run("--config", config, "fetch")
    assert "of 1.35 MB: drafter, verifier norm; optimizer, frozen embed/lm_head left: ct200 ▸ here ▸ ct129" in ran.err
    assert "verifying checkpoint.pt" in ran.err
    assert "sha256 " in ran.out


def on_a_terminal(world: Desk, *argv: str | Path) -> tuple[int, str, str]:
    """A command whose stderr is a terminal of 120 cells: its status, stdout, and what was shown."""
    master, terminal = pty.openpty()
    command = subprocess.Popen(
        world.command(*argv), stdin=subprocess.DEVNULL, stderr=terminal, stdout=subprocess.PIPE, cwd=world.home,
        env={**world.environment(), "COLUMNS": "120", "TERM": "xterm-256color"}, text=True,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    try:
        while data := os.read(master, 4096):
            shown += data
    except OSError:  # the other side is closed
        pass
    out = command.stdout.read() if command.stdout else ""
    code = command.wait(timeout=SECONDS)
    os.close(master)
    return code, out, shown.decode("utf-8", "replace")


def test_on_a_terminal_each_hop_and_the_proof_have_a_bar(world: Desk) -> None:
    config = training(world, "bars")
    code, out, shown = on_a_terminal(world, "--config", config, "fetch")
    assert code == 0
    for words in ("ct200 ▸ here", "here ▸ ct129", "verify", "100 %", "━━━━"):
        assert words in shown, words
    assert "optimizer, frozen embed/lm_head left" in shown
    assert "ct129:" in out
    assert "━" not in out


def test_it_goes_to_any_host_and_what_is_not_the_target_s_there_comes_along(world: Desk, tmp_path: Path) -> None:
    training(world, "elsewhere")
    config = world.other_config("elsewhere.toml", training={"checkpoints": "/data/elsewhere/checkpoints"})
    path = "/data/elsewhere/checkpoints/step_4000/checkpoint.pt"
    answer = world.json("--config", config, "fetch", path, "--to", f"local:{tmp_path}/got")
    assert (answer["host"], answer["folder"], answer["step"]) == ("local", f"{tmp_path}/got/step_4000", 4000)
    assert [item["what"] for item in answer["left"]] == ["optimizer"]
    got = weights(tmp_path / "got" / "step_4000" / "checkpoint.pt")
    assert all(torch.equal(tensor, got[name]) for name, tensor in weights(RAW).items())
    full = world.json("--config", config, "fetch", "--full", "--to", f"pve1:{tmp_path}/pve")
    assert full["folder"] == f"{tmp_path}/pve/step_4000-full"
    assert (tmp_path / "pve" / "step_4000-full" / "checkpoint.pt").read_bytes() == RAW.read_bytes()


def test_a_checkpoint_of_no_watched_training_is_named_by_its_path(world: Desk, tmp_path: Path) -> None:
    old = tmp_path / "old" / "best"
    old.mkdir(parents=True)
    shutil.copyfile(RAW, old / "checkpoint.pt")
    answer = world.json("fetch", f"pve1:{old}")
    assert (answer["step"], answer["copy"]) == (None, "slim")
    folder = Path(answer["folder"])
    assert folder.parent == world.evaluations / "checkpoints" / "models"
    assert folder.name.startswith("best-")
    assert (folder / "checkpoint.pt").exists()


def test_on_one_host_it_is_linked_as_it_is(world: Desk) -> None:
    old = world.lab.root / "old"
    old.mkdir()
    shutil.copyfile(RAW, old / "checkpoint.pt")
    answer = world.json("fetch", f"ct129:{old}/checkpoint.pt")
    assert (answer["copy"], answer["route"], answer["bytes"], answer["left"]) == ("plain", "same host", 0, [])
    assert (Path(answer["folder"]) / "checkpoint.pt").samefile(old / "checkpoint.pt")
    shutil.rmtree(old)


def test_where_there_is_no_direct_way_it_says_so_and_what_to_do(world: Desk) -> None:
    config = training(world, "straight")
    said = world.run("--config", config, "fetch", "--route", "direct").failed(1)
    sentence = "ct200 has no ssh program, by which it would reach ct129 itself; --route relay goes through here"
    assert said.count(sentence) == 1
    assert "moving" not in said
    code, _, shown = on_a_terminal(world, "--config", config, "fetch", "--route", "direct")
    assert code == 1
    assert " ".join(shown.split()).count(sentence) == 1
    assert "▸" not in shown
    assert not list((world.evaluations / "checkpoints" / "straight").glob("**/checkpoint.pt"))
    ran = world.run("--config", config, "fetch", "--route", "auto", "--json")
    assert ran.data["route"] == "relay"
    notices = [event for event in map(json.loads, ran.err.splitlines()) if event["event"] == "notice"]
    assert any("ct200" in event["sentence"] for event in notices)


def test_a_limit_holds_it_back(world: Desk) -> None:
    config = training(world, "slow")
    answer = world.json("--config", config, "fetch", "--full", "--limit", "400 kB/s")
    size = RAW.stat().st_size
    assert size / 400_000 - 0.5 < answer["seconds"] < size / 400_000 + 3


def test_a_limit_is_one_for_all_commands_of_a_user(world: Desk, tmp_path: Path) -> None:
    config = training(world, "shared")
    argv = ("--config", config, "fetch", "--full", "--limit", "300 kB/s", "--json", "--to")
    running = [
        subprocess.Popen(
            world.command(*argv, f"local:{tmp_path}/{name}"), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
            stdout=subprocess.PIPE, cwd=world.home, env=world.environment(), text=True,
        )
        for name in ("one", "other")
    ]  # fmt: skip
    ended = [command.communicate(timeout=SECONDS) for command in running]
    assert [command.returncode for command in running] == [0, 0], [err for _, err in ended]
    answers = [json.loads(out) for out, _ in ended]
    assert max(answer["seconds"] for answer in answers) > 2 * RAW.stat().st_size / 300_000 * 0.8


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("nonsense",), "expected latest, a step such as 4000, or a path"),
        (("--limit", "200"), "expected a speed such as 200 MB/s"),
        (("--limit", "200"), "found '200' without a unit"),
        (("--limit", "0 MB/s"), "found '0 MB/s', at which nothing would move, expected a speed"),
        (("--limit", "-3MB/s"), "found '-3MB/s', which is less than nothing, expected a speed"),
        (("--to", "ct999:/x"), "no host 'ct999'"),
        (("--to", "ct129:x"), "expected an absolute one"),
        (("ct999:/x",), "no host 'ct999'"),
        (("step_x",), "expected latest, a step such as 4000, or a path"),
        (("--slim", "--full"), "not allowed with"),
        (("--route", "joined"), "invalid choice"),
        (("4000", "--step", "4000"), "not allowed with"),
    ],
)
def test_what_can_t_be_meant_is_wrong_usage(world: Desk, argv: tuple[str, ...], said: str) -> None:
    assert said in world.run("fetch", *argv).failed(2)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("/nowhere/step_1",), "/nowhere/step_1: does not exist"),
        (("77",), "no checkpoint of step 77; complete: 4000"),
    ],
)
def test_what_is_not_there_is_said(world: Desk, argv: tuple[str, ...], said: str) -> None:
    assert said in world.run("fetch", *argv).failed(1)
