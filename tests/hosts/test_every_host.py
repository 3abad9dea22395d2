"""What every host must do alike: this machine, real sshd with and without SFTP, busybox containers behind every
launcher, on this machine, over sshd and in one another."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_tui.hosts.base import CommandFailed, FileMissing, Host, HostError, ReadShort, Stat
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.ssh import SshHost
from tests.launchers.boxes import TOOLS, running_box
from tests.pct import Pct
from tests.sshd import processes_with, running_sshd

NAMES = [
    "plain.txt",
    "with space",
    " leading and trailing ",
    'quote\'d "twice" `back` $HOME \\n',
    "ünïcødé 火 🎛",
    "new\nline",
    "-rf",
    "*?[a]",
    "8180 4 1 2 1 ;rm",
    "esc\x1b[31mred",
    "x\n81a4 1 2 3 4 fake",
]


@dataclass
class Place:
    """A host and one of its folders: `folder` in the host's view, `real` in this machine's."""

    host: Host
    folder: str
    real: Path

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"


@pytest.fixture(
    params=[
        "local",
        "ssh",
        "ssh without sftp",
        "container over ssh",
        "container here",
        *TOOLS,
        "docker over ssh",
        "docker in docker",
    ]
)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        data = tmp_path / "data"
        data.mkdir()
        host: Host = LocalHost()
        if "ssh" in request.param:
            keys = tmp_path / "sshd"
            keys.mkdir()
            extra = "" if "without" in request.param else "Subsystem sftp internal-sftp"
            server = stack.enter_context(running_sshd(keys, extra))
            host = SshHost("pve", server.address)
            stack.push_async_callback(host.close)
        if (tool := request.param.split()[0]) in TOOLS:
            yield stack.enter_context(_box(tmp_path, host, tool, request.param.endswith("in docker")))
        elif "container" in request.param:
            (tmp_path / "pct").mkdir()
            pct = Pct(tmp_path / "pct")
            host = ContainerHost(host, pct.prefix(), "ct200")
            yield Place(host, "/data", pct.root / "data")
        else:
            yield Place(host, str(data), data)


@contextmanager
def _box(tmp_path: Path, host: Host, tool: str, nested: bool) -> Iterator[Place]:
    """A container behind `tool` on `host`; `nested`: the launcher runs in a container that sees all of this machine."""
    with ExitStack() as stack:
        for name in ("box", "outer"):
            (tmp_path / name).mkdir()
        outer = None
        if nested:
            outer = stack.enter_context(running_box(tmp_path / "outer", "docker", Path("/")))
            host = ContainerHost(host, outer.prefix(), "outer")
        box = stack.enter_context(running_box(tmp_path / "box", tool, within=outer))
        yield Place(ContainerHost(host, box.prefix(), "box"), "/data", box.root / "data")


async def test_runs_argv_as_it_is_given(place: Place) -> None:
    words = ["a b", "$HOME", "*", "'", '"', "\\", ";", "ü", "", "\n"]
    done = await place.host.run(["sh", "-c", 'for word do printf "%s|" "$word"; done', "sh", *words])
    assert done.text == "".join(f"{word}|" for word in words)


async def test_feeds_stdin_and_returns_every_byte(place: Place) -> None:
    data = os.urandom(3_000_001)
    assert (await place.host.run(["cat"], stdin=data)).stdout == data


async def test_a_failing_command_is_a_sentence_with_its_status_and_reason(place: Place) -> None:
    argv = ["sh", "-c", "echo out; echo first >&2; echo the reason >&2; exit 7"]
    with pytest.raises(CommandFailed, match="the reason") as failure:
        await place.host.run(argv)
    assert failure.value.status == 7
    assert failure.value.stderr == "first\nthe reason\n"
    assert place.host.name in str(failure.value)
    assert (await place.host.run(argv, check=False)).stdout == b"out\n"


async def test_a_command_that_does_not_read_its_input_still_tells_its_status(place: Place) -> None:
    done = await place.host.run(["sh", "-c", "exit 3"], stdin=bytes(20_000_000), check=False)
    assert done.status == 3


async def test_a_killed_command_has_the_status_of_its_signal(place: Place) -> None:
    assert (await place.host.run(["sh", "-c", "kill -9 $$"], check=False)).status == 137


async def test_a_missing_program_is_an_error_of_the_family(place: Place) -> None:
    with pytest.raises(HostError, match="no-such-program"):
        await place.host.run(["no-such-program", "x"])


async def test_a_command_over_its_time_is_stopped(place: Place) -> None:
    with pytest.raises(HostError, match=r"did not end within 0\.5 s"):
        await place.host.run(["sleep", "3456.5"], timeout=0.5)
    await _gone("3456.5")


async def test_cancelling_leaves_no_process(place: Place) -> None:
    task = asyncio.create_task(place.host.run(["sh", "-c", "sleep 4567.5; true"], timeout=60))
    async with asyncio.timeout(10):
        while len(processes_with("sleep\x004567.5")) != 1:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _gone("4567.5")
    assert (await place.host.run(["echo", "alive"])).text == "alive\n"


async def _gone(text: str) -> None:
    async with asyncio.timeout(10):
        while processes_with(text):
            await asyncio.sleep(0.01)


async def test_leaving_a_stream_early_kills_the_command(place: Place) -> None:
    async with place.host.stream(["sh", "-c", "while :; do echo 5678.5; done"]) as process:
        assert (await process.read(5)).startswith(b"5")
    await _gone("5678.5")


async def test_streams_both_ways_at_once(place: Place) -> None:
    async with place.host.stream(["cat"], stdin=True) as process:
        for part in (b"one\n", b"\x00\xff\r\n"):
            await process.write(part)
            assert await process.read() == part
        await process.close_stdin()
        assert await process.read() == b""
        assert (await process.wait()).status == 0


async def test_a_flood_on_stderr_blocks_nothing_and_keeps_its_end(place: Place) -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo $i-012345678901234567890123456789012345678901234567890123456789 >&2; "
    done = await place.host.run(["sh", "-c", script + "i=$((i+1)); done; echo last >&2; echo done"], timeout=60)
    assert done.text == "done\n"
    assert done.stderr.endswith("last\n")
    assert len(done.stderr) <= 64 << 10


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 0), (0, 1), (0, 300_000), (1, 4095), (4095, 2), (4096, 4096), (299_999, 1), (123_457, 65_537), (300_000, 0)],
)
async def test_reads_exactly_the_range(place: Place, offset: int, length: int) -> None:
    data = os.urandom(300_000)
    (place.real / "file").write_bytes(data)
    assert await place.host.read(place.path("file"), offset, length) == data[offset : offset + length]


async def test_reads_a_large_range(place: Place) -> None:
    data = os.urandom(9_000_000)
    (place.real / "file").write_bytes(data)
    assert await place.host.read(place.path("file"), 777, 8_000_001) == data[777 : 777 + 8_000_001]


async def test_reads_many_ranges_of_every_size_in_any_order(place: Place) -> None:
    data = os.urandom(2_500_003)
    (place.real / "it's here").write_bytes(data)
    ranges = [(2_500_000, 3), (0, 30), (511, 2), (512, 512), (5, 0), (100, 9_000), (7, 1_200_001), (0, 30)]
    ranges += [(at, 30) for at in range(1, 2_400_000, 12_345)]
    found = await place.host.read_many(place.path("it's here"), ranges)
    assert found == [data[offset : offset + length] for offset, length in ranges]
    assert await place.host.read_many(place.path("it's here"), []) == []


async def test_a_range_beyond_the_end_is_short(place: Place) -> None:
    (place.real / "file").write_bytes(b"12345")
    for offset, length in ((0, 6), (5, 1), (90_000, 1)):
        with pytest.raises(ReadShort, match="file"):
            await place.host.read(place.path("file"), offset, length)
        with pytest.raises(ReadShort, match="file"):
            await place.host.read_many(place.path("file"), [(0, 1), (offset, length), (1, 1)])


async def test_what_is_missing_is_said_to_be_missing(place: Place) -> None:
    path = place.path("nowhere/at all")
    for attempt in (
        lambda: place.host.read(path, 0, 1),
        lambda: place.host.read(path, 0, 0),
        lambda: place.host.read_many(path, [(0, 1), (5, 6)]),
        lambda: place.host.stat(path),
        lambda: place.host.list(path),
        lambda: place.host.write(path, b""),
    ):
        with pytest.raises(FileMissing, match="nowhere"):
            await attempt()


async def test_a_folder_is_not_read_and_a_file_not_listed(place: Place) -> None:
    (place.real / "file").write_bytes(b"x")
    await _fails(lambda: place.host.read(place.folder, 0, 1))
    await _fails(lambda: place.host.read_many(place.folder, [(0, 1), (5, 6)]))
    await _fails(lambda: place.host.list(place.path("file")))


async def _fails(attempt: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(HostError):
        await attempt()


async def test_stat_tells_kind_size_time_inode_and_links(place: Place) -> None:
    file = place.real / "it's"
    file.write_bytes(b"x" * 1234)
    os.link(file, place.real / "second")
    os.symlink("it's", place.real / "link")
    os.utime(file, (1, 1_700_000_000))
    found = await place.host.stat(place.path("it's"))
    assert (found.kind, found.size, found.mtime, found.links) == ("file", 1234, 1_700_000_000, 2)
    assert found.inode == file.stat().st_ino
    assert await place.host.stat(place.path("link")) == found
    assert (await place.host.stat(place.path("link"), follow=False)).kind == "link"
    assert (await place.host.stat(place.folder)).kind == "folder"
    assert (await place.host.stat("/dev/null" if place.folder != "/data" else "/bin/busybox")).kind != "folder"


@pytest.mark.parametrize("follow", [True, False])
async def test_many_stats_are_what_each_alone_is(place: Place, follow: bool) -> None:
    for name in NAMES:
        (place.real / name).write_bytes(name.encode())
    (place.real / os.fsdecode(b"caf\xe9")).touch()
    (place.real / "folder").mkdir()
    os.symlink("folder", place.real / "to a folder")
    os.symlink("nowhere", place.real / "to nothing")
    names = [*NAMES, os.fsdecode(b"caf\xe9"), "folder", "to a folder", "to nothing"]
    missing = ["gone", "go\nne", "'", "No such file", "-L", "gone/below", "x", "x\n81a4 1 2 3 4"]
    asked = [place.path(name) for pair in zip_longest(names, missing) for name in pair if name is not None]
    expected: list[Stat | None] = []
    for path in asked:
        try:
            expected.append(await place.host.stat(path, follow=follow))
        except FileMissing:
            expected.append(None)
    assert expected.count(None) == len(missing) + follow
    assert await place.host.stat_many(asked, follow=follow) == expected
    assert await place.host.stat_many(asked[::-1] * 2, follow=follow) == expected[::-1] * 2
    assert await place.host.stat_many([]) == []


async def test_thousands_of_stats_are_told_soon(place: Place) -> None:
    names = [f"a folder's __{number}_0.distcp {'x' * 60}" for number in range(2000)]
    for name in names[::2]:
        (place.real / name).write_bytes(name.encode())
    began = time.monotonic()
    found = await place.host.stat_many([place.path(name) for name in names])
    assert time.monotonic() - began < 15  # 2,000 commands take longer in a container
    assert [stat and stat.size for stat in found] == [
        None if number % 2 else len(name) for number, name in enumerate(names)
    ]


async def test_stat_of_four_gigabytes_and_more(place: Place) -> None:
    with (place.real / "sparse").open("wb") as file:
        file.truncate(5_000_000_123)
    assert (await place.host.stat(place.path("sparse"))).size == 5_000_000_123
    assert await place.host.read(place.path("sparse"), 5_000_000_120, 3) == bytes(3)


async def test_lists_hostile_names_and_links(place: Place) -> None:
    for name in NAMES:
        (place.real / name).write_bytes(name.encode())
    (place.real / "folder").mkdir()
    os.symlink("step 4000/with\nnewline", place.real / "latest")
    entries = {entry.name: entry for entry in await place.host.list(place.folder)}
    assert sorted(entries) == sorted([*NAMES, "folder", "latest"])
    assert list(entries) == sorted(entries)
    for name in NAMES:
        assert entries[name].stat.kind == "file"
        assert entries[name].stat.size == len(name.encode())
        assert await place.host.read(place.path(name), 0, len(name.encode())) == name.encode()
    assert entries["folder"].stat.kind == "folder"
    assert (entries["latest"].stat.kind, entries["latest"].target) == ("link", "step 4000/with\nnewline")


async def test_lists_many_links_by_few_commands(place: Place) -> None:
    texts = {f"link{number}": f"{'x' * 150}\n/{number}" for number in range(300)} | {"it's": "\n"}
    for name, text in texts.items():
        os.symlink(text, place.real / name)
    began = time.monotonic()
    assert {entry.name: entry.target for entry in await place.host.list(place.folder)} == texts
    assert time.monotonic() - began < 5  # 300 commands take longer in a container


async def test_lists_names_that_are_not_utf8(place: Place) -> None:
    name = os.fsdecode(b"caf\xe9")
    (place.real / name).write_bytes(b"1")
    assert [entry.name for entry in await place.host.list(place.folder)] == [name]
    assert await place.host.read(place.path(name), 0, 1) == b"1"
    assert (await place.host.stat(place.path(name))).size == 1


async def test_lists_a_large_folder_and_an_empty_one(place: Place) -> None:
    assert await place.host.list(place.folder) == []
    for number in range(3000):
        (place.real / f"step_{number:05d}_{'x' * 80}").touch()
    assert len(await place.host.list(place.folder)) == 3000


async def test_lists_through_a_link_to_a_folder(place: Place) -> None:
    (place.real / "folder").mkdir()
    (place.real / "folder" / "inside").touch()
    os.symlink("folder", place.real / "link")
    assert [entry.name for entry in await place.host.list(place.path("link"))] == ["inside"]


async def test_writes_whole_or_not_at_all(place: Place) -> None:
    data = os.urandom(200_001)
    for content in (data, b"", b"\x00second"):
        await place.host.write(place.path("it's here"), content)
        assert (place.real / "it's here").read_bytes() == content
    (place.real / "folder").mkdir()
    (place.real / "folder" / "full").touch()
    await _fails(lambda: place.host.write(place.path("nowhere/x"), b"1"))
    assert sorted(os.listdir(place.real)) == ["folder", "it's here"]


async def test_a_writing_and_a_failed_writing_leave_no_temporary_file(place: Place) -> None:
    await place.host.write(place.path("x"), b"1")
    task = asyncio.create_task(place.host.write(place.path("y"), bytes(20_000_000)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (place.real / "x").read_bytes() == b"1"
    assert not (place.real / "y").exists() or (place.real / "y").stat().st_size == 20_000_000


async def test_makes_folders(place: Place) -> None:
    await place.host.make_folder(place.path("a/b c/d"))
    await place.host.make_folder(place.path("a/b c/d"))
    await place.host.make_folder(place.path("runs/one"), exclusive=True)
    assert (place.real / "a" / "b c" / "d").is_dir()
    assert (place.real / "runs" / "one").is_dir()
    with pytest.raises(HostError, match="already exists"):
        await place.host.make_folder(place.path("runs/one"), exclusive=True)
    (place.real / "file").touch()
    await _fails(lambda: place.host.make_folder(place.path("file/below")))


async def test_only_one_of_many_makes_an_exclusive_folder(place: Place) -> None:
    tries = [place.host.make_folder(place.path("runs/one"), exclusive=True) for _ in range(5)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert all(result is None or isinstance(result, HostError) for result in results)


async def test_tells_free_space_also_of_folders_to_come(place: Place) -> None:
    here = os.statvfs(place.real)
    for path in (place.folder, place.path("to/come")):
        space = await place.host.free_space(path)
        assert abs(space.bytes - here.f_bavail * here.f_frsize) < 2 << 30
        assert (space.inodes is None) == (here.f_files == 0)


async def test_relative_paths_are_refused_by_remote_hosts(place: Place) -> None:
    if place.host.name != "local":
        for path in ("relative", "-rf", "", "/nul\0byte"):
            await _fails(lambda path=path: place.host.stat(path))  # type: ignore[misc]
            await _fails(lambda path=path: place.host.stat_many(["/", path]))  # type: ignore[misc]
            await _fails(lambda path=path: place.host.read(path, 0, 1))  # type: ignore[misc]
            await _fails(lambda path=path: place.host.list(path))  # type: ignore[misc]


async def test_twenty_commands_at_once(place: Place) -> None:
    done = await asyncio.gather(*(place.host.run(["echo", str(number)]) for number in range(20)))
    assert [one.text for one in done] == [f"{number}\n" for number in range(20)]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=4))
def test_any_argv_arrives_unchanged(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    async def run() -> bytes:
        return (await LocalHost().run(["printf", "%s\\0", *words])).stdout

    expected = b"".join(word.encode() + b"\0" for word in words) or b"\0"
    assert asyncio.run(run()) == expected
