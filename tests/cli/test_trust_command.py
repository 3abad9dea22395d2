"""An unknown host key on the command line: asked once on a terminal, added by its fingerprint without one."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.world import Desk
from tests.workstation import SECONDS


@pytest.fixture
def stranger(world: Desk, tmp_path: Path) -> Desk:
    """The same user at a new workstation: the same aliases and identities, no host known yet."""
    home = tmp_path / "home"
    shutil.copytree(world.home, home)
    (home / ".ssh" / "known_hosts").unlink()
    return replace(world, home=home)


def _known(desk: Desk) -> str:
    path = desk.home / ".ssh" / "known_hosts"
    return path.read_text() if path.exists() else ""


def _fingerprint(folder: Path) -> str:
    listed = subprocess.run(["ssh-keygen", "-lf", folder / "host_key.pub"], capture_output=True, text=True, check=True)
    return listed.stdout.split()[1]


def _typed(desk: Desk, argv: tuple[str, ...], answer: Callable[[str], bytes]) -> tuple[int, str, str]:
    """Run a command whose stdin and stderr are a terminal, answering each question; status, stdout, what was shown."""
    master, terminal = pty.openpty()
    command = subprocess.Popen(
        desk.command(*argv), stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, cwd=desk.home,
        env=desk.environment(), text=True, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    shown, answered = "", 0
    try:
        while data := os.read(master, 4096):
            shown += data.decode()
            if shown.count("[y/N") > answered:
                answered += 1
                os.write(master, answer(shown))
    except OSError:  # the other side is closed
        pass
    out = command.stdout.read() if command.stdout else ""
    code = command.wait(timeout=SECONDS)
    os.close(master)
    return code, out, shown


def test_on_a_terminal_a_command_asks_once_and_goes_on(stranger: Desk, apart: Path) -> None:
    code, out, shown = _typed(stranger, ("--state", str(apart), "status", "--json"), lambda _: b"y\n")
    assert code == 0, shown
    assert '"step": 5329' in out
    assert shown.count("[y/N") == 1
    assert _fingerprint(stranger.pve.folder) in shown
    assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in shown
    assert _known(stranger) == f"[127.0.0.1]:{stranger.pve.port} {stranger.pve.host_key}\n"
    assert stranger.run("status", "--json", state=apart).code == 0


def test_check_asks_for_each_host_one_after_the_other(stranger: Desk, apart: Path) -> None:
    code, out, shown = _typed(stranger, ("--state", str(apart), "check"), lambda _: b"y\n")
    assert code == 0, out
    assert shown.count("[y/N") == 2
    for line in shown.splitlines():
        assert "[y/N" not in line or line.rstrip().endswith(("fingerprint]", "fingerprint] y"))
    assert "✓ pve1: " in out
    assert "✓ ct129: " in out


def test_the_typed_fingerprint_says_yes_too_and_another_one_says_no(stranger: Desk) -> None:
    code, _, _ = _typed(stranger, ("trust", "ct129"), lambda _: b"SHA256:somethingelse\n")
    assert code == 1
    assert _known(stranger) == ""
    typed = f"{_fingerprint(stranger.ct129.folder)}\n".encode()
    code, out, _ = _typed(stranger, ("trust", "ct129"), lambda _: typed)
    assert code == 0
    assert "added to" in out
    assert stranger.ct129.host_key in _known(stranger)


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"\x04"], ids=["no", "return", "end of input"])
def test_anything_but_yes_ends_with_the_sentence(stranger: Desk, apart: Path, answer: bytes) -> None:
    code, out, shown = _typed(stranger, ("--state", str(apart), "status"), lambda _: answer)
    assert (code, out) == (1, "")
    assert "run `dflash-tui trust pve1 --fingerprint " in shown.replace("\r\n", "")
    assert _known(stranger) == ""


def test_an_interrupted_question_is_exit_130_at_once(stranger: Desk, apart: Path) -> None:
    master, terminal = pty.openpty()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # the terminal must be the controlling one for its interrupt key to mean anything
        os.setsid()
        for number in (0, 2):
            os.dup2(terminal, number)
        os.dup2(write, 1)
        import fcntl
        import signal
        import termios

        signal.signal(signal.SIGINT, signal.default_int_handler)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        words = stranger.command("--state", apart, "status")
        os.execve(words[0], words, stranger.environment())
    os.close(terminal)
    os.close(write)
    shown = b""
    while b"[y/N" not in shown:
        shown += os.read(master, 4096)
    os.write(master, b"\x03")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(master)
    os.close(read)
    assert status == 130
    assert _known(stranger) == ""


def test_without_a_terminal_the_sentence_s_own_command_adds_the_key(stranger: Desk, apart: Path) -> None:
    sentence = stranger.run("status", state=apart).failed(1)
    command = sentence.partition("run `dflash-tui ")[2].partition("`")[0].split()
    added = stranger.json(*command)
    assert added["host"] == "pve1"
    assert [key["entry"] for key in added["added"]] == [f"[127.0.0.1]:{stranger.pve.port}"]
    assert added["problem"] == ""
    assert stranger.run("status", state=apart).code == 0
    assert stranger.json(*command)["added"] == []


def test_another_fingerprint_adds_nothing(stranger: Desk) -> None:
    other = _fingerprint(stranger.ct129.folder)
    sentence = stranger.run("trust", "pve1", "--fingerprint", other).failed(1)
    assert _fingerprint(stranger.pve.folder) in sentence
    assert _known(stranger) == ""
    assert "expected SHA256: and 43 letters" in stranger.run("trust", "pve1", "--fingerprint", "yes").failed(1)


def test_a_container_s_way_leads_over_the_host_that_it_runs_on(stranger: Desk, apart: Path) -> None:
    added = stranger.json("trust", "ct200", "--fingerprint", _fingerprint(stranger.pve.folder))
    assert [key["entry"] for key in added["added"]] == [f"[127.0.0.1]:{stranger.pve.port}"]
    assert stranger.run("status", state=apart).code == 0


def test_a_jump_and_the_host_behind_it_can_be_trusted_together(stranger: Desk) -> None:
    ssh = stranger.home / ".ssh" / "config"
    ssh.write_text(ssh.read_text().replace("Host ct129\n", "Host ct129\n  ProxyJump pve1\n"))
    keys = [_fingerprint(server.folder) for server in (stranger.pve, stranger.ct129)]
    jump = stranger.run("trust", "ct129").failed(1)
    assert "the key of pve1, which is on the way, is not in known_hosts" in jump
    assert "_key.pub` on pve1 has printed the same" in jump
    only_the_jump = stranger.run("trust", "ct129", "--fingerprint", keys[0]).failed(1)
    assert keys[1] in only_the_jump
    added = stranger.json("trust", "ct129", "--fingerprint", keys[0], "--fingerprint", keys[1])
    assert [key["host"] for key in added["added"]] == ["ct129"]
    assert stranger.pve.host_key in _known(stranger)


def test_a_changed_key_is_a_stop_even_with_its_fingerprint(stranger: Desk) -> None:
    other = f"[127.0.0.1]:{stranger.pve.port} {stranger.ct129.host_key}\n"
    (stranger.home / ".ssh" / "known_hosts").write_text(other)
    sentence = stranger.run("trust", "pve1", "--fingerprint", _fingerprint(stranger.pve.folder)).failed(1)
    assert "CHANGED" in sentence
    assert "ssh-keygen -R" in sentence
    code, _, shown = _typed(stranger, ("trust", "pve1"), lambda _: b"y\n")
    assert code == 1
    assert "[y/N" not in shown
    assert _known(stranger) == other


def test_trust_says_that_the_login_is_another_matter(stranger: Desk) -> None:
    shutil.copyfile(stranger.ct129.folder / "client_key", stranger.home / ".ssh" / "id_pve1")
    added = stranger.json("trust", "pve1", "--fingerprint", _fingerprint(stranger.pve.folder))
    assert len(added["added"]) == 1
    assert "the login was refused" in added["problem"]


def test_a_host_that_the_config_does_not_name_is_said_with_those_that_it_does(stranger: Desk) -> None:
    assert stranger.run("trust", "pve9").failed(1).endswith("known: pve1, ct200, ct129")
