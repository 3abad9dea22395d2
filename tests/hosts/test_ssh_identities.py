"""The identities of a configuration: what `ssh` passes over is passed over here, and the agent stands in."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import HostUnreachable, LoginRefused
from dflash_tui.hosts.ssh import SshHost
from tests.sshd import Sshd, need


def _config(server: Sshd, *lines: str) -> SshAddress:
    path = server.folder / "config"
    path.write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {server.port}\n  User {getpass.getuser()}\n"
        f"  UserKnownHostsFile {server.folder}/known_hosts\n" + "".join(f"  {line}\n" for line in lines)
    )
    return SshAddress("lab", config=(str(path),), agent=False)


async def _says(address: SshAddress) -> str:
    host = SshHost("ct129", address)
    try:
        return (await host.run(["echo", "in"], timeout=30)).text
    finally:
        await host.close()


@pytest.fixture
def agent(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An agent that holds the client's key; a copy of the key whose passphrase nobody knows."""
    need(shutil.which("ssh-agent") is not None, "ssh-agent")
    socket = sshd.folder / "agent"
    child = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()  # it listens
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", sshd.folder / "client_key"], check=True)
        locked = sshd.folder / "locked"
        shutil.copy(sshd.folder / "client_key", locked)
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", locked], check=True)
        yield locked
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("only", ["no", "yes"])
@pytest.mark.parametrize("other", ["missing", "client_key.pub", "half", "known_hosts", "locked"])
async def test_an_identity_that_is_no_private_key_does_not_keep_the_next_one_out(
    sshd: Sshd, other: str, only: str
) -> None:
    shutil.copy(sshd.folder / "client_key.pub", sshd.folder / "half.pub")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", sshd.folder / "locked"], check=True)
    files = (sshd.folder / other, sshd.folder / "client_key")
    lines = [f"IdentityFile {file}" for file in files]
    assert await _says(_config(sshd, *lines, f"IdentitiesOnly {only}")) == "in\n"


@pytest.mark.parametrize("only", ["no", "yes"])
@pytest.mark.parametrize("named", ["locked", "half", "half.pub"])
async def test_an_identity_may_be_one_that_the_agent_holds(sshd: Sshd, agent: Path, named: str, only: str) -> None:
    shutil.copy(sshd.folder / "client_key.pub", sshd.folder / "half.pub")
    address = _config(sshd, f"IdentityFile {sshd.folder / named}", f"IdentitiesOnly {only}")
    assert await _says(SshAddress("lab", config=address.config)) == "in\n"


async def test_the_agent_s_other_keys_are_not_offered_where_only_identities_are(sshd: Sshd, agent: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", sshd.folder / "stranger"], check=True)
    for name in ("stranger.pub", "missing"):
        address = _config(sshd, f"IdentityFile {sshd.folder / name}", "IdentitiesOnly yes")
        with pytest.raises(LoginRefused):
            await _says(SshAddress("lab", config=address.config))


async def test_a_certificate_that_is_missing_does_not_keep_its_key_out(sshd: Sshd) -> None:
    lines = (f"CertificateFile {sshd.folder}/no-cert.pub", f"IdentityFile {sshd.folder}/client_key")
    assert await _says(_config(sshd, *lines)) == "in\n"


async def test_a_proxy_command_that_is_not_there_is_named(sshd: Sshd) -> None:
    with pytest.raises(HostUnreachable, match="no connection: no-such-program: No such file or directory"):
        await _says(_config(sshd, "ProxyCommand no-such-program %h %p"))
