"""The demo's two hosts and its container, reached as any others are: over real sockets, by the product's own hosts."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from dflash_tui.demo.servers import fresh_key
from dflash_tui.demo.world import DemoWorld
from dflash_tui.hosts.base import CommandFailed, FileMissing, HostKeyUnknown, HostUnreachable, PermissionRefused
from dflash_tui.hosts.ssh import SshHost
from tests.demo.worlds import archive, marked, stand_in

SIDES = ["pve", "lab", "ct200"]


async def eventually(holds: object, seconds: float = 5.0) -> bool:
    assert callable(holds)
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True


def raw(host: object) -> dict[str, object]:
    """asyncssh's own options for an address, to speak to a server past our hosts."""
    assert isinstance(host, SshHost)
    address = host.address
    return {
        "host": address.host,
        "port": address.port,
        "username": address.username,
        "client_keys": address.client_keys,
        "known_hosts": address.known_hosts,
        "config": None,
        "agent_path": None,
    }


@pytest.mark.parametrize("side", SIDES)
async def test_files_come_back_as_they_were_written(world: DemoWorld, side: str) -> None:
    host, folder = world.hosts[side], f"{world.root}/{side}/some where/deeper"
    data = os.urandom(3_000_001)
    await host.make_folder(folder, exclusive=True)
    await host.write(f"{folder}/a file", data)
    assert Path(f"{folder}/a file").read_bytes() == data
    assert await host.read(f"{folder}/a file", 70_001, 2_000_000) == data[70_001:2_070_001]
    assert (await host.stat(f"{folder}/a file")).size == len(data)
    assert (await host.stat(f"{folder}/a file")).inode == os.stat(f"{folder}/a file").st_ino
    assert [entry.name for entry in await host.list(folder)] == ["a file"]
    assert (await host.run(["cat", f"{folder}/a file"])).stdout == data
    assert (await host.free_space(f"{folder}/not/yet")).bytes > 0
    with pytest.raises(FileMissing):
        await host.stat(f"{folder}/nothing")


async def test_commands_and_sftp_see_the_same_entries(world: DemoWorld) -> None:
    lab, folder = world.hosts["lab"], f"{world.root}/lab/eval"
    await lab.write(f"{folder}/one", b"same bytes")
    await lab.run(["ln", f"{folder}/one", f"{folder}/two"])
    async with asyncssh.connect(**raw(lab)) as connection, connection.start_sftp_client() as sftp:
        await sftp.link(f"{folder}/two", f"{folder}/three")
        await sftp.symlink("one", f"{folder}/four")
        assert await sftp.readlink(f"{folder}/four") == "one"
        assert await sftp.realpath(f"{folder}/four") == f"{folder}/one"
        assert sorted(await sftp.listdir(folder)) == ["four", "one", "three", "two"]
        assert (await sftp.statvfs(folder)).bavail > 0
        await sftp.posix_rename(f"{folder}/three", f"{folder}/five")
    found = {entry.name: entry for entry in await lab.list(folder)}
    assert found["one"].stat.links == 3
    assert found["one"].stat.inode == found["five"].stat.inode
    assert found["four"].target == "one"


async def test_large_streams_pass_in_both_directions(world: DemoWorld) -> None:
    data = os.urandom(9_000_000)
    for side in SIDES:
        path = f"{world.root}/{side}/large"
        await world.hosts[side].run(["dd", f"of={path}", "bs=65536"], stdin=data)
        assert (await world.hosts[side].run(["cat", path])).stdout == data


async def test_tail_follows_and_ends_when_its_channel_closes(world: DemoWorld) -> None:
    path = world.root / "ct200" / "growing.log"
    path.write_bytes(b"old\nfirst\n")

    def held() -> bool:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return any(os.path.islink(link) and os.readlink(link) == str(path) for link in links)

    async with world.hosts["ct200"].stream(["tail", "-c", "+5", "-f", str(path)]) as process:
        assert await process.read() == b"first\n"
        assert held()
        for line in (b"second\n", b"third\n"):
            with path.open("ab") as file:
                file.write(line)
            assert await process.read() == line
    assert await eventually(lambda: not held())


async def test_a_killed_command_tells_its_signal(world: DemoWorld) -> None:
    async with asyncssh.connect(**raw(world.hosts["lab"])) as connection:
        for stdin in (asyncssh.PIPE, asyncssh.DEVNULL):
            process = await connection.create_process(f"tail -f {world.root}/lab/prompts.jsonl", stdin=stdin)
            await process.stdout.readline()
            process.kill()
            done = await asyncio.wait_for(process.wait(), 5)
            assert done.exit_signal is not None
            assert done.exit_signal[0] == "KILL"


async def test_the_lab_runs_archives_as_real_processes_without_the_users_environment(
    world: DemoWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "token")
    lab = world.root / "lab"
    program = archive(
        lab / "tell.pyz",
        "import json, os, sys\n"
        "print(json.dumps([dict(os.environ), os.getcwd(), sys.argv[1:], sys.stdin.read(), os.getpid()]))\n"
        "print('said', file=sys.stderr)\n"
        "sys.exit(7)\n",
    )
    done = await world.hosts["lab"].run(["python3", program, "a b", "$HOME"], stdin=b"given", check=False)
    environment, folder, words, given, pid = json.loads(done.text)
    assert (done.status, done.stderr) == (7, "said\n")
    assert (folder, words, given) == (str(lab), ["a b", "$HOME"], "given")
    assert pid != os.getpid()
    assert environment["HOME"] == str(lab)
    assert Path(environment["TMPDIR"]).is_relative_to(lab)
    assert environment["OMP_NUM_THREADS"] == "1"
    assert "MY_SECRET" not in environment
    assert "SSH_AUTH_SOCK" not in environment


async def test_a_process_ends_with_its_channel_unless_it_has_detached(world: DemoWorld) -> None:
    program = archive(
        world.root / "lab" / "stay.pyz",
        "import os, sys, time\n"
        "if 'detach' in sys.argv and os.fork(): os._exit(0)\n"
        "if 'detach' in sys.argv:\n"
        "    os.setsid()\n"
        "    for number in range(3): os.dup2(os.open(os.devnull, os.O_RDWR), number)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n",
    )
    lab = world.hosts["lab"]
    async with lab.stream(["python3", program]) as process:
        assert await process.read() == b"up\n"
        (pid,) = marked(world.root.parent)
    assert await eventually(lambda: pid not in marked(world.root.parent))
    await lab.run(["python3", program, "detach"])
    assert await eventually(lambda: len(marked(world.root.parent)) == 1)
    await lab.run(["true"])
    assert len(marked(world.root.parent)) == 1


async def test_only_archives_of_the_lab_are_run(world: DemoWorld, tmp_path: Path) -> None:
    outside = archive(tmp_path / "outside.pyz", "print('ran')")
    inside = archive(world.root / "lab" / "inside.pyz", "print('ran')")
    lab = world.hosts["lab"]
    assert (await lab.run(["python3", inside])).text == "ran\n"
    for words in ([outside], [inside, "/etc/passwd"], ["-c", "print(1)"], ["-m", "http.server"], []):
        done = await lab.run(["python3", *words], check=False)
        assert (done.status, done.stdout) == (126, b"")
    for side in ("pve", "ct200"):
        assert (await world.hosts[side].run(["python3", inside], check=False)).status == 127


@pytest.mark.parametrize(
    "line",
    [
        "cat a | cat b", "cat a; cat b", "cat a && cat b", "cat $HOME", "cat `id`", 'cat "$(id)"', "cat < a",
        "cat a > b",
        "cat *", "cat a?", "cat ~/a", "cat a &", "cat [ab]", "cat {a,b}", "cat a\ncat b", "cat a # b",
    ],
)  # fmt: skip
async def test_shell_syntax_is_refused(world: DemoWorld, line: str) -> None:
    async with asyncssh.connect(**raw(world.hosts["lab"])) as connection:
        done = await connection.run(line)
    assert done.exit_status == 126
    assert not done.stdout
    assert "shell syntax" in str(done.stderr)
    assert not (world.root / "lab" / "b").exists()


async def test_what_is_no_command_here_is_not_found(world: DemoWorld) -> None:
    for side in SIDES:
        for name in ("ssh", "scp", "nc", "curl", "sh", "bash"):
            with pytest.raises(CommandFailed) as failed:
                await world.hosts[side].run([name, "lab"])
            assert failed.value.status == 127
    async with asyncssh.connect(**raw(world.hosts["lab"])) as connection:
        shell = await connection.run()
    assert shell.exit_status == 127


async def test_another_key_and_passwords_are_refused(world: DemoWorld) -> None:
    for side in ("pve", "lab"):
        host = world.hosts[side]
        assert isinstance(host, SshHost)
        stranger = SshHost("stranger", replace(host.address, client_keys=[fresh_key()]))
        with pytest.raises(PermissionRefused):
            await stranger.run(["true"])
        with pytest.raises(asyncssh.PermissionDenied):
            await asyncssh.connect(**raw(host) | {"client_keys": None, "password": "demo"})


async def test_each_host_has_a_key_of_its_own_and_no_other_is_believed(world: DemoWorld) -> None:
    pve, lab = world.hosts["pve"], world.hosts["lab"]
    assert isinstance(pve, SshHost)
    assert isinstance(lab, SshHost)
    mistaken = SshHost("mistaken", replace(pve.address, known_hosts=lab.address.known_hosts))
    with pytest.raises(HostKeyUnknown):
        await mistaken.run(["true"])


async def test_nothing_is_forwarded_and_no_terminal_given(world: DemoWorld) -> None:
    pve, lab = world.hosts["pve"], world.hosts["lab"]
    assert isinstance(pve, SshHost)
    port = pve.address.port
    async with asyncssh.connect(**raw(lab)) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("127.0.0.1", port)
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("127.0.0.1", 0, "127.0.0.1", port)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.create_process("true", request_pty="force", term_type="xterm")


async def test_the_users_own_ssh_files_are_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Host *\n  ProxyJump nowhere.invalid\n  User nobody\n  Port 1\n")
    (home / ".ssh" / "id_ed25519").write_text("not a key")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(home / "no agent"))
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    async with DemoWorld(train=False, data=stand_in(tmp_path / "data")) as world:
        for side in SIDES:
            await world.hosts[side].run(["true"])
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


async def test_the_config_names_what_is_there(world: DemoWorld) -> None:
    evaluation = world.config.evaluation
    assert evaluation is not None
    lab = world.hosts[evaluation.host]
    for path in (evaluation.root, evaluation.target, *evaluation.hidden_states, world.baseline):
        assert (await lab.stat(path)).kind == "folder"
    assert (await lab.stat(evaluation.prompts)).kind == "file"
    assert world.hosts.keys() == world.config.hosts.keys()
    assert world.root.stat().st_mode & 0o777 == 0o700
    for path in (world.config.training.log, world.config.training.checkpoints, world.config.training.arguments):
        assert Path(path).is_relative_to(world.root / "ct200")


async def test_the_lab_cannot_see_the_container_nor_the_container_the_lab(world: DemoWorld) -> None:
    (world.root / "ct200" / "checkpoint.pt").write_bytes(b"weights")
    for side in ("lab", "pve"):
        with pytest.raises(PermissionRefused):
            await world.hosts[side].read(f"{world.root}/ct200/checkpoint.pt", 0, 7)
    with pytest.raises(PermissionRefused):
        await world.hosts["ct200"].list(f"{world.root}/lab")


async def test_a_trainer_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with DemoWorld(data=stand_in(tmp_path / "data")) as world:
        assert world.trainer_running
        assert world.trainer_failure is None
        assert await eventually(lambda: not world.trainer_running, 60)
        assert world.trainer_failure is not None
        assert str(world.root / "ct200" / "workspace") in world.trainer_failure


async def test_a_world_that_has_ended_answers_no_more(tmp_path: Path) -> None:
    async with DemoWorld(train=False, data=stand_in(tmp_path / "data")) as world:
        lab = world.hosts["lab"]
        assert isinstance(lab, SshHost)
        address = lab.address
    with pytest.raises(HostUnreachable):
        await SshHost("lab", address).run(["true"])
    assert not world.root.exists()
