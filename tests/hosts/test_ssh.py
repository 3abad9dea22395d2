"""SSH as users have it: known_hosts, configuration, jumps, refused logins, cut lines."""

from __future__ import annotations

import asyncio
import getpass
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from dflash_tui.hosts.address import SshAddress, parse_target
from dflash_tui.hosts.base import HostError, HostKeyChanged, HostKeyUnknown, HostUnreachable, PermissionRefused
from dflash_tui.hosts.ssh import SshHost
from tests.sshd import Sshd, running_sshd


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Sshd, Sshd]]:
    """A jump host and one behind it."""
    with ExitStack() as stack:
        servers = []
        for name in ("jump", "behind"):
            (tmp_path / name).mkdir()
            servers.append(stack.enter_context(running_sshd(tmp_path / name)))
        yield servers[0], servers[1]


async def _fails(address: SshAddress) -> HostError:
    host = SshHost("ct129", address)
    with pytest.raises(HostError) as failure:
        await asyncio.wait_for(host.run(["true"]), 30)
    await host.close()
    return failure.value


async def test_an_unknown_host_key_is_shown_and_refused(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").write_text("")
    error = await _fails(sshd.address)
    assert isinstance(error, HostKeyUnknown)
    printed = subprocess.run(
        ["ssh-keygen", "-l", "-f", sshd.folder / "host_key.pub"], capture_output=True, text=True, check=True
    ).stdout
    fingerprint = printed.split()[1]
    for part in ("ct129", "not in known_hosts", f"`dflash-tui trust ct129 --fingerprint {fingerprint}`"):
        assert part in str(error)
    assert error.offer.fingerprint == fingerprint
    assert error.offer.line == f"[127.0.0.1]:{sshd.port} {sshd.host_key}"
    assert error.offer.file == str(sshd.folder / "known_hosts")


async def test_a_changed_host_key_is_refused_as_changed(sshd: Sshd) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").convert_to_public()
    known_hosts = sshd.folder / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {other.export_public_key().decode()}\n")
    error = await _fails(sshd.address)
    assert isinstance(error, HostKeyChanged)
    offered = asyncssh.read_public_key(sshd.folder / "host_key.pub").get_fingerprint()
    forget = f"ssh-keygen -f {known_hosts} -R '[127.0.0.1]:{sshd.port}'"
    for part in ("CHANGED", other.get_fingerprint(), offered, "ask its owner first", forget):
        assert part in str(error)
    subprocess.run(["sh", "-c", forget], check=True, capture_output=True)
    assert "CHANGED" not in str(await _fails(sshd.address))


async def test_a_key_of_another_host_is_no_change(sshd: Sshd) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    (sshd.folder / "known_hosts").write_text(f"[127.0.0.1]:1 {other}\nelsewhere {other}\n")
    error = await _fails(sshd.address)
    assert isinstance(error, HostKeyUnknown)
    assert "CHANGED" not in str(error)


async def test_a_name_that_means_nothing_says_what_to_check() -> None:
    error = await _fails(SshAddress("no-such-host.invalid", port=2222, username="root", config=None, agent=False))
    assert isinstance(error, HostUnreachable)
    assert "check the name no-such-host.invalid in the target (`ssh -p 2222 root@no-such-host.invalid`)" in str(error)


async def test_a_configuration_can_not_turn_checking_off(sshd: Sshd) -> None:
    config = sshd.folder / "config"
    config.write_text("Host *\n  UserKnownHostsFile none\n  StrictHostKeyChecking no\n")
    error = await _fails(replace(sshd.address, known_hosts=None, config=(str(config),)))
    assert isinstance(error, HostKeyUnknown)


async def test_a_refused_login_is_not_worth_trying_again(sshd: Sshd) -> None:
    (sshd.folder / "authorized_keys").write_text("")
    error = await _fails(sshd.address)
    assert isinstance(error, PermissionRefused)
    assert "login was refused" in str(error)


async def test_nobody_listening_is_unreachable(sshd: Sshd) -> None:
    sshd.stop()
    error = await _fails(sshd.address)
    assert isinstance(error, HostUnreachable)
    assert str(error) == (
        f"ct129 (127.0.0.1:{sshd.port}): no connection: Connection refused; check host and port of the target "
        f"(`ssh -p {sshd.port} {getpass.getuser()}@127.0.0.1`), and that sshd runs there"
    )


async def test_a_key_file_that_is_missing_is_a_sentence(sshd: Sshd) -> None:
    error = await _fails(replace(sshd.address, client_keys=[str(sshd.folder / "no_such_key")]))
    assert "no_such_key" in str(error) or "No such file" in str(error)


async def test_a_server_that_allows_one_session_is_told(tmp_path: Path) -> None:
    with running_sshd(tmp_path, "Subsystem sftp internal-sftp\nMaxSessions 1\n") as server:
        host = SshHost("ct129", server.address)
        async with host.stream(["cat"], stdin=True):
            with pytest.raises(HostUnreachable, match=r"no session for `true`: .*\(MaxSessions\)\?"):
                await host.run(["true"])
        await host.close()


async def test_keys_can_be_objects_in_memory(sshd: Sshd) -> None:
    key = asyncssh.read_private_key(sshd.folder / "client_key")
    known = asyncssh.import_known_hosts((sshd.folder / "known_hosts").read_text())
    host = SshHost("x", replace(sshd.address, client_keys=[key], known_hosts=known))
    assert (await host.run(["echo", "in"])).text == "in\n"
    await host.close()


@pytest.mark.parametrize("written", ["gate", "ssh://gate"])
async def test_a_configuration_names_host_user_port_key_and_jump(
    two: tuple[Sshd, Sshd], tmp_path: Path, written: str
) -> None:
    jump, behind = two
    config = tmp_path / "config"
    config.write_text(
        f"Host *\n  User {getpass.getuser()}\n"
        f"Host gate\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.folder}/client_key\n"
        f"  UserKnownHostsFile {jump.folder}/known_hosts\n"
        f"Host ct129\n  HostName 127.0.0.1\n  Port {behind.port}\n  IdentityFile {behind.folder}/client_key\n"
        f"  UserKnownHostsFile {behind.folder}/known_hosts\n  ProxyJump {written}\n"
    )
    host = SshHost("ct129", SshAddress("ct129", config=(str(config),), agent=False))
    done = await host.run(["sh", "-c", 'echo "$SSH_CONNECTION"'])
    assert str(behind.port) in done.text
    jump.stop()
    with pytest.raises(HostUnreachable):
        await host.run(["true"], timeout=20)
    await host.close()
    jump.start()

    (jump.folder / "known_hosts").write_text("")
    error = await _fails(SshAddress("ct129", config=(str(config),), agent=False))
    assert isinstance(error, HostKeyUnknown)
    assert "gate" in str(error)


async def test_the_user_s_own_configuration_is_used_unless_another_is_named(
    two: tuple[Sshd, Sshd], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jump, behind = two
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(
        f"Host *\n  User {getpass.getuser()}\n  HostName 127.0.0.1\n"
        f"Host gate\n  Port {jump.port}\n  IdentityFile {jump.folder}/client_key\n"
        f"  UserKnownHostsFile {jump.folder}/known_hosts\n"
        f"Host ct129\n  Port {behind.port}\n  IdentityFile {behind.folder}/client_key\n"
        f"  UserKnownHostsFile {behind.folder}/known_hosts\n  ProxyJump gate\n"
    )
    host = SshHost("ct129", SshAddress("ct129", agent=False))
    assert str(behind.port) in (await host.run(["sh", "-c", 'echo "$SSH_CONNECTION"'])).text
    jump.stop()
    with pytest.raises(HostUnreachable):
        await host.run(["true"], timeout=20)
    await host.close()


async def test_a_target_behind_a_jump_that_is_not_there_names_the_target(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host gate\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {sshd.folder}/client_key\n  UserKnownHostsFile {sshd.folder}/known_hosts\n"
        "Host ct129\n  HostName 127.0.0.1\n  ProxyJump gate\n"
    )
    error = await _fails(SshAddress("ct129", port=1, config=(str(config),), agent=False))
    assert isinstance(error, HostUnreachable)
    assert "the jump host can't reach it" in str(error)
    assert f"`ssh -F {config} -p 1 ct129`" in str(error)


async def test_a_jump_for_all_hosts_is_not_one_for_the_jump_itself(two: tuple[Sshd, Sshd], tmp_path: Path) -> None:
    jump, behind = two
    config = tmp_path / "config"
    config.write_text(
        f"Host gate\n  Port {jump.port}\n  IdentityFile {jump.folder}/client_key\n"
        f"  UserKnownHostsFile {jump.folder}/known_hosts\n"
        f"Host ct129\n  Port {behind.port}\n  IdentityFile {behind.folder}/client_key\n"
        f"  UserKnownHostsFile {behind.folder}/known_hosts\n"
        f"Host *\n  User {getpass.getuser()}\n  HostName 127.0.0.1\n  ProxyJump gate\n"
    )
    host = SshHost("ct129", SshAddress("ct129", config=(str(config),), agent=False))
    assert (await host.run(["echo", "there"])).text == "there\n"
    await host.close()


async def test_jumps_that_lead_round_are_a_sentence(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host one\n  ProxyJump two\nHost two\n  ProxyJump one\n")
    error = await _fails(SshAddress("one", config=(str(config),), agent=False))
    assert "ProxyJump" in str(error)


async def test_one_connection_serves_everything(sshd: Sshd) -> None:
    host = SshHost("x", sshd.address)
    ports = await asyncio.gather(*(host.run(["sh", "-c", "echo $SSH_CLIENT"]) for _ in range(6)))
    assert len({done.text for done in ports}) == 1
    await host.close()


async def test_a_cut_is_unreachable_and_the_next_use_connects_again(sshd: Sshd) -> None:
    host = SshHost("x", sshd.address)

    async def cut_while_reading() -> None:
        async with asyncio.timeout(10), host.stream(["sleep", "20"]) as process:
            await host.run(["true"])
            sshd.kill_sessions()
            assert await process.read() == b""
            await process.wait()

    with pytest.raises(HostUnreachable):
        await cut_while_reading()
    (sshd.folder / "file").write_bytes(b"12345")
    assert await host.read(str(sshd.folder / "file"), 1, 3) == b"234"
    assert (await host.run(["echo", "again"])).text == "again\n"
    await host.close()


async def test_a_cut_while_writing_is_unreachable(sshd: Sshd) -> None:
    host = SshHost("x", sshd.address)

    async def cut_while_writing() -> None:
        async with asyncio.timeout(20), host.stream(["sleep", "20"], stdin=True) as process:
            await process.write(b"x")
            sshd.kill_sessions()
            while True:
                await process.write(bytes(1 << 20))

    with pytest.raises(HostUnreachable):
        await cut_while_writing()
    await host.close()


async def test_a_rebooted_host_is_reached_again(sshd: Sshd) -> None:
    host = SshHost("x", sshd.address)
    await host.run(["true"])
    sshd.stop()
    with pytest.raises(HostUnreachable):
        await host.run(["true"], timeout=20)
    sshd.start()
    assert (await host.run(["echo", "up"])).text == "up\n"
    await host.close()
    await host.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ct129", SshAddress("ct129")),
        ("root@10.0.0.1", SshAddress("10.0.0.1", username="root")),
        ("root@lab.example:2222", SshAddress("lab.example", port=2222, username="root")),
        ("u@[fe80::1%eth0]:22", SshAddress("fe80::1%eth0", port=22, username="u")),
    ],
)
def test_reads_a_target(text: str, expected: SshAddress) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["", "a b", "-oProxyCommand=x", "host:0", "host:99999", "host:", "@host", "a:b:c"])
def test_refuses_what_is_no_target(text: str) -> None:
    with pytest.raises(HostError, match="not an SSH target"):
        parse_target(text)


def test_asyncssh_is_not_imported_before_a_connection() -> None:
    modules = "dflash_tui.hosts.ssh, dflash_tui.hosts.container, dflash_tui.transfer.move"
    code = f"import sys, {modules}; sys.exit(int('asyncssh' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
