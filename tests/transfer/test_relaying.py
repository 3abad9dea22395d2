"""Legs through this process, between real hosts: what arrives, what is told of it, and what goes wrong."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_tui.checkpoints.segments import Late, Literal, Output, Range
from dflash_tui.hosts.base import HostUnreachable, ReadShort
from dflash_tui.transfer import relaying
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import NoSpace, SourceChanged, TransferCorrupt, TransferError
from dflash_tui.transfer.relaying import RelayEngine
from tests.sshd import need, processes_with
from tests.transfer.lab import MIB, Place, Told, fill, leg, place

KINDS = ("ssh", "pct", "docker", "local")


@pytest.fixture(params=["ssh to ssh", "pct to ssh", "ssh to pct", "docker to local", "local to docker"])
async def ends(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Place, Place]]:
    async with AsyncExitStack() as stack:
        one, _, two = request.param.split()
        source = await stack.enter_async_context(place(one, tmp_path / "one", "ct200"))
        yield source, await stack.enter_async_context(place(two, tmp_path / "two", "ct129"))


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Place, Place]]:
    """Two sshds."""
    async with place("ssh", tmp_path / "one", "ct200") as source, place("ssh", tmp_path / "two", "ct129") as target:
        yield source, target


def chunks(data: bytes) -> dict[int, str]:
    return {at // CHUNK: hashlib.sha256(data[at : at + CHUNK]).hexdigest() for at in range(0, len(data), CHUNK)}


async def test_a_composed_file_arrives_with_its_hashes_told(ends: tuple[Place, Place]) -> None:
    source, target = ends
    data = fill(source.real / "it's a $HOME.pt", 5 * MIB)
    other = fill(source.real / "new\nline", MIB + 1)
    head = bytes(range(256)) * 9 + b"%s\\n'\"\0 \x00"
    tail = Late(8, lambda crcs: b"".join(crc.to_bytes(4, "little") for crc in crcs))
    stated = zlib.crc32(data[100 : 3 * MIB])
    output = Output(
        "x.pt", (
            Literal(head),
            Range("it's a $HOME.pt", 100, 3 * MIB - 100, stated),
            Literal(b"\0" * 63),
            Range("new\nline", 1, MIB),
            tail,
        ),
    )  # fmt: skip
    told = Told()
    passed = await RelayEngine().carry(leg(source, output, target, told))
    crcs = (stated, zlib.crc32(other[1:]))
    expected = head + data[100 : 3 * MIB] + b"\0" * 63 + other[1:] + tail.build(crcs)
    assert (target.real / ".x.part").read_bytes() == expected
    assert dict(passed.crcs) == {1: crcs[0], 3: crcs[1]}
    assert told.chunks == chunks(expected)
    assert (told.read, told.written) == (output.size, output.size)
    assert told.paced == output.size - tail.nbytes


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1])
async def test_files_of_every_size_arrive(two: tuple[Place, Place], size: int) -> None:
    source, target = two
    data = fill(source.real / "a", size)
    told = Told()
    await RelayEngine().carry(leg(source, Output("a", (Range("a", 0, size),)), target, told))
    assert (target.real / ".x.part").read_bytes() == data
    assert told.chunks == chunks(data)


async def test_legs_in_turn_make_the_file_and_what_lay_beyond_is_cut(two: tuple[Place, Place]) -> None:
    source, target = two
    data = fill(source.real / "a", 2 * CHUNK + 4321)
    end = Late(4, lambda crcs: crcs[0].to_bytes(4, "little"))
    output = Output("a", (Literal(b"head"), Range("a", 0, len(data)), end))
    whole = b"head" + data + zlib.crc32(data).to_bytes(4, "little")
    (target.real / ".x.part").write_bytes(b"x" * (3 * CHUNK))
    told, engine = Told(), RelayEngine()
    for start in range(0, output.size, CHUNK):
        stop = min(start + CHUNK, output.size)
        # The range passes in three pieces, so that its CRC-32 comes from elsewhere.
        one = leg(source, output, target, told, start=start, stop=stop)
        await engine.carry(replace(one, crcs={1: zlib.crc32(data)}))
    assert (target.real / ".x.part").read_bytes() == whole
    assert told.chunks == chunks(whole)


async def test_an_end_that_needs_an_unknown_crc_is_refused_with_its_place(two: tuple[Place, Place]) -> None:
    source, target = two
    fill(source.real / "a", CHUNK + 10)
    output = Output("a", (Range("a", 0, CHUNK + 10), Late(4, lambda crcs: bytes(4))))
    with pytest.raises(TransferError, match=r"67,108,874 bytes at offset 0 is unknown"):
        await RelayEngine().carry(leg(source, output, target, Told(), start=CHUNK))


async def test_an_end_that_lies_across_a_chunks_edge_is_written_by_both_legs(two: tuple[Place, Place]) -> None:
    source, target = two
    data = fill(source.real / "a", CHUNK - 5)
    end = bytes(range(20))
    output = Output("a", (Range("a", 0, CHUNK - 5), Late(20, lambda crcs: end)))
    told, engine = Told(), RelayEngine()
    first = await engine.carry(leg(source, output, target, told, stop=CHUNK))
    await engine.carry(replace(leg(source, output, target, told, start=CHUNK), crcs=first.crcs))
    assert (target.real / ".x.part").read_bytes() == data + end
    assert told.chunks == chunks(data + end)


async def test_a_flipped_byte_of_the_source_names_the_record(two: tuple[Place, Place]) -> None:
    source, target = two
    data = bytearray(fill(source.real / "a", 3 * MIB))
    crc = zlib.crc32(data[MIB : 2 * MIB])
    data[MIB + 7] ^= 1
    (source.real / "a").write_bytes(data)
    output = Output("x.pt", (Literal(b"head"), Range("a", 0, MIB), Range("a", MIB, MIB, crc), Range("a", 2 * MIB, MIB)))
    with pytest.raises(TransferCorrupt, match=r"ct200:.*/a: the 1,048,576 bytes at offset 1,048,576 .byte 1,048,580"):
        await RelayEngine().carry(leg(source, output, target, Told()))


@pytest.mark.parametrize("crc", [None, 5])
async def test_a_source_that_shrank_is_never_called_corrupt(two: tuple[Place, Place], crc: int | None) -> None:
    source, target = two
    fill(source.real / "a", 3 * MIB)
    output = Output("a", (Range("a", 0, 4 * MIB, crc), Range("a", 0, 100)))
    with pytest.raises((ReadShort, SourceChanged), match=r"ended after|has shrunk"):
        await RelayEngine().carry(leg(source, output, target, Told()))


async def test_a_source_that_is_gone_has_changed(ends: tuple[Place, Place]) -> None:
    source, target = ends
    with pytest.raises(SourceChanged, match="gone since the transfer was planned"):
        await RelayEngine().carry(leg(source, Output("a", (Range("gone", 0, 10),)), target, Told()))


async def test_a_folder_that_is_not_there_can_not_be_written(ends: tuple[Place, Place]) -> None:
    source, target = ends
    fill(source.real / "a", 3 * MIB)
    output = Output("a", (Range("a", 0, 3 * MIB),))
    with pytest.raises(TransferError, match=r"ct129:.*can't be written"):
        await RelayEngine().carry(leg(source, output, target, Told(), part="none/x.part"))


async def test_a_disk_without_room_is_told_before_a_byte_is_written(two: tuple[Place, Place], small: Path) -> None:
    source, target = two
    fill(source.real / "a", 9 * MIB)
    one = leg(source, Output("a", (Range("a", 0, 9 * MIB),)), target, Told())
    with pytest.raises(NoSpace, match="disk or quota is full"):
        await RelayEngine().carry(replace(one, part=str(small / "x.part")))
    assert (small / "x.part").stat().st_size == 0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    need(os.geteuid() == 0, "mount, which needs root,")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


async def ended(text: str) -> None:
    """Wait until no process has this text in its command line."""
    async with asyncio.timeout(20):
        while processes_with(text):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["ssh", "docker"])
async def test_a_writer_that_a_broken_line_left_behind_is_ended_first(tmp_path: Path, kind: str) -> None:
    async with place("local", tmp_path / "one", "here") as source, place(kind, tmp_path / "two", "ct129") as target:
        data = fill(source.real / "a", 3 * MIB)
        output = Output("a", (Range("a", 0, len(data)),))
        await RelayEngine().carry(leg(source, output, target, Told()))
        # What an sshd that has not noticed anything keeps: the same command, still reading.
        from dflash_tui.transfer.writing import writing

        part = f"{target.folder}/.x.part"
        async with target.host.stream(writing(part, 0, len(data)), stdin=True) as orphan:
            await orphan.write(b"old")
            async with asyncio.timeout(20):
                while (target.real / ".x.part").read_bytes()[:3] != b"old":
                    await asyncio.sleep(0.01)
            told = Told()
            await RelayEngine().carry(leg(source, output, target, told))
            assert (target.real / ".x.part").read_bytes() == data
            assert (told.read, told.written) == (len(data), len(data))
            done = await orphan.wait()
            assert done.status == 128 + 9
        assert (target.real / ".x.part").read_bytes() == data


async def test_a_part_that_stays_held_is_given_up_with_its_name(
    two: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two
    fill(source.real / "a", MIB)
    monkeypatch.setattr(relaying, "_FREEING", (0.0, 0.01))
    monkeypatch.setattr(relaying, "free", lambda part: ["true"])
    holder = subprocess.Popen(["flock", target.real / ".x.part", "sleep", "100"])
    try:
        async with asyncio.timeout(20):
            while not (target.real / ".x.part").exists():
                await asyncio.sleep(0.01)
        told = Told()
        with pytest.raises(TransferError, match=r"\.x\.part is held open by another program"):
            await RelayEngine().carry(leg(source, Output("a", (Range("a", 0, MIB),)), target, told))
        assert (told.read, told.written) == (0, 0)
    finally:
        holder.kill()
        holder.wait()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 12 * MIB - 1), end=st.sampled_from(["source", "destination"]))
async def test_a_cut_anywhere_leaves_a_beginning_of_the_file_and_no_command(
    two: tuple[Place, Place], at: int, end: str
) -> None:
    source, target = two
    data = (source.real / "a").read_bytes() if (source.real / "a").exists() else fill(source.real / "a", 12 * MIB)
    output = Output("a", (Range("a", 0, len(data)),))
    (target.real / ".x.part").unlink(missing_ok=True)
    sshd = (source if end == "source" else target).sshd
    assert sshd is not None
    told = Told()
    one = leg(source, output, target, told)

    def cut(read: int, written: int) -> None:
        before = told.read if end == "source" else told.written
        told.count(read, written)
        after = told.read if end == "source" else told.written
        if before <= at < after:
            sshd.kill_sessions()

    with suppress(HostUnreachable, ReadShort):
        # All of it may have been on its way already when the line broke.
        await RelayEngine().carry(replace(one, count=cut))
    part = target.real / ".x.part"
    # The writer that is left behind still writes what it has; nobody waits longer for it than the next leg's `free`.
    await RelayEngine().carry(leg(source, output, target, told))
    assert part.read_bytes() == data
    await ended(str(part))
    await ended(f"{source.folder}/a")


async def test_cancelling_ends_the_commands_at_both_ends(ends: tuple[Place, Place]) -> None:
    source, target = ends
    fill(source.real / "a", 64 * MIB)
    output = Output("a", (Range("a", 0, 64 * MIB),))
    begun = asyncio.Event()

    async def pace(nbytes: int) -> None:
        begun.set()
        await asyncio.sleep(100)

    one = replace(leg(source, output, target, Told(), part=".cancelled.part"), pace=pace)
    carrying = asyncio.create_task(RelayEngine().carry(one))
    async with asyncio.timeout(20):
        await begun.wait()
    carrying.cancel()
    with suppress(asyncio.CancelledError):
        await carrying
    await ended(".cancelled.part")
    await ended(f"if={source.folder}/a")


async def test_a_silent_line_is_a_cut(two: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = two
    monkeypatch.setattr(relaying, "_STALL_SECONDS", 0.5)
    os.mkfifo(source.real / "a")
    with pytest.raises(HostUnreachable, match="no byte moved"):
        await RelayEngine().carry(leg(source, Output("a", (Range("a", 0, 10),)), target, Told()))


async def test_a_program_that_no_buffer_holds_is_fed_as_slowly_as_its_bytes_may_pass(
    two: tuple[Place, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two
    monkeypatch.setattr(relaying, "_STALL_SECONDS", 1.5)
    data, end = fill(source.real / "a", 8 * MIB), os.urandom(400_000)

    async def pace(nbytes: int) -> None:
        await asyncio.sleep(nbytes / (2 * MIB))

    output = Output("a", (Range("a", 0, 8 * MIB), Literal(end)))
    await RelayEngine().carry(replace(leg(source, output, target, Told()), pace=pace))
    assert (target.real / ".x.part").read_bytes() == data + end


async def test_a_limit_is_kept(two: tuple[Place, Place]) -> None:
    from dflash_tui.transfer.pace import Shared

    source, target = two
    fill(source.real / "a", 6 * MIB)
    one = leg(source, Output("a", (Range("a", 0, 6 * MIB),)), target, Told())
    loop = asyncio.get_running_loop()
    began = loop.time()
    await RelayEngine().carry(replace(one, pace=Shared(4 * MIB).lane()))
    assert loop.time() - began > 0.9


_MEASURED = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from dflash_tui.checkpoints.segments import Output, Range
from dflash_tui.transfer.pace import Shared
from dflash_tui.transfer.relaying import RelayEngine
from tests.transfer.lab import MIB, Told, leg, place

async def main(folder, size, limit):
    async with place("ssh", folder / "one", "a") as source, place("ssh", folder / "two", "b") as target:
        with (source.real / "a").open("wb") as file:
            file.truncate(size)
        one = leg(source, Output("a", (Range("a", 0, size),)), target, Told())
        await RelayEngine().carry(replace(one, pace=Shared(limit or None).lane()))
    # Not ru_maxrss: it counts what the parent had at the fork.
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))

asyncio.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
"""


@pytest.mark.parametrize(
    ("size", "limit"), [(512 * MIB, 0), (256 * MIB, 32 * MIB)], ids=["fast", "slower than it comes"]
)
def test_memory_stays_below_100_mb(tmp_path: Path, size: int, limit: int) -> None:
    command = [sys.executable, "-c", _MEASURED, str(tmp_path), str(size), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100_000
