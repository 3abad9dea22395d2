"""Small questions through one shell: the same answers as by commands of their own, and one start for all of them."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from dflash_tui.hosts.base import CommandFailed, FileMissing, HostError, HostUnreachable, PermissionRefused, Process
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.shell import ShellHost, asked_together
from tests.pct import Pct
from tests.sshd import descendants


class Counted(LocalHost):
    """Remembers the commands that it started."""

    def __init__(self, name: str = "gpu") -> None:
        super().__init__(name)
        self.started: list[str] = []

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        self.started.append(" ".join(argv))
        return super().stream(argv, stdin=stdin)


@pytest.fixture
def inner() -> Counted:
    return Counted()


@pytest.fixture
async def host(inner: Counted) -> AsyncIterator[ShellHost]:
    made = ShellHost(inner)
    yield made
    await made.close()


def shells() -> list[int]:
    """The shells that are children of this process."""
    return [pid for pid in descendants(os.getpid()) if Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == b"sh"]


async def test_many_questions_are_one_command(host: ShellHost, inner: Counted, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\n")
    for _ in range(5):
        assert (await host.stat(f"{tmp_path}/log")).size == 8
        assert [entry.name for entry in await host.list(str(tmp_path))] == ["log"]
        assert await host.read(f"{tmp_path}/log", 4, 3) == b"two"
        assert (await host.free_space(str(tmp_path))).bytes > 0
        assert (await host.run(["echo", "a b", "'c'", "$HOME", "*"])).text == "a b 'c' $HOME *\n"
    assert inner.started == ["sh"]


@pytest.mark.parametrize("data", [b"", b"\n", b"no newline", bytes(range(256)) * 40, b"e=$(x)\n\n\n"])
async def test_output_is_what_it_is(host: ShellHost, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    assert (await host.run(["cat", f"{tmp_path}/file"])).stdout == data


async def test_status_and_complaint_are_told(host: ShellHost, inner: Counted) -> None:
    done = await host.run(["sh", "-c", "echo out; echo first >&2; echo 'the reason' >&2; exit 7"], check=False)
    assert (done.status, done.stdout, done.stderr) == (7, b"out\n", "first\nthe reason")
    with pytest.raises(CommandFailed, match="ended with status 7: the reason"):
        await host.run(["sh", "-c", "echo 'the reason' >&2; exit 7"])
    assert (await host.run(["/no/such/program"], check=False)).status == 127
    with pytest.raises(FileMissing):
        await host.stat("/no/such/file")
    assert inner.started == ["sh"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_many_stats_are_refused_as_one_is(open_folder: Path) -> None:
    class Nobody(LocalHost):
        def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
            dropped = (
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv] if os.geteuid() == 0 else argv
            )
            return super().stream(dropped, stdin=stdin)

    (open_folder / "closed").mkdir(mode=0o000)
    host = ShellHost(Nobody("gpu"))
    try:
        missing = [f"{open_folder}/{number}" for number in range(9)]
        assert await host.stat_many(missing) == [None] * 9
        for ask in (
            lambda: host.stat_many([*missing, f"{open_folder}/closed/x"]),
            lambda: host.stat(f"{open_folder}/closed/x"),
        ):
            with pytest.raises(PermissionRefused, match=f"gpu: {open_folder}/closed/x may not be used by this user"):
                await ask()
    finally:
        await host.close()
        (open_folder / "closed").chmod(0o755)


async def test_a_command_finds_no_input(host: ShellHost) -> None:
    assert (await host.run(["cat"])).stdout == b""
    assert (await host.run(["echo", "still asked"])).text == "still asked\n"


async def test_what_has_input_or_streams_is_a_command_of_its_own(host: ShellHost, inner: Counted) -> None:
    assert (await host.run(["cat"], stdin=b"given")).stdout == b"given"
    async with host.stream(["echo", "streamed"]) as process:
        assert await process.read() == b"streamed\n"
    assert inner.started == ["cat", "echo streamed"]


async def test_questions_at_the_same_time_each_get_their_answer(host: ShellHost, inner: Counted) -> None:
    answers = await asyncio.gather(*(host.run(["echo", str(number)]) for number in range(20)))
    assert [done.text for done in answers] == [f"{number}\n" for number in range(20)]
    assert inner.started == ["sh"]


async def test_who_would_wait_long_starts_a_command(
    host: ShellHost, inner: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dflash_tui.hosts.shell._PATIENCE", 0.05)
    slow = asyncio.create_task(host.run(["sleep", "30"]))
    while inner.started != ["sh"]:
        await asyncio.sleep(0.01)
    assert (await host.run(["echo", "quick"])).text == "quick\n"
    assert inner.started == ["sh", "echo quick"]
    slow.cancel()
    await asyncio.wait([slow])
    assert (await host.run(["echo", "again"])).text == "again\n"
    assert inner.started == ["sh", "echo quick", "sh"]


async def test_a_question_that_takes_too_long_ends_with_its_shell(host: ShellHost) -> None:
    with pytest.raises(HostError, match=r"did not end within 0\.2 s"):
        await host.run(["sleep", "30"], timeout=0.2)
    assert shells() == []
    assert (await host.run(["echo", "again"])).text == "again\n"


async def test_the_question_that_its_shell_died_of_is_asked_by_itself(host: ShellHost, inner: Counted) -> None:
    await host.run(["true"])
    (shell,) = shells()
    os.kill(shell, signal.SIGKILL)
    assert (await host.run(["echo", "told"])).text == "told\n"
    assert inner.started == ["sh", "echo told"]
    await host.run(["true"])
    assert inner.started == ["sh", "echo told", "true"]  # not at once again


async def test_a_host_without_a_shell_is_asked_by_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echo").symlink_to("/bin/echo")
    monkeypatch.setenv("PATH", str(tmp_path))
    inner = Counted()
    host = ShellHost(inner)
    assert (await host.run(["echo", "told"])).text == "told\n"
    await host.close()
    assert inner.started == ["sh", "echo told"]


async def test_closing_leaves_no_shell(host: ShellHost) -> None:
    await host.run(["true"])
    assert len(shells()) == 1
    await host.close()
    assert shells() == []


async def test_only_where_commands_are_dear_is_a_shell_opened(inner: Counted) -> None:
    async with asked_together(inner) as asked:
        assert asked is inner
    dear = Counted()
    dear.dear = True
    async with asked_together(dear) as asked:
        await asked.run(["true"])
        await asked.run(["true"])
        assert dear.started == ["sh"]
    assert shells() == []


async def test_in_a_container_one_launcher_answers_everything(tmp_path: Path, inner: Counted) -> None:
    pct = Pct(tmp_path)
    (pct.root / "data" / "log").write_text("line\n")
    async with asked_together(ContainerHost(inner, pct.prefix(), "ct200")) as asked:
        assert (await asked.stat("/data/log")).size == 5
        assert await asked.read("/data/log", 0, 5) == b"line\n"
        assert [entry.name for entry in await asked.list("/data")] == ["log"]
    assert len(inner.started) == 1
    assert inner.started[0].startswith(f"{pct.path} exec 200 -- ")


async def test_a_container_that_stops_meanwhile_says_so(tmp_path: Path, inner: Counted) -> None:
    pct = Pct(tmp_path)
    async with asked_together(ContainerHost(inner, pct.prefix(), "ct200")) as asked:
        await asked.run(["true"])
        pct.set_state("stopped")
        for pid in descendants(os.getpid()):
            if Path(f"/proc/{pid}/root").resolve() == pct.root:
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(HostUnreachable, match="is stopped"):
            await asked.run(["true"])
