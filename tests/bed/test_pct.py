"""The stand-in for `pct` has the words, the statuses and the traps of Proxmox's."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.pct import Pct

LOST = "Configuration file 'nodes/pve/lxc/999.conf' does not exist\n"


@pytest.fixture
def pct(tmp_path: Path) -> Pct:
    return Pct(tmp_path, lock_seconds=0.3)


def said(
    pct: Pct, *words: str | Path, stdin: bytes = b"", environment: dict[str, str] | None = None
) -> tuple[int, bytes, str]:
    """Status, stdout and stderr of `pct` with these words."""
    command = [os.fspath(word) for word in (pct.path, *words)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def test_lists_the_containers_and_prints_nothing_when_there_are_none(pct: Pct) -> None:
    status, out, _ = said(pct, "list")
    rows = [line.split() for line in out.decode().splitlines()]
    assert status == 0
    assert rows == [["VMID", "Status", "Lock", "Name"], ["200", "running", "train"], ["201", "stopped", "idle"]]
    pct.set_state("none")
    assert said(pct, "list") == (0, b"", "")


def test_tells_the_status_of_one(pct: Pct) -> None:
    assert said(pct, "status", "200") == (0, b"status: running\n", "")
    assert said(pct, "status", "201") == (0, b"status: stopped\n", "")
    assert b"status: running\ntype: lxc\nvmid: 200\n" in said(pct, "status", "200", "--verbose")[1]
    pct.set_state("stopped")
    assert said(pct, "status", "200") == (0, b"status: stopped\n", "")
    assert b"hostname: train\n" in said(pct, "config", "200")[1]


@pytest.mark.parametrize("words", [("status", "999"), ("config", "999"), ("exec", "999", "--", "true")])
def test_knows_only_this_node_s_containers(pct: Pct, words: tuple[str, ...]) -> None:
    status, out, err = said(pct, *words)
    assert status != 0
    assert (out, err) == (b"", LOST)


@pytest.mark.parametrize(
    "words", [("frobnicate", "200"), (), ("status", "abc"), ("exec", "200"), ("pull", "200", "/a")]
)
def test_refuses_what_it_does_not_understand(pct: Pct, words: tuple[str, ...]) -> None:
    status, out, err = said(pct, *words)
    assert status != 0
    assert out == b""
    assert "USAGE: pct" in err


def test_exec_hands_words_and_streams_on_without_a_shell(pct: Pct) -> None:
    data = os.urandom(200_000)
    assert said(pct, "exec", "200", "--", "cat", stdin=data) == (0, data, "")
    assert said(pct, "exec", "200", "--", "echo", "$(id)", "|", "a  b") == (0, b"$(id) | a  b\n", "")
    assert (
        said(pct, "exec", "200", "--", "cat", "/nothing")[2]
        == "cat: can't open '/nothing': No such file or directory\n"
    )
    assert not (pct.root / "bin" / "bash").exists()
    assert said(pct, "exec", "200", "--", "test", "-e", "/work")[0] == 1


def test_exec_keeps_the_environment_unless_told_otherwise(pct: Pct) -> None:
    mine = {"PATH": os.environ["PATH"], "MINE": "kept"}
    assert b"MINE=kept\n" in said(pct, "exec", "200", "--", "env", environment=mine)[1]
    assert b"MINE" not in said(pct, "exec", "200", "--keep-env", "0", "--", "env", environment=mine)[1]


def test_exec_ends_with_the_program_s_status_or_with_128_and_its_signal(pct: Pct) -> None:
    (pct.root / "data" / "plain").write_text("not a program")
    for words, status in (
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -TERM $$"), 128 + 15),
        (("sh", "-c", "kill -9 $$"), 128 + 9),
        (("nvidia-smi",), 127),
        (("/data/plain",), 126),
    ):
        assert said(pct, "exec", "200", "--", *words)[0] == status, words
    assert 'Failed to exec "nvidia-smi"' in said(pct, "exec", "200", "--", "nvidia-smi")[2]
    pct.root.rename(pct.root.with_name("gone"))
    assert said(pct, "exec", "200", "--", "true")[0] == 1  # it could not be attached to


def test_exec_and_pull_need_a_running_container(pct: Pct, tmp_path: Path) -> None:
    assert said(pct, "exec", "201", "--", "true") == (255, b"", "container '201' not running!\n")
    status, _, err = said(pct, "pull", "201", "/data/file", tmp_path / "file")
    assert status != 0
    assert err == "can only pull files from a running VM\n"
    assert not (tmp_path / "file").exists()


def test_pull_copies_a_file(pct: Pct, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (pct.root / "data" / "file").write_bytes(data)
    assert said(pct, "pull", "200", "/data/file", tmp_path / "pulled") == (0, b"", "")
    assert (tmp_path / "pulled").read_bytes() == data


def test_pull_empties_its_destination_first_and_hides_that_nothing_came(pct: Pct, tmp_path: Path) -> None:
    (tmp_path / "pulled").write_bytes(b"what was there")
    status, _, err = said(pct, "pull", "200", "/data/nothing", tmp_path / "pulled")
    assert status == 0
    assert "No such file or directory" in err
    assert (tmp_path / "pulled").read_bytes() == b""


def test_pull_leaves_a_short_file_on_a_full_disk_and_ends_well(pct: Pct, tmp_path: Path) -> None:
    (pct.root / "data" / "file").write_bytes(bytes(1 << 20))
    small = tmp_path / "small"
    small.mkdir()
    script = (
        f"mount -t tmpfs -o size=64k none {small}; {pct.path} pull 200 /data/file {small}/f; echo $?; wc -c <{small}/f"
    )
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False)
    status, size = map(int, done.stdout.split())
    assert (status, done.stderr) == (0, "")
    assert 0 < size < 1 << 20


def test_pull_waits_for_the_config_lock_and_gives_up(pct: Pct, tmp_path: Path) -> None:
    (pct.root / "data" / "file").write_bytes(b"content")
    with pct.lock.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begun = time.monotonic()
        status, _, err = said(pct, "pull", "200", "/data/file", tmp_path / "pulled")
        assert time.monotonic() - begun >= 0.3
        assert said(pct, "exec", "200", "--", "true")[0] == 0  # which asks for no lock
    assert status != 0
    assert "got timeout" in err
    assert not (tmp_path / "pulled").exists()
    assert said(pct, "pull", "200", "/data/file", tmp_path / "pulled")[0] == 0


def test_only_root_may_use_it(pct: Pct) -> None:
    done = subprocess.run(["unshare", "--user", pct.path, "list"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (done.stdout, done.stderr) == ("", "please run as root\n")
