"""What goes wrong is one sentence on stderr that says what to do, nothing on stdout, and an exit code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Desk
from tests.workstation import line_with

ONLINE = (("status",), ("checkpoints",), ("fetch",), ("eval",), ("logs",))


@pytest.fixture
def stranger(world: Desk, tmp_path: Path) -> Desk:
    """The same user at a new workstation: the same aliases and identities, no host known yet."""
    home = tmp_path / "home"
    shutil.copytree(world.home, home)
    (home / ".ssh" / "known_hosts").write_text("")
    return replace(world, home=home)


@pytest.fixture
def stopped(world: Desk) -> Iterator[Desk]:
    """The training's container is stopped."""
    state = world.container.with_name("rootfs.state")
    state.write_text("stopped")
    yield world
    state.write_text("running")


@pytest.mark.parametrize("command", ONLINE, ids=lambda argv: argv[0])
def test_an_unreachable_host_is_one_sentence(world: Desk, apart: Path, command: tuple[str, ...]) -> None:
    config = world.other_config("closed.toml", hosts__pve1={"ssh": "root@127.0.0.1:1"}, baseline={})
    sentence = world.run("--config", config, *command, "--json", state=apart).failed(1)
    assert re.fullmatch(r"dflash-tui: pve1 \(127\.0\.0\.1:1\): no connection: .*", sentence)


def test_an_unknown_host_key_is_refused_with_its_fingerprint_and_what_to_do(stranger: Desk, apart: Path) -> None:
    sentence = stranger.run("status", "--json", state=apart).failed(1)
    listed = subprocess.run(["ssh-keygen", "-lf", stranger.pve.folder / "host_key.pub"], capture_output=True, text=True)
    fingerprint = listed.stdout.split()[1]
    assert fingerprint.startswith("SHA256:")
    assert fingerprint in sentence
    assert "not in known_hosts" in sentence
    assert f"run `dflash-tui trust pve1 --fingerprint {fingerprint}`" in sentence


def test_a_changed_host_key_is_refused(stranger: Desk, apart: Path) -> None:
    other = f"[127.0.0.1]:{stranger.pve.port} {stranger.ct129.host_key}\n"
    (stranger.home / ".ssh" / "known_hosts").write_text(other)
    assert "the host's key has CHANGED" in stranger.run("status", state=apart).failed(1)


def test_a_key_that_the_host_does_not_accept_is_said(stranger: Desk, apart: Path) -> None:
    ssh = stranger.home / ".ssh"
    shutil.copyfile(stranger.ct129.folder / "client_key", ssh / "id_pve1")
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{stranger.pve.port} {stranger.pve.host_key}\n")
    assert "the login was refused" in stranger.run("status", state=apart).failed(1)


def test_a_stopped_container_is_said_with_the_command_that_starts_it(stopped: Desk) -> None:
    assert "is stopped; start it with `pct start 200` on pve1" in stopped.run("status", "--json").failed(1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"evaluation": {"blok_size": 3}}, "evaluation.blok_size: unknown key; did you mean 'block_size'?"),
        ({"evaluation": {"block_size": "16"}}, "evaluation.block_size: found '16', expected a whole number"),
        ({"evaluation": {"root": "eval"}}, "evaluation.root: found 'eval', expected an absolute path on its host"),
        ({"training": {"host": "ct300"}}, "training.host: found 'ct300', which no [hosts.ct300] describes"),
        ({"training": {}}, "[training] is missing; the README shows a whole config"),
        ({"hosts__ct200": {"via": ""}}, "hosts.ct200: `container` and `via` go together"),
    ],
    ids=["unknown key", "wrong type", "relative path", "unknown host", "missing table", "half a container"],
)
def test_a_mistake_in_the_config_is_exit_2_and_names_the_key(
    world: Desk, changes: dict[str, dict[str, Any]], said: str
) -> None:
    config = world.other_config("mistaken.toml", **changes)
    sentence = world.run("--config", config, "status", "--json").failed(2)
    assert sentence.startswith(f"dflash-tui: {config}: ")
    assert said in sentence


def test_a_missing_config_is_exit_2_and_says_how_to_begin(world: Desk) -> None:
    sentence = world.run("--config", world.root / "no-such.toml", "status").failed(2)
    assert "no-such.toml: no such file" in sentence
    assert "dflash-tui init" in sentence
    assert "dflash-tui demo" in sentence


@pytest.mark.parametrize(
    "argv",
    [
        ("bogus",),
        ("eval", "--preset", "huge"),
        ("eval", "--block-size", "1"),
        ("show",),
        ("compare", "a"),
        ("status", "x"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2(world: Desk, argv: tuple[str, ...]) -> None:
    assert "error:" in world.run(*argv).failed(2)


def test_without_a_terminal_the_app_refuses_and_names_the_headless_command(world: Desk) -> None:
    assert "dflash-tui status" in world.run().failed(2)


def test_a_step_that_was_not_saved_is_said_with_those_that_were(world: Desk) -> None:
    assert world.run("fetch", "--step", "77", "--json").failed(1).endswith("no checkpoint of step 77; complete: 4000")


def test_a_step_that_is_cut_short_is_said_as_what_it_is(world: Desk, spoiled: Path) -> None:
    whole = world.save(10, "cut")
    half = world.save(20, "cut")
    half.write_bytes(half.read_bytes()[:-5000])
    bare = whole.parent.parent / "best"
    bare.mkdir()
    (bare / "checkpoint.pt").write_bytes(whole.read_bytes())
    config = world.other_config("cut.toml", training={"checkpoints": "/data/cut/checkpoints"})
    said = world.run("fetch", "--step", "20", "--json", "--config", config).failed(1)
    assert "step_20: step 20 is there but " in said.replace("/checkpoint.pt", "")
    assert "None" not in said
    assert said.endswith("complete: best, 10")
    assert (
        world.run("fetch", "--step", "30", "--json", "--config", config)
        .failed(1)
        .endswith("no checkpoint of step 30; complete: best, 10")
    )


@pytest.mark.parametrize(
    "argv", [("show", "nope"), ("pin", "nope"), ("compare", "nope", "nope"), ("report", "nope")], ids=" ".join
)
def test_a_result_that_is_not_there_is_said_with_those_that_are(world: Desk, quick: Any, argv: tuple[str, ...]) -> None:
    sentence = world.run(*argv, "--json").failed(1)
    assert "'nope' is no run, pin or file" in sentence
    assert quick["result"]["run_id"] in sentence


def test_a_file_that_is_no_result_is_said(world: Desk, apart: Path) -> None:
    assert str(world.config) in world.run("import", world.config, "--json", state=apart).failed(1)
    assert "can't be read" in world.run("import", world.root / "nowhere.json", state=apart).failed(1)


def test_config_and_state_may_be_said_after_the_command(world: Desk, apart: Path) -> None:
    config = world.other_config("after.toml", training={"name": "after"})
    for words in (("config", "show", "--config", config), ("--config", config, "config", "show")):
        assert world.json(*words)["config"]["training"]["name"] == "after"
    assert world.json("runs", "--state", apart)["runs"] == []


def test_a_refused_evaluation_leaves_no_run_directory_and_moves_nothing(world: Desk, apart: Path) -> None:
    world.save(10, "refused")
    config = world.other_config(
        "refused.toml",
        training={"checkpoints": "/data/refused/checkpoints"},
        evaluation={"target": "/nowhere", "hidden_states": "/neither"},
    )
    before = world.run_dirs()
    sentence = world.run("--config", config, "eval", "--json", state=apart).failed(1)
    assert "/nowhere" in sentence
    assert "/neither" in sentence
    assert world.run_dirs() == before
    assert not (world.evaluations / "checkpoints" / "refused").exists()


def test_settings_that_nothing_says_cost_no_transfer_and_name_the_config_that_is_meant(
    world: Desk, apart: Path
) -> None:
    world.save(10, "untold")
    config = world.other_config("two.toml", training={"checkpoints": "/data/untold/checkpoints"}, drafter={})
    sentence = world.run("--config", config, "eval", "--json", state=apart).failed(1)
    assert "nothing says its taps, mask_token_id" in sentence
    assert f"under [drafter] in {config}" in sentence
    assert "config.toml" not in sentence
    assert not (world.evaluations / "checkpoints" / "untold").exists()


def test_what_a_host_says_can_not_move_the_cursor(world: Desk, apart: Path) -> None:
    python = world.root / "lab" / "python"
    python.write_text("#!/bin/sh\nprintf 'boom \\033]0;evil\\007\\n' >&2; exit 3\n")
    python.chmod(0o755)
    config = world.other_config("hostile.toml", evaluation={"python": str(python)})
    ran = world.run("--config", config, "eval", state=apart)
    assert ran.failed(1).endswith(r"boom \x1b]0;evil\x07")
    assert "\x1b" not in ran.err


def test_a_reader_that_goes_away_is_no_traceback(world: Desk) -> None:
    command = world.begin("keys", "--json")
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.close()
    assert command.wait(timeout=60) == 1
    assert command.stderr.read() == ""


def test_a_reader_that_goes_away_before_a_run_begins_leaves_none_that_never_begins(world: Desk, apart: Path) -> None:
    before = world.run_dirs()
    command = world.begin("eval", "--block-size", "4", "--json", state=apart)
    line_with(command.stderr, "block size 4")  # the plan: the run is made next
    assert command.stderr is not None
    command.stderr.close()
    assert command.wait(timeout=60) == 1
    for run_id in world.run_dirs() - before:
        assert (world.evaluations / "runs" / run_id / "process.json").exists()
    assert {run["run_id"] for run in world.json("runs", state=apart)["runs"]} == world.run_dirs() - before
    for run_id in world.run_dirs() - before:
        world.run("show", run_id, state=apart)  # it is waited for


def test_a_full_disk_under_stdout_is_one_sentence(world: Desk) -> None:
    ran = _in_shell(world, '"$@" >/dev/full')
    assert (ran.returncode, ran.stderr) == (1, "dflash-tui: standard output: No space left on device\n")


@pytest.mark.parametrize("closed", ["2>&-", "2>&- <&-"])
def test_a_closed_stderr_leaves_stdout_to_the_answer(world: Desk, closed: str) -> None:
    ran = _in_shell(world, f'"$@" {closed}', "check", "--json")
    assert json.loads(ran.stdout)["failed"] == 0


def _in_shell(world: Desk, line: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = world.command(*(argv or ("config", "show")))
    return subprocess.run(
        ["sh", "-c", line, "sh", *command],
        capture_output=True,
        text=True,
        cwd=world.home,
        env=world.environment(),
        check=False,
    )


def test_a_python_that_is_not_there_is_said_with_the_key_to_set(world: Desk, apart: Path) -> None:
    config = world.other_config("python.toml", evaluation={"python": "/nonexistent/python3"})
    assert "set evaluation.python to a Python" in world.run("--config", config, "eval", state=apart).failed(1)
