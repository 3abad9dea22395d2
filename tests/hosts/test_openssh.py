"""What a host tells this machine's own `ssh`: it runs what the host would run, asks nothing, adds nothing."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.asking import Asker, AskingHost
from dflash_tui.hosts.base import Host, HostError, JumpOnly
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.gate import GateHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.openssh import environment, login_target, ssh_login
from dflash_tui.hosts.programs import answer, started
from dflash_tui.hosts.shell import ShellHost
from dflash_tui.hosts.ssh import SshHost
from tests.hosts.test_jump import Gate
from tests.launchers.boxes import running_box
from tests.pct import Pct
from tests.sshd import Sshd, processes_with, running_sshd

WORDS = ["a b", "$HOME", "*", "'", '"', "\\", ";", "ü", "", "\n", "!", "%h"]


@pytest.fixture(params=["local", "ssh", "pct", "docker", "pct here"])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Host]:
    with ExitStack() as stack:
        below: Host = LocalHost("pve")
        if request.param not in ("local", "pct here"):
            (tmp_path / "sshd").mkdir()
            below = SshHost("pve", stack.enter_context(running_sshd(tmp_path / "sshd")).address)
        (tmp_path / "box").mkdir()
        if request.param.startswith("pct"):
            yield ContainerHost(below, Pct(tmp_path / "box").prefix(), "ct200")
        elif request.param == "docker":
            box = stack.enter_context(running_box(tmp_path / "box", "docker"))
            yield ContainerHost(below, box.prefix(), "train")
        else:
            yield below
        await below.close()


def ran(command: list[str] | None, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run by this machine's programs, with no terminal."""
    assert command is not None
    return subprocess.run(
        command, input=stdin, capture_output=True, env=environment(), start_new_session=True, timeout=60, check=False
    )


async def test_runs_argv_as_the_host_would(host: Host) -> None:
    argv = ["sh", "-c", 'for word do printf "%s|" "$word"; done; pwd >&2; exit 7', "sh", *WORDS]
    done = ran(host.system_command(argv))
    asked = await host.run(argv, check=False)
    assert done.stdout.decode() == "".join(f"{word}|" for word in WORDS)
    assert (done.returncode, done.stdout) == (7, asked.stdout)


async def test_bytes_pass_both_ways_untouched(host: Host) -> None:
    data = bytes(range(256)) * 8192
    done = ran(host.system_command(["cat"], stdin=True), data)
    assert (done.returncode, done.stdout) == (0, data)


async def test_hosts_around_others_say_what_those_say(host: Host) -> None:
    async def never(offer: object) -> bool:
        raise AssertionError(offer)

    for around in (AskingHost(host, Asker(never)), ShellHost(host)):
        assert around.system_command(["true"], stdin=True) == host.system_command(["true"], stdin=True)
        assert around.ssh_address() == host.ssh_address()


async def test_another_login_may_lead_there(host: Host) -> None:
    command = host.system_command(["echo", "a b"], login=["sh", "-c", 'eval "$1"', "login"])
    done = ran(command)
    assert (done.returncode, done.stdout) == (0, b"a b\n")


def test_no_login_shell_finds_anything_to_dispute_in_a_command() -> None:
    command = SshHost("ct129", PLAIN).system_command(["sh", "-c", "if true\nthen echo 'a!\\b'\nfi", "sh", *WORDS])
    assert command is not None
    # csh ends a quoted text at a newline and looks for history at "!"; fish takes \\\\ and \\' for one character.
    assert not set(command[-1]) & set("\n!")
    assert "\\\\" not in command[-1]
    assert "\\'" not in command[-1]
    assert command[:-1] == ssh_login(PLAIN)


def test_a_gate_is_no_place_for_commands() -> None:
    with pytest.raises(JumpOnly, match="JUMP_ONLY"):
        GateHost("hop1").system_command(["true"])


def test_an_unknown_key_is_refused_without_a_question_and_never_added(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").write_text("")
    done = ran(SshHost("ct129", sshd.address).system_command(["echo", "in"]))
    assert (done.returncode, done.stdout) == (255, b"")
    assert b"key verification failed" in done.stderr
    assert (sshd.folder / "known_hosts").read_text() == ""


def test_whom_nobody_lets_in_is_not_asked_for_a_password(sshd: Sshd) -> None:
    (sshd.folder / "authorized_keys").write_text("")
    began = time.monotonic()
    done = ran(SshHost("ct129", sshd.address).system_command(["echo", "in"]))
    assert (done.returncode, done.stdout) == (255, b"")
    assert b"Permission denied" in done.stderr
    assert time.monotonic() - began < 20


@pytest.fixture
def alias(sshd: Sshd, tmp_path: Path) -> SshAddress:
    """A host as a configuration file of one's own names it, with a master connection that would be kept."""
    config = tmp_path / "config"
    config.write_text(
        f"Host ct129\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {sshd.folder}/client_key\n  UserKnownHostsFile {sshd.folder}/known_hosts\n"
        f"  ControlMaster auto\n  ControlPath {tmp_path}/master\n  ControlPersist 60\n  RemoteCommand echo another\n"
        "  StdinNull yes\n  ForkAfterAuthentication yes\n  SessionType none\n"
        f"  PermitLocalCommand yes\n  LocalCommand touch {tmp_path}/local\n"
        "  IgnoreUnknown UseKeychain\n  UseKeychain yes\n"
        "  RequestTTY force\n  ForwardAgent yes\n  LocalForward 127.0.0.1:1 127.0.0.1:2\n"
    )
    return SshAddress("ct129", config=(str(config),), agent=False)


def test_a_configuration_is_heeded_and_its_master_left_alone(alias: SshAddress, tmp_path: Path) -> None:
    done = ran(SshHost("ct129", alias).system_command(["sh", "-c", "cat; echo one"]), b"sent\n")
    assert (done.returncode, done.stdout) == (0, b"sent\none\n")
    assert not (tmp_path / "master").exists()
    assert not (tmp_path / "local").exists()
    assert processes_with(f"ControlPath {tmp_path}") == []


async def test_a_configuration_tells_where_others_may_log_in(alias: SshAddress, sshd: Sshd) -> None:
    assert await login_target(alias) == f"{getpass.getuser()}@127.0.0.1:{sshd.port}"
    assert await login_target(SshAddress("::1", port=22, username="eva", config=None)) == "eva@[::1]:22"


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[tuple[Gate, Gate]]:
    with ExitStack() as stack:
        made = (Gate(tmp_path / "gate"), Gate(tmp_path / "second"))
        for gate in made:
            stack.callback(gate.stop)
            gate.start()
        yield made


def test_gates_see_forwarded_tcp_and_nothing_else(gates: tuple[Gate, Gate], sshd: Sshd, tmp_path: Path) -> None:
    outer, inner = gates
    (tmp_path / "outer one").mkdir()
    spoken = replace(outer.address, known_hosts=_moved(outer, tmp_path, "known_hosts"),
                     client_keys=[_moved(outer, tmp_path, "client_key")])  # fmt: skip
    address = replace(sshd.address, jump=replace(inner.address, jump=spoken))
    done = ran(SshHost("ct129", address).system_command(["sh", "-c", "echo 'a  %% b'; exit 3"]))
    assert (done.returncode, done.stdout) == (3, b"a  %% b\n"), done.stderr
    assert outer.asked == inner.asked == {"direct-tcpip"}


def _moved(gate: Gate, tmp_path: Path, name: str) -> str:
    """A file of a gate's under a path that ssh takes as it is."""
    path = tmp_path / "outer one" / name
    path.write_bytes((gate.folder / name).read_bytes())
    path.chmod(0o600)
    return str(path)


def test_a_gate_with_an_unknown_key_is_not_passed(gates: tuple[Gate, Gate], sshd: Sshd) -> None:
    inner = gates[1]
    (inner.folder / "known_hosts").write_text("")
    done = ran(SshHost("ct129", replace(sshd.address, jump=inner.address)).system_command(["true"]))
    assert done.returncode == 255
    assert (inner.folder / "known_hosts").read_text() == ""


PLAIN = SshAddress("ct129", config=None, client_keys=["/k"], known_hosts="/n")


@pytest.mark.parametrize(
    "address",
    [
        replace(PLAIN, client_keys=[object()]),
        replace(PLAIN, known_hosts=([], [], [])),
        replace(PLAIN, known_hosts=[]),
        replace(PLAIN, config=("/a", "/b")),
        replace(PLAIN, client_keys=["/with%h"]),
        replace(PLAIN, known_hosts='/with"quote'),
        replace(PLAIN, jump=replace(PLAIN, client_keys=[object()])),
    ],
)
def test_what_can_t_be_said_in_words_is_not_said(address: SshAddress) -> None:
    assert ssh_login(PLAIN) is not None
    assert ssh_login(address) is None
    assert SshHost("ct129", address).system_command(["true"]) is None
    assert ContainerHost(SshHost("pve", address), ["pct", "exec", "200", "--"], "ct").system_command(["true"]) is None


def test_a_home_that_ssh_does_not_look_in_is_not_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ssh_login(SshAddress("ct129")) is None  # ~/.ssh/config would be another file for it
    assert ssh_login(replace(PLAIN, client_keys=None)) is None
    assert ssh_login(PLAIN) is not None


def test_without_an_ssh_program_there_is_no_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert SshHost("ct129", PLAIN).system_command(["true"]) is None


async def test_a_program_that_is_left_ends_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 1000.{os.getpid()} & sleep 1000.{os.getpid()}"
    async with started(["sh", "-c", script], stdout=subprocess.DEVNULL) as program:
        while len(processes_with(f"sleep\0001000.{os.getpid()}")) < 2:
            assert Path(f"/proc/{program.pid}").exists()
    assert (await program.wait()).status == 128 + 9
    while processes_with(f"sleep\0001000.{os.getpid()}"):
        pass


async def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    began = time.monotonic()
    with pytest.raises(HostError, match="did not answer"):
        await answer(["sleep", f"500.{os.getpid()}"], timeout=0.2)
    assert time.monotonic() - began < 10
    assert processes_with(f"sleep\000500.{os.getpid()}") == []
    with pytest.raises(HostError, match="can't start"):
        await answer(["/nowhere/ssh"], timeout=5)


async def test_an_answer_without_end_is_no_answer() -> None:
    with pytest.raises(HostError, match="did not answer"):
        await answer(["sh", "-c", f"exec cat /dev/zero {os.getpid()}"], timeout=0.5)
    assert processes_with(f"/dev/zero\0{os.getpid()}") == []


async def test_no_terminal_is_near_a_program() -> None:
    done = await answer(["sh", "-c", "cat; (: </dev/tty) 2>/dev/null || echo none"], timeout=20)
    assert done.text == "none\n"


def test_a_dead_port_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = replace(PLAIN, host="127.0.0.1", port=taken.getsockname()[1])
        done = ran(SshHost("ct129", address).system_command(["true"]))
    assert done.returncode == 255
    assert b"Connection refused" in done.stderr
