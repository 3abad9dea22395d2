"""Trust in host keys: what is a new key, what is a changed one, and how a new one is written down."""

from __future__ import annotations

import asyncio
import getpass
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.hosts import known_hosts
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.asking import Asker, AskingHost
from dflash_tui.hosts.base import HostError, HostKeyChanged, HostKeyUnknown, KeyOffer
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.known_hosts import add, entry_name, hashed, held_keys
from dflash_tui.hosts.shell import asked_together
from dflash_tui.hosts.ssh import SshHost
from tests.sshd import Sshd, need, running_sshd

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIE+mrGlZ4Q8ZKDb0SBrYfCzzhcAbuilP7qwh0wKZvp8T"


def _offer(file: Path, name: str = "lab", data: str = KEY) -> KeyOffer:
    return KeyOffer(name, name, f"10.0.0.5:{22}", "ssh-ed25519", data, "SHA256:x", str(file))


async def _refused(host: SshHost) -> HostError:
    with pytest.raises(HostError) as failure:
        await asyncio.wait_for(host.run(["true"]), 30)
    await host.close()
    return failure.value


async def _offered(address: SshAddress) -> KeyOffer:
    error = await _refused(SshHost("ct129", address))
    assert isinstance(error, HostKeyUnknown), error
    return error.offer


def _public(folder: Path, kind: str) -> str:
    path = folder / f"other_{kind}"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def _config(server: Sshd, text: str = "") -> SshAddress:
    """The server as `lab` of a configuration file, with a known_hosts of its own."""
    path = server.folder / "config"
    path.write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {server.port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {server.folder}/client_key\n  UserKnownHostsFile {server.folder}/mine\n{text}"
    )
    return SshAddress("lab", config=(str(path),), agent=False)


async def test_an_accepted_key_is_what_the_next_connection_verifies_against(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").unlink()
    address = replace(sshd.address, known_hosts=None, config=(str(sshd.folder / "config"),))
    (sshd.folder / "config").write_text(f"Host *\n  UserKnownHostsFile {sshd.folder}/new/known_hosts /dev/null\n")
    offer = await _offered(address)
    assert offer.file == f"{sshd.folder}/new/known_hosts"
    await add(offer)
    host = SshHost("ct129", address)
    assert (await host.run(["echo", "in"])).text == "in\n"
    await host.close()
    written = Path(offer.file)
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert stat.S_IMODE(written.parent.stat().st_mode) == 0o700
    ssh = shutil.which("ssh")
    need(ssh is not None, "openssh-client")
    words = [str(ssh), "-F", "none", "-o", f"UserKnownHostsFile={written}", "-o", "BatchMode=yes", "-p", str(sshd.port)]
    words += ["-i", str(sshd.folder / "client_key"), "127.0.0.1", "echo", "ssh too"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "ssh too\n"


async def test_without_a_configuration_the_user_s_own_file_is_meant(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    offer = await _offered(replace(sshd.address, known_hosts=None, config=()))
    assert offer.file == str(tmp_path / ".ssh" / "known_hosts")


async def test_a_server_with_another_key_after_the_question_is_refused(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").write_text("")
    offer = await _offered(sshd.address)
    sshd.stop()
    (sshd.folder / "host_key").unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", sshd.folder / "host_key"], check=True)
    await add(offer)
    sshd.start()
    assert isinstance(await _refused(SshHost("ct129", sshd.address)), HostKeyChanged)


async def test_what_a_file_holds_stays_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    before = b"# mine \xff\r\n\n@revoked * ssh-rsa AAAA\n*.lab,!x.lab ssh-rsa AAAAB3 last line without an end"
    file.write_bytes(before)
    await add(_offer(file))
    assert file.read_bytes() == before + b"\n" + f"lab ssh-ed25519 {KEY}\n".encode()
    await add(_offer(file))
    assert file.read_bytes().count(b"\nlab ") == 1


async def test_concurrent_additions_keep_every_line(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_bytes(b"first ssh-ed25519 AAAA")
    code = (
        "import asyncio, sys\n"
        "from dflash_tui.hosts.base import KeyOffer\nfrom dflash_tui.hosts.known_hosts import add\n"
        "async def work():\n    for i in range(20):\n        name = f'host{sys.argv[1]}-{i}'\n"
        f"        await add(KeyOffer(name, name, '', 'ssh-ed25519', {KEY!r}, '', sys.argv[2]))\n"
        "asyncio.run(work())"
    )
    children = [await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(i), str(file)) for i in range(3)]
    assert [await child.wait() for child in children] == [0, 0, 0]
    lines = file.read_text().splitlines()
    assert lines[0] == "first ssh-ed25519 AAAA"
    assert sorted(lines[1:]) == sorted(f"host{c}-{i} ssh-ed25519 {KEY}" for c in range(3) for i in range(20))


async def test_a_key_that_came_meanwhile_is_not_overruled(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"lab ssh-ed25519 {KEY}\n")
    with pytest.raises(HostKeyChanged, match="by now"):
        await add(_offer(file, data="AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"))
    assert file.read_text() == f"lab ssh-ed25519 {KEY}\n"


async def test_names_are_hashed_where_the_file_hashes_them(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"{hashed('elsewhere')} ssh-ed25519 {KEY}\n")
    await add(_offer(file))
    assert "lab" not in file.read_text()
    found = subprocess.run(["ssh-keygen", "-F", "lab", "-f", file], capture_output=True, text=True, check=True)
    assert KEY in found.stdout
    assert [key.data for key in held_keys(str(file), "lab")] == [KEY]


async def test_names_are_hashed_where_the_configuration_says_so(sshd: Sshd) -> None:
    need(shutil.which("ssh") is not None, "openssh-client")
    address = _config(sshd, "  HashKnownHosts yes\n")
    await add(await _offered(address))
    text = (sshd.folder / "mine").read_text()
    assert text.startswith("|1|")
    host = SshHost("ct129", address)
    assert (await host.run(["echo", "in"])).text == "in\n"
    await host.close()


async def test_a_key_of_another_kind_in_the_place_of_a_known_one_is_a_change(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {_public(sshd.folder, 'ecdsa')}\n")
    error = await _refused(SshHost("ct129", sshd.address))
    assert isinstance(error, HostKeyChanged)
    assert "known_hosts holds ecdsa-sha2-nistp256 SHA256:" in str(error)
    assert "it offered ssh-ed25519 SHA256:" in str(error)


async def test_a_key_of_the_same_machine_s_other_port_is_no_change(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").write_text(f"127.0.0.1 {_public(sshd.folder, 'ed25519')}\n")
    assert isinstance(await _refused(SshHost("ct129", sshd.address)), HostKeyUnknown)


async def test_a_hashed_entry_that_differs_is_a_change(sshd: Sshd) -> None:
    name = hashed(f"[127.0.0.1]:{sshd.port}")
    (sshd.folder / "known_hosts").write_text(f"{name} {_public(sshd.folder, 'ed25519')}\n")
    assert isinstance(await _refused(SshHost("ct129", sshd.address)), HostKeyChanged)


async def test_a_revoked_key_is_never_offered(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").write_text(f"@revoked * {sshd.host_key}\n")
    error = await _refused(SshHost("ct129", sshd.address))
    assert isinstance(error, HostKeyChanged)
    assert "@revoked" in str(error)


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[tuple[Sshd, str]]:
    """A server whose host key has a certificate, and the authority's public key."""
    with running_sshd(tmp_path) as server:
        authority = _public(tmp_path, "ed25519")
        sign = ["ssh-keygen", "-q", "-s", f"{tmp_path}/other_ed25519", "-I", "lab", "-h", "-n", "127.0.0.1"]
        subprocess.run([*sign, f"{tmp_path}/host_key.pub"], check=True, capture_output=True)
        server.stop()
        with (tmp_path / "sshd_config").open("a") as config:
            config.write(f"HostCertificate {tmp_path}/host_key-cert.pub\n")
        server.start()
        yield server, authority


async def test_a_certificate_of_a_known_authority_needs_no_question(certified: tuple[Sshd, str]) -> None:
    server, authority = certified
    (server.folder / "known_hosts").write_text(f"@cert-authority * {authority}\n")
    host = SshHost("ct129", server.address)
    assert (await host.run(["echo", "in"])).text == "in\n"
    await host.close()


async def test_a_certificate_that_nobody_vouches_for_counts_as_its_plain_key(certified: tuple[Sshd, str]) -> None:
    server, _ = certified
    (server.folder / "known_hosts").write_text("")
    offer = await _offered(server.address)
    assert f"{offer.key_type} {offer.data}" == server.host_key
    await add(offer)
    host = SshHost("ct129", server.address)
    assert (await host.run(["echo", "in"])).text == "in\n"
    await host.close()


async def test_a_host_key_alias_is_the_entry(sshd: Sshd) -> None:
    address = _config(sshd, "  HostKeyAlias Cluster-7\n")
    offer = await _offered(address)
    assert offer.entry == "cluster-7"
    await add(offer)
    host = SshHost("ct129", address)
    assert (await host.run(["echo", "in"])).text == "in\n"
    await host.close()


def _answering(answers: list[bool], asked: list[KeyOffer]) -> Callable[[KeyOffer], Awaitable[bool]]:
    async def ask(offer: KeyOffer) -> bool:
        asked.append(offer)
        return answers.pop(0)

    return ask


async def test_jumps_on_the_way_are_asked_for_by_their_own_names(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = {}
        for name in ("gate", "inner", "ct129"):
            (tmp_path / name).mkdir()
            servers[name] = stack.enter_context(running_sshd(tmp_path / name))
        config = tmp_path / "config"
        jumps = {"gate": "", "inner": "  ProxyJump gate\n", "ct129": "  ProxyJump inner\n"}
        config.write_text(
            "".join(
                f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n  User {getpass.getuser()}\n"
                f"  IdentityFile {server.folder}/client_key\n  UserKnownHostsFile {tmp_path}/known_hosts\n{jumps[name]}"
                for name, server in servers.items()
            )
        )
        asked: list[KeyOffer] = []
        asker = Asker(_answering([True, True, True], asked))
        host = AskingHost(SshHost("lab", SshAddress("ct129", config=(str(config),), agent=False)), asker)
        assert (await host.run(["echo", "there"], timeout=60)).text == "there\n"
        await host.close()
    assert [offer.shown for offer in asked] == ["gate, on the way to lab", "inner, on the way to lab", "lab"]
    assert [offer.entry for offer in asked] == [f"[127.0.0.1]:{servers[name].port}" for name in jumps]


async def test_a_question_is_asked_once_however_many_wait(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").write_text("")
    asked: list[KeyOffer] = []
    asker = Asker(_answering([True], asked))
    one, other = (AskingHost(SshHost(name, sshd.address), asker) for name in ("one", "other"))
    outside = AskingHost(ContainerHost(SshHost("pve", sshd.address), ("env",), "box"), asker)
    done = await asyncio.gather(one.run(["echo", "a"]), one.list("/"), other.run(["true"]), outside.run(["true"]))
    assert done[0].text == "a\n"
    assert len(asked) == 1
    for host in (one, other, outside):
        await host.close()


async def test_no_stays_no_until_the_session_ends(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").write_text("")
    asked: list[KeyOffer] = []
    host = AskingHost(SshHost("ct129", sshd.address), Asker(_answering([False], asked)))
    for _ in range(2):
        with pytest.raises(HostKeyUnknown):
            await host.run(["true"])
    assert len(asked) == 1
    assert (sshd.folder / "known_hosts").read_text() == ""


@pytest.mark.parametrize("shell", [False, True], ids=["command", "shell"])
async def test_a_person_may_think_longer_than_a_command_may_take(sshd: Sshd, shell: bool) -> None:
    (sshd.folder / "known_hosts").write_text("")
    answered = asyncio.Event()

    async def ask(offer: KeyOffer) -> bool:
        await answered.wait()
        return True

    host = AskingHost(ContainerHost(SshHost("pve", sshd.address), ("env",), "box"), Asker(ask))
    async with AsyncExitStack() as stack:
        asked = await stack.enter_async_context(asked_together(host)) if shell else host
        waiting = asyncio.create_task(asked.run(["echo", "patient"], timeout=3))
        await asyncio.wait({waiting}, timeout=4)
        assert not waiting.done()
        answered.set()
        assert (await waiting).text == "patient\n"
    await host.close()


async def test_a_changed_key_is_never_asked_for(sshd: Sshd) -> None:
    (sshd.folder / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {_public(sshd.folder, 'ed25519')}\n")
    asked: list[KeyOffer] = []
    host = AskingHost(SshHost("ct129", sshd.address), Asker(_answering([], asked)))
    with pytest.raises(HostKeyChanged):
        await host.run(["true"])
    assert asked == []


async def test_a_file_that_can_not_be_written_says_which_line_to_add(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.mkdir()
    with pytest.raises(HostError, match="add the line yourself: lab ssh-ed25519 "):
        await add(_offer(file))


@pytest.mark.parametrize(
    "line", [b"# B\xfcro", b"oneword", b"@weird lab ssh-ed25519 AAAA", b"|1|salt KEY", b"|2|c2FsdA==|c2FsdA== KEY"]
)
async def test_a_damaged_line_does_not_spoil_the_others(sshd: Sshd, line: bytes) -> None:
    address = _config(sshd)
    file = sshd.folder / "mine"
    known = (sshd.folder / "known_hosts").read_bytes()
    file.write_bytes(line.replace(b"KEY", sshd.host_key.encode()) + b"\n" + known)
    host = SshHost("ct129", address)
    assert (await host.run(["echo", "in"], timeout=30)).text == "in\n"
    await host.close()
    file.write_bytes(line.replace(b"KEY", sshd.host_key.encode()) + b"\n")
    await _offered(address)


async def test_a_file_that_keeps_nothing_is_none_to_add_to(sshd: Sshd) -> None:
    address = _config(sshd)
    config = sshd.folder / "config"
    config.write_text(config.read_text().replace(f"{sshd.folder}/mine", "/dev/null"))
    host = SshHost("ct129", address)
    error = await _refused(host)
    assert isinstance(error, HostKeyUnknown)
    assert error.offer.file == ""
    assert f"then name a UserKnownHostsFile that holds: {error.offer.line}" in str(error)


async def test_a_configuration_that_is_not_utf_8_is_told(sshd: Sshd) -> None:
    address = _config(sshd)
    config = sshd.folder / "config"
    config.write_bytes(b"# B\xfcro\n" + config.read_bytes())
    error = await _refused(SshHost("ct129", address))
    assert "~/.ssh/config, or a file that it includes, is not UTF-8" in str(error)


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)


@given(NAMES, st.integers(1, 65535), st.binary(min_size=20, max_size=20))
def test_an_entry_matches_itself_plain_and_hashed(name: str, port: int, salt: bytes) -> None:
    entry = entry_name(name, port)
    assert known_hosts._matches(entry, entry)
    assert known_hosts._matches(hashed(entry, salt), entry)
    assert not known_hosts._matches(hashed(entry + "x", salt), entry)
    assert not known_hosts._matches(f"*,!{entry}", entry)


@given(st.text())
def test_no_line_of_a_file_is_a_surprise(text: str) -> None:
    assert all(key.line >= 1 for key, _ in known_hosts._lines("x", text))


@given(st.text(), st.lists(st.sampled_from(["lab", "@revoked", "|1|", "*", "!", "[lab]:22", "ssh-rsa", KEY, "\n"])))
def test_no_file_is_refused_by_what_reads_it(text: str, words: list[str]) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write((text + "\n" + " ".join(words)).encode("utf-8", "replace"))
        file.flush()
        asyncssh.import_known_hosts(known_hosts.known_lines([file.name]).decode())
