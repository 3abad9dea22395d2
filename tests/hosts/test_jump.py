"""Hosts behind a gate that lends the way and nothing else."""

from __future__ import annotations

import getpass
import json
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.config import ConfigError, parse_config
from dflash_tui.console.links import make_hosts
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import HostKeyUnknown, HostUnreachable, JumpOnly, LoginRefused
from dflash_tui.hosts.gate import GateHost
from dflash_tui.hosts.probe import probe
from dflash_tui.hosts.ssh import SshHost
from tests.cases import case_root
from tests.sshd import Sshd, running_sshd

FORBIDDING = "ForceCommand /bin/false\nAllowTcpForwarding local\nAllowAgentForwarding no\nX11Forwarding no"


class Gate(Sshd):
    """A server that lets TCP through, has no SFTP, refuses sessions, and logs all that is asked of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            super().__init__(folder, probe.getsockname()[1], FORBIDDING)
        config = folder / "sshd_config"
        config.write_text(config.read_text().replace("LogLevel ERROR", "LogLevel DEBUG2"))

    @property
    def asked(self) -> set[str]:
        """The kinds of channels and requests that clients asked for."""
        log = (self.folder / "sshd.log").read_text("utf-8", "replace")
        found = {match[1] for match in re.finditer(r"server_input_channel_open: ctype (\S+)", log)}
        found |= {match[1] for match in re.finditer(r"server_input_channel_req: channel \d+ request (\S+)", log)}
        return found | {"session" for _ in re.finditer("Starting session|session_new", log)}


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[tuple[Gate, Gate]]:
    with ExitStack() as stack:
        made = (Gate(tmp_path / "gate"), Gate(tmp_path / "second"))
        for gate in made:
            stack.callback(gate.stop)
            gate.start()
        yield made


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Sshd]:
    (tmp_path / "behind").mkdir()
    with running_sshd(tmp_path / "behind") as server:
        yield server


async def used(host: SshHost, folder: Path) -> None:
    """Everything that a host can do."""
    assert (await host.run(["cat"], stdin=b"in and out")).stdout == b"in and out"
    await host.make_folder(f"{folder}/made", exclusive=True)
    await host.write(f"{folder}/made/file", bytes(range(256)))
    assert await host.read(f"{folder}/made/file", 10, 3) == b"\n\x0b\x0c"
    assert [entry.name for entry in await host.list(f"{folder}/made")] == ["file"]
    assert (await host.stat(f"{folder}/made/file")).size == 256
    assert (await host.free_space(str(folder))).bytes > 0
    async with host.stream(["sleep", "30"]):
        pass


async def test_a_gate_sees_forwarded_tcp_and_nothing_else(gates: tuple[Gate, Gate], behind: Sshd) -> None:
    host = SshHost("ct129", replace(behind.address, jump=gates[0].address))
    await used(host, behind.folder)
    await host.close()
    assert gates[0].asked == {"direct-tcpip"}


async def test_a_gate_that_is_checked_sees_no_session(gates: tuple[Gate, Gate]) -> None:
    found = await probe("gate", gates[0].address, jump_only=True)
    assert (found.user, found.sftp) == (getpass.getuser(), False)
    assert gates[0].asked == set()


async def test_the_gate_s_log_would_tell_of_a_session(gates: tuple[Gate, Gate]) -> None:
    host = SshHost("gate", gates[0].address)
    await host.run(["true"], check=False)
    await host.close()
    assert {"session", "exec"} <= gates[0].asked


async def test_gates_behind_gates(gates: tuple[Gate, Gate], behind: Sshd) -> None:
    outer, inner = gates
    address = replace(behind.address, jump=replace(inner.address, jump=outer.address))
    host = SshHost("ct129", address)
    await used(host, behind.folder)
    assert outer.asked == inner.asked == {"direct-tcpip"}
    outer.stop()
    with pytest.raises(HostUnreachable):
        await host.run(["true"], timeout=20)
    outer.start()
    assert (await host.run(["echo", "again"])).text == "again\n"
    await host.close()


async def test_a_gate_s_own_key_and_login_are_checked(gates: tuple[Gate, Gate], behind: Sshd) -> None:
    gate = gates[0]
    host = SshHost("ct129", replace(behind.address, jump=gate.address))
    (gate.folder / "known_hosts").write_text("")
    with pytest.raises(HostKeyUnknown, match="ct129"):
        await host.run(["true"])
    (gate.folder / "known_hosts").write_text(f"[127.0.0.1]:{gate.port} {gate.host_key}\n")
    (gate.folder / "authorized_keys").write_text("")
    with pytest.raises(LoginRefused, match="ct129"):
        await host.run(["true"])
    await host.close()


async def test_a_gate_takes_the_place_of_a_configured_jump(
    gates: tuple[Gate, Gate], behind: Sshd, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host ct129\n  HostName 127.0.0.1\n  Port {behind.port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {behind.folder}/client_key\n  UserKnownHostsFile {behind.folder}/known_hosts\n"
        "  ProxyJump nobody@nowhere.invalid\n"
    )
    host = SshHost("ct129", SshAddress("ct129", config=(str(config),), agent=False, jump=gates[0].address))
    assert (await host.run(["echo", "there"])).text == "there\n"
    await host.close()


@pytest.mark.parametrize(
    "attempt",
    [
        lambda host: host.run(["true"]),
        lambda host: host.read("/x", 0, 1),
        lambda host: host.stat("/x"),
        lambda host: host.list("/"),
        lambda host: host.write("/x", b"1"),
        lambda host: host.make_folder("/x"),
        lambda host: host.free_space("/"),
    ],
)
async def test_everything_on_a_gate_is_refused(attempt: Callable[[GateHost], Awaitable[object]]) -> None:
    with pytest.raises(JumpOnly, match=r"^JUMP_ONLY: hop1 is only hopped through"):
        await attempt(GateHost("hop1"))


def test_a_stream_on_a_gate_is_refused() -> None:
    with pytest.raises(JumpOnly, match="JUMP_ONLY"):
        GateHost("hop1").stream(["tail", "-f", "/x"])


CONFIG = """
[training]
host = "{training}"
log = "/log"
checkpoints = "/run/checkpoints"
[hosts.hop1]
ssh = "user@hop1.example:2222"
jump_only = true
{more}
[hosts.trainer]
ssh = "trainer.example"
jump = "hop1"
"""


def test_a_config_s_gates_become_ways_and_refuse_work() -> None:
    text = CONFIG.format(training="trainer", more='jump = "outer"\n[hosts.outer]\njump_only = true')
    hosts = make_hosts(parse_config(text, "c.toml"))
    trainer = hosts["trainer"]
    assert isinstance(trainer, SshHost)
    assert isinstance(hosts["hop1"], GateHost)
    outer = SshAddress("outer")
    assert trainer.address.jump == SshAddress("hop1.example", port=2222, username="user", jump=outer)


@pytest.mark.parametrize("case", sorted((case_root() / "cases").glob("**/*jump-host-only*/hosts.json")), ids=str)
def test_a_case_s_jump_only_hosts_are_never_worked_on(case: Path) -> None:
    described = json.loads(case.read_text())
    expected = json.loads(case.with_name("expected.json").read_text())
    gates = [name for name, host in described.items() if host.get("role") == "jump_only"]
    assert ("JUMP_ONLY" in expected["findings"]) == bool(gates)
    tables = [
        f"[hosts.{name}]\nssh = '{name}.example'\njump_only = {str(name in gates).lower()}\n"
        + (f"jump = '{host['via']}'\n" if host.get("via") else "")
        for name, host in described.items()
    ]
    worked = next(name for name in described if name not in gates)
    start = "[training]\nhost = '{}'\nlog = '/log'\ncheckpoints = '/run/checkpoints'\n"
    hosts = make_hosts(parse_config(start.format(worked) + "".join(tables), "c.toml"))
    for gate in gates:
        assert isinstance(hosts[gate], GateHost)
        with pytest.raises(ConfigError, match="jump_only"):
            parse_config(start.format(gate) + "".join(tables), "c.toml")
