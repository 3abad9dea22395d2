"""Parts of a check that need no other host: paths that are nearly right, this workstation, a set-up on one machine."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.config import parse_config
from dflash_tui.console.acts.check import check
from dflash_tui.console.answers import CheckItem
from dflash_tui.console.checks import root, workstation
from dflash_tui.console.checks.paths import other_kind, where
from dflash_tui.hosts.local import LocalHost
from dflash_tui.results.store import Store
from tests.sshd import need

WATCHING = '[training]\nhost = "{host}"\nlog = "{data}/train.log"\ncheckpoints = "{data}/checkpoints"\n'


def _quiet(sentence: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("data/slamed/train.log", "did you mean {folder}/data/slammed/train.log?"),
        ("data/slammed/trian.log", "did you mean {folder}/data/slammed/train.log?"),
        ("dta/other", "did you mean {folder}/data?"),
        ("data/slammed/zzz", "{folder}/data/slammed has args.json, train.log"),
        ("empty/x", "{folder}/empty is empty"),
        ("data/slammed/args.json", "it has come meanwhile: try again"),
        ("latest", "{folder}/latest is a link that leads nowhere"),
        ("latest/train.log", "{folder}/latest is a link that leads nowhere"),
    ],
)
async def test_a_missing_path_names_the_nearest_that_is_there(tmp_path: Path, wanted: str, said: str) -> None:
    (tmp_path / "data" / "slammed").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "latest").symlink_to("gone")
    for name in ("train.log", "args.json"):
        (tmp_path / "data" / "slammed" / name).write_text("x")
    sentence = await where(LocalHost(), f"{tmp_path}/{wanted}", "a log (training.log)")
    begin = f"local:{tmp_path}/{wanted} does not exist; expected a log (training.log); "
    assert sentence == begin + said.format(folder=tmp_path)


def test_what_is_no_file_is_called_what_it_is() -> None:
    said = [other_kind(LocalHost(), "/x", kind, "a log") for kind in ("folder", "other")]
    assert said == ["local:/x is a folder, expected a log", "local:/x is neither a file nor a folder, expected a log"]


async def test_a_state_folder_of_an_impossible_name_is_no_traceback(tmp_path: Path) -> None:
    assert (await _workstation(tmp_path / ("x" * 300)))["state"].state in ("ok", "fail")


async def _workstation(state: Path) -> dict[str, CheckItem]:
    config = parse_config(WATCHING.format(host="lab", data="/data") + "[hosts.lab]\n", "config.toml")
    return {item.name: item for item in await workstation.look(config, Store(state))}


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A running SSH agent without keys."""
    need(shutil.which("ssh-agent") is not None, "openssh-client")
    path = tmp_path / "agent"
    child = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", os.fspath(path))
    while not path.exists():
        assert child.poll() is None
    yield path
    child.terminate()
    child.wait()


async def test_an_agent_s_keys_are_counted(agent: Path, tmp_path: Path) -> None:
    found = (await _workstation(tmp_path / "state"))["ssh agent"]
    assert (found.state, found.sentence) == ("warn", f"the agent at {agent} holds no keys; add one with ssh-add")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    subprocess.run(["ssh-add", "-q", tmp_path / "key"], check=True)
    found = (await _workstation(tmp_path / "state"))["ssh agent"]
    assert (found.state, found.sentence) == ("ok", f"the agent at {agent} holds 1 key")


async def test_an_agent_that_is_gone_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", os.fspath(tmp_path / "gone"))
    found = (await _workstation(tmp_path / "state"))["ssh agent"]
    assert found.state == "warn"
    assert "does not answer" in found.sentence
    assert "unset SSH_AUTH_SOCK" in found.sentence


@pytest.mark.parametrize(
    ("environment", "size", "state", "said"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, (40, 120), "ok", "true colour, 120 × 40"),
        ({"TERM": "xterm-256color"}, (40, 120), "ok", "256 colours"),
        ({"TERM": "dumb"}, (40, 120), "warn", "TERM is dumb"),
        ({"TERM": "xterm"}, (10, 40), "warn", "40 × 10 is small"),
        ({"TERM": "xterm", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, (40, 120), "warn", "UTF-8"),
    ],
)
def test_a_terminal_says_what_it_can(environment: dict[str, str], size: tuple[int, int], state: str, said: str) -> None:
    master, terminal = pty.openpty()
    code = (
        "from dflash_tui.console.checks.workstation import _terminal\n"
        "for item in _terminal(): print(ascii((item.state, item.sentence)))"
    )
    import fcntl
    import struct
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in ("COLORTERM", "LC_ALL", "PYTHONUTF8")}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=terminal, text=True, check=True,
        env={**clean, "LANG": "C.UTF-8", **environment},
    )  # fmt: skip
    os.close(terminal)
    os.close(master)
    assert f"'{state}'" in done.stdout
    assert ascii(said)[1:-1] in done.stdout


def test_the_mount_that_holds_a_path_is_the_longest_and_the_last() -> None:
    lines = [
        "/dev/root / ext4 rw 0 0",
        "tmpfs /srv tmpfs rw,noexec 0 0",
        "nas:/x /srv/my\\040data nfs rw,usrquota 0 0",
        "overlay /srv overlay ro 0 0",
    ]
    assert root._mount(lines, "/srv/my data/eval") == ("nfs", "rw,usrquota")
    assert root._mount(lines, "/srv/other") == ("overlay", "ro")
    assert root._mount(lines, "/srvx") == ("ext4", "rw")
    assert root._mount([], "/srv") is None


@given(st.lists(st.text()), st.text())
def test_no_mount_table_is_a_surprise(lines: list[str], place: str) -> None:
    root._mount(lines, place)


async def test_everything_on_this_machine_needs_no_hosts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "checkpoints").mkdir(parents=True)
    (data / "train.log").write_text("step 12/100 loss 2.0 lr 1e-4\n")
    config = tmp_path / "config.toml"
    config.write_text(WATCHING.format(host="local", data=data))
    found = await check(config, Store(tmp_path / "state"), _quiet)
    assert found.failed == 0, [item for item in found.items if item.state == "fail"]
    assert {item.group for item in found.items} == {"config", "workstation", "training"}
    (log,) = [item for item in found.items if item.name == "log"]
    assert f"local:{data}/train.log: step 12 of 100, read as names and values" in log.sentence
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "data"]


async def test_a_config_that_is_missing_is_an_item_too(tmp_path: Path) -> None:
    found = await check(tmp_path / "none.toml", Store(tmp_path / "state"), _quiet)
    assert [(item.group, item.state) for item in found.items][:2] == [("config", "fail"), ("workstation", "not tried")]
    assert "no such file" in found.items[0].sentence


@pytest.mark.parametrize(
    ("line", "dialect"),
    [
        ("step=12/100 loss=1.79 lr=1e-4", "names and values"),
        ("{'loss': 1.79, 'step': 12, 'epoch': 0.3}", "a dict or JSON"),
        (" 12%|█▏        | 12/100 [00:12<01:28,  1.00it/s, loss=1.79]", "a progress bar"),
    ],
)
async def test_a_log_says_how_it_is_read(tmp_path: Path, line: str, dialect: str) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "train.log").write_text(f"{line}\n")
    config = tmp_path / "config.toml"
    config.write_text(WATCHING.format(host="local", data=tmp_path))
    found = await check(config, Store(tmp_path / "state"), _quiet)
    (log,) = [item for item in found.items if item.name == "log"]
    assert f"read as {dialect}" in log.sentence
