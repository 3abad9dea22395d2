"""Two system `ssh` and a pipe: every byte arrives, cuts are cuts, and nothing of it is left running."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from dflash_tui.checkpoints.segments import Late, Literal, Output, Range
from dflash_tui.hosts.base import HostUnreachable, ReadShort
from dflash_tui.transfer.engine import Leg
from dflash_tui.transfer.errors import NoSpace, SourceChanged, TransferError
from dflash_tui.transfer.joined import JoinedEngine, unusable
from dflash_tui.transfer.writing import writing
from tests.sshd import need, processes_with
from tests.transfer.lab import MIB, Place, Told, fill, leg, place
from tests.workstation import until

SIZE = 24 * MIB + 12_345


class Acting(Told):
    """Does something once, when so many bytes are going to pass."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        super().__init__()
        self._at, self._act, self.acted = at, act, False

    async def pace(self, nbytes: int) -> None:
        await super().pace(nbytes)
        if self.paced > self._at and not self.acted:
            self.acted = True
            await asyncio.to_thread(self._act)


@pytest.fixture(params=["ssh ssh", "pct ssh", "ssh pct", "ssh docker", "local ssh", "ssh local"])
async def places(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Place, Place]]:
    first, second = request.param.split()
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(place(first, tmp_path / "source", "train"))
        destination = await stack.enter_async_context(place(second, tmp_path / "destination", "eval"))
        yield source, destination


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Place, Place]]:
    async with (
        place("ssh", tmp_path / "source", "train") as source,
        place("ssh", tmp_path / "destination", "eval") as destination,
    ):
        yield source, destination


def nothing_is_left(tmp_path: Path) -> None:
    """No `ssh` here, no command of ours there: all of them name a file in the test's folder."""
    until(lambda: not _running(tmp_path), f"the end of {_running(tmp_path)}", seconds=20)


def _running(tmp_path: Path) -> list[str]:
    found = []
    for pid in processes_with(str(tmp_path)):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[0].rsplit(b"/", 1)[-1] in (b"ssh", b"dd", b"sh", b"dflash", b"pct"):
                found.append(b" ".join(words).decode("utf-8", "replace")[:200])
    return found


def ssh_programs(place: Place) -> list[int]:
    """The `ssh` of this machine that lead to a place."""
    assert place.sshd is not None
    found = []
    for pid in processes_with(f"{place.sshd.folder}/client_key"):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "ssh":
                found.append(pid)
    return found


async def test_every_byte_arrives_from_the_start_and_from_the_middle(
    places: tuple[Place, Place], tmp_path: Path
) -> None:
    source, destination = places
    data = fill(source.real / "f'ü", SIZE)
    header = bytes(range(256)) * 3
    output = Output("f", (Literal(header), Range("f'ü", 5, SIZE - 5), Range("f'ü", 0, 3), Literal(b"%\n'\\")))
    expected = header + data[5:] + data[:3] + b"%\n'\\"
    engine, told = JoinedEngine(), Told()
    assert await unusable(source.host, destination.host) == ""
    await engine.carry(leg(source, output, destination, told, stop=20 * MIB))
    part = destination.real / ".x.part"
    assert part.read_bytes() == expected[: 20 * MIB]
    assert engine.started_seconds > 0
    part.write_bytes(part.read_bytes() + b"what a writer before had sent beyond it")
    await engine.carry(leg(source, output, destination, told, start=20 * MIB))
    assert part.read_bytes() == expected
    assert (told.read, told.written, told.paced) == (len(expected),) * 3
    assert told.chunks == {}  # nobody here saw them
    assert os.listdir(destination.real) == [".x.part"]
    nothing_is_left(tmp_path)


async def test_an_empty_file_arrives(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    (source.real / "f").touch()
    await JoinedEngine().carry(leg(source, Output("f", (Range("f", 0, 0),)), destination, Told()))
    assert (destination.real / ".x.part").read_bytes() == b""


@pytest.mark.parametrize("end", ["source", "destination"])
@pytest.mark.parametrize("how", ["ssh killed", "sessions killed"])
async def test_a_cut_is_a_cut_and_can_be_continued(
    pair: tuple[Place, Place], tmp_path: Path, end: str, how: str
) -> None:
    source, destination = pair
    data = fill(source.real / "f", 8 * SIZE)
    output = Output("f", (Range("f", 0, len(data)),))
    there = source if end == "source" else destination

    def cut() -> None:
        assert there.sshd is not None
        if how == "ssh killed":
            for pid in ssh_programs(there):
                os.kill(pid, signal.SIGKILL)
        else:
            there.sshd.kill_sessions()

    told, engine = Acting(60 * MIB, cut), JoinedEngine()
    with pytest.raises((HostUnreachable, ReadShort)):
        await engine.carry(leg(source, output, destination, told))
    assert told.acted
    nothing_is_left(tmp_path)
    part = destination.real / ".x.part"
    arrived = part.read_bytes()
    assert 0 < len(arrived) < len(data)
    assert arrived == data[: len(arrived)]
    await engine.carry(leg(source, output, destination, Told(), start=len(arrived) // MIB * MIB))
    assert part.read_bytes() == data


@pytest.mark.parametrize("kind", ["ssh", "pct", "docker"])
async def test_cancelled_it_leaves_nothing_running(tmp_path: Path, kind: str) -> None:
    async with (
        place(kind, tmp_path / "source", "train") as source,
        place(kind, tmp_path / "destination", "eval") as destination,
    ):
        data = fill(source.real / "f", 8 * SIZE)
        waiting = asyncio.Event()

        class Held(Told):
            async def pace(self, nbytes: int) -> None:
                await super().pace(nbytes)
                if self.paced > 30 * MIB:
                    waiting.set()
                    await asyncio.Event().wait()

        work = asyncio.create_task(
            JoinedEngine().carry(leg(source, Output("f", (Range("f", 0, len(data)),)), destination, Held()))
        )
        await waiting.wait()
        assert _running(tmp_path)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        nothing_is_left(tmp_path)
        for there in (source, destination):
            # In a container, too, where no launcher tells what goes on.
            for applet in ("dd", "cat"):
                assert not _inside(there, applet), applet


def _inside(place: Place, applet: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[0].decode() == applet and (entry / "root").samefile(place.real.parent):
                    found.append(b" ".join(words).decode())
    return found


async def test_a_writer_that_was_left_behind_is_ended_first(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    data = fill(source.real / "f", SIZE)
    part = f"{destination.folder}/.x.part"
    async with destination.host.stream(writing(part, 0, SIZE), stdin=True) as orphan:
        await orphan.write(b"bytes that come late")
        until(lambda: Path(part).exists() and Path(part).stat().st_size, "the orphan's bytes")
        told = Told()
        await JoinedEngine().carry(leg(source, Output("f", (Range("f", 0, SIZE),)), destination, told))
        assert (await orphan.wait()).status == 128 + 9
    assert Path(part).read_bytes() == data
    assert (told.read, told.written) == (SIZE, SIZE)


async def test_a_source_that_ends_early_is_short(pair: tuple[Place, Place], tmp_path: Path) -> None:
    source, destination = pair
    fill(source.real / "f", SIZE)
    with pytest.raises(ReadShort, match=r"train:.*/f ended after .* of"):
        await JoinedEngine().carry(leg(source, Output("f", (Range("f", 0, SIZE + 1),)), destination, Told()))
    nothing_is_left(tmp_path)


async def test_a_source_that_is_gone_is_said(pair: tuple[Place, Place], tmp_path: Path) -> None:
    source, destination = pair
    fill(source.real / "f", SIZE)
    output = Output("f", (Range("f", 0, 10), Range("nothing", 0, 10)))
    with pytest.raises(SourceChanged, match="is gone"):
        await JoinedEngine().carry(leg(source, output, destination, Told()))
    nothing_is_left(tmp_path)


async def test_a_full_disk_is_said_and_ends_everything(tmp_path: Path) -> None:
    need(os.geteuid() == 0, "mounting, which needs root,")
    async with (
        place("ssh", tmp_path / "source", "train") as source,
        place("ssh", tmp_path / "destination", "eval") as destination,
    ):
        (destination.real / "small").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", destination.real / "small"], check=True)
        try:
            fill(source.real / "f", SIZE)
            output = Output("f", (Range("f", 0, SIZE),))
            with pytest.raises(NoSpace, match=r"eval:.*full"):
                await JoinedEngine().carry(leg(source, output, destination, Told(), part="small/.x.part"))
            nothing_is_left(tmp_path)
        finally:
            subprocess.run(["umount", "-l", destination.real / "small"], check=True)


class Elsewhere:
    """A host of which this machine's `ssh` is told another way than ours: to `other`."""

    def __init__(self, host: object, other: object) -> None:
        self._host, self._other = host, other

    def __getattr__(self, name: str) -> object:
        return getattr(self._other if name == "system_command" else self._host, name)


@pytest.mark.parametrize("end", ["source", "destination"])
async def test_ssh_that_gets_to_another_machine_carries_nothing(tmp_path: Path, end: str) -> None:
    async with (
        place("pct", tmp_path / "source", "train") as source,
        place("pct", tmp_path / "destination", "eval") as destination,
        place("pct", tmp_path / "other", "other") as other,
    ):
        fill(source.real / "f", SIZE)
        fill(other.real / "f", SIZE)
        there = source if end == "source" else destination
        there.host = Elsewhere(there.host, other.host)  # type: ignore[assignment]
        told = Told()
        with pytest.raises(TransferError, match="another machine"):
            await JoinedEngine().carry(leg(source, Output("f", (Range("f", 0, SIZE),)), destination, told))
        assert told.paced == 0
        assert os.listdir(destination.real) == []
        assert os.listdir(other.real) == ["f"]


async def test_where_nobody_lets_ssh_in_it_is_not_usable(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    assert source.sshd is not None
    await source.host.run(["true"])  # our own connection stands
    (source.sshd.folder / "authorized_keys").write_text("")
    assert "does not get to train: " in (sentence := await unusable(source.host, destination.host))
    assert "Permission denied" in sentence


def _late(crc: int | None) -> tuple[Output, list[list[int]]]:
    built: list[list[int]] = []

    def build(crcs: object) -> bytes:
        built.append(list(crcs))  # type: ignore[call-overload]
        return b"end!"

    return Output("f", (Range("f", 0, SIZE, crc), Late(4, build))), built


async def test_an_end_that_hangs_on_unseen_bytes_is_refused_before_any_of_them_passes(
    pair: tuple[Place, Place],
) -> None:
    source, destination = pair
    fill(source.real / "f", SIZE)
    output, _ = _late(None)
    told = Told()
    with pytest.raises(TransferError, match="CRC-32"):
        await JoinedEngine().carry(leg(source, output, destination, told, stop=MIB))
    assert told.paced == 0


async def test_an_end_that_the_source_s_own_sums_make_is_brought(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    data = fill(source.real / "f", SIZE)
    output, built = _late(77)
    made: Leg = leg(source, output, destination, Told())
    await JoinedEngine().carry(made)
    assert built == [[77]]
    assert (destination.real / ".x.part").read_bytes() == data + b"end!"
