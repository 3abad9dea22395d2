"""A transfer is broken off at every point where it can be, and another one ends what it began."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_tui.checkpoints.segments import Late, Literal, Output, Range
from dflash_tui.hosts.base import Process
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import DestinationTaken, TransferCut, TransferError
from tests.transfer.interrupted import MIB, TWO_CHUNKS, BreakingHost, Place, place_in

FEW = 400
"""More commands than any of these transfers sends."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_in(tmp_path)


async def broken_off(
    place: Place, end: str, *outputs: Output | str, at: int, done: bool = False, nbytes: int = 0
) -> bool:
    """Move over a line that breaks for good: whether it did at all. What only spares work may be lost."""
    inner = place.source if end == "source" else place.destination
    host = BreakingHost(inner, at=at, done=done, nbytes=nbytes)
    one = Place(place.there, place.here, place.source, place.destination)
    setattr(one, end, host)
    try:
        await one.move(*outputs, tries=1)
    except TransferError:
        assert host.broken, "a line that held is no reason to fail"
    return host.commands >= at


@pytest.mark.parametrize("end", ["source", "destination"])
@pytest.mark.parametrize("done", [False, True], ids=["before it", "after it"])
async def test_a_transfer_that_was_killed_at_any_command_is_ended_by_the_next(
    place: Place, end: str, done: bool
) -> None:
    data = place.make(TWO_CHUNKS)
    final = place.here / "checkpoint.pt"
    for at in range(1, FEW):
        if not await broken_off(place, end, at=at, done=done, nbytes=CHUNK + MIB):
            return
        assert not final.exists() or final.read_bytes() == data
        had = sum(path.stat().st_size for path in place.here.rglob(".*.part"))
        named = final.exists()
        moved = await place.move()
        assert final.read_bytes() == data
        assert moved.sha256 == {"checkpoint.pt": hashlib.sha256(data).hexdigest()}
        assert place.names() == {"checkpoint.pt"}
        assert moved.bytes <= (0 if named else len(data) - had + CHUNK), f"{at}: more than a chunk was sent again"
        clear(place)
    pytest.fail("the transfer never came to its end")


@pytest.mark.parametrize("done", [False, True], ids=["before it", "after it"])
async def test_what_had_its_name_already_is_known_again_also_without_a_record(place: Place, done: bool) -> None:
    data = place.make(5000)
    late = Late(8, lambda crcs: b"".join(crc.to_bytes(4, "big") for crc in crcs))
    pieces = (Literal(b"head"), Range("checkpoint.pt", 5, 1000), Range("checkpoint.pt", 2000, 500), late)
    other = place.make(3000, "model.safetensors.index.json")
    outputs = (
        Output("slim.pt", pieces),
        Output("slim.pt.slim.json", (Literal(b"{}"),)),
        "model.safetensors.index.json",
    )
    crcs = b"".join(zlib.crc32(part).to_bytes(4, "big") for part in (data[5:1005], data[2000:2500]))
    expected = {
        "slim.pt": b"head" + data[5:1005] + data[2000:2500] + crcs,
        "slim.pt.slim.json": b"{}",
        "model.safetensors.index.json": other,
    }
    for at in range(1, FEW):
        if not await broken_off(place, "destination", *outputs, at=at, done=done):
            return
        await place.move(*outputs)
        assert {name: (place.here / name).read_bytes() for name in place.names()} == expected, at
        clear(place)
    pytest.fail("the transfer never came to its end")


async def test_another_file_that_is_as_long_as_one_with_a_late_end_is_left_alone(place: Place) -> None:
    place.make(5000)
    late = Late(4, lambda crcs: crcs[0].to_bytes(4, "big"))
    place.here.mkdir(parents=True)
    (place.here / "slim.pt").write_bytes(bytes(1004))
    with pytest.raises(DestinationTaken, match="with the same size and another SHA-256"):
        await place.move(Output("slim.pt", (Range("checkpoint.pt", 5, 1000), late)))
    assert (place.here / "slim.pt").read_bytes() == bytes(1004)


def clear(place: Place) -> None:
    for path in sorted(place.here.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    cuts=st.lists(
        st.tuples(
            st.sampled_from(["source", "destination"]),
            st.integers(1, 40),
            st.sampled_from([0, 1, MIB, CHUNK - 1, CHUNK, CHUNK + 1, TWO_CHUNKS - 1, TWO_CHUNKS]),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    )
)
async def test_many_breaks_in_a_row_end_right(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[tuple[str, int, int, bool]]
) -> None:
    place = place_in(tmp_path_factory.mktemp("place"))
    data = place.make(TWO_CHUNKS)
    for end, at, nbytes, done in cuts:
        await broken_off(place, end, at=at, nbytes=nbytes, done=done)
        final = place.here / "checkpoint.pt"
        assert not final.exists() or final.read_bytes() == data
    await place.move()
    assert (place.here / "checkpoint.pt").read_bytes() == data
    assert place.names() == {"checkpoint.pt"}


@pytest.mark.parametrize("end", ["source", "destination"])
async def test_one_command_that_is_lost_is_made_good_by_the_same_transfer(place: Place, end: str) -> None:
    data = place.make(3 * MIB)
    plan = await place.plan()
    for done in (False, True):
        at = 1
        while True:
            host = BreakingHost(LocalHost("ct200" if end == "source" else "ct129"), at=at, done=done, mends=True)
            setattr(place, end, host)
            moved = await place.move(plan=plan)
            assert (place.here / "checkpoint.pt").read_bytes() == data
            assert place.names() == {"checkpoint.pt"}
            assert moved.sha256 == {"checkpoint.pt": hashlib.sha256(data).hexdigest()}
            clear(place)
            if host.commands < at:
                break
            at += 1


SHARDS = ("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors")
INDEX = "model.safetensors.index.json"


async def test_a_folder_of_shards_has_its_index_last_wherever_it_is_broken_off(place: Place) -> None:
    data = {name: place.make(MIB + number, name, seed=number) for number, name in enumerate((*SHARDS, "sub/one.json"))}
    data[INDEX] = place.make(100, INDEX, seed=9)
    at = 0
    while True:
        at += 3
        host = BreakingHost(LocalHost("ct129"), at=at, done=True)
        one = Place(place.there, place.here, place.source, host)
        try:
            await one.move(INDEX, *SHARDS, "sub/one.json", tries=1)
        except TransferError:
            if (place.here / INDEX).exists():
                assert all((place.here / name).exists() for name in (*SHARDS, "sub/one.json"))
        if not host.broken:
            break
        moved = await place.move(INDEX, *SHARDS, "sub/one.json")
        for name, expected in data.items():
            assert (place.here / name).read_bytes() == expected
            assert moved.sha256[name] == hashlib.sha256(expected).hexdigest()
        assert place.names() == set(data)
        clear(place)


async def test_nothing_is_named_before_everything_is_proven(place: Place) -> None:
    data = {name: place.make(MIB, name, seed=number) for number, name in enumerate(SHARDS)}
    plan = await place.plan(*SHARDS)
    (place.there / SHARDS[2]).write_bytes(data[SHARDS[2]][:-1] + b"?")
    os.utime(place.there / SHARDS[2], ns=(0, int(plan.files[2].sources[SHARDS[2]].mtime * 1e9) + 10**9))
    with pytest.raises(TransferError, match="not the file that was planned"):
        await place.move(plan=plan)
    assert place.names() == set()


def damage_it(damage: str, journal: Path, part: Path) -> None:
    """One of the things that happen to files."""
    match damage:
        case "journal gone" | "journal a folder":
            journal.unlink()
            if damage == "journal a folder":
                journal.mkdir()
        case "journal empty":
            journal.write_bytes(b"")
        case "journal noise":
            journal.write_bytes(os.urandom(500))
        case "journal cut":
            os.truncate(journal, journal.stat().st_size - 9)
        case "journal of another plan":
            journal.write_text(journal.read_text().replace('"plan": "', '"plan": "0'))
        case "journal with wrong hashes":
            journal.write_bytes(journal.read_bytes() + b'\n{"n": 0, "sha256": "' + b"0" * 64 + b'"}\n')
        case "part gone":
            part.unlink()
        case "part shorter":
            os.truncate(part, CHUNK // 2)
        case "part longer":
            os.truncate(part, 3 * CHUNK)
        case "part whole, of zeros":
            os.truncate(part, 0)
            os.truncate(part, TWO_CHUNKS)
        case _:
            part.write_bytes(b"x" * (CHUNK + 5))


DAMAGES = (
    "journal gone", "journal a folder", "journal empty", "journal noise", "journal cut", "journal of another plan",
    "journal with wrong hashes", "part gone", "part shorter", "part longer", "part whole, of zeros", "part another",
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_journal_or_part_costs_bytes_and_nothing_else(place: Place, damage: str) -> None:
    data = place.make(TWO_CHUNKS)
    await cut_after(place, CHUNK + MIB)
    (journal,) = place.here.glob(".*.journal")
    damage_it(damage, journal, place.part)
    await place.move()
    assert (place.here / "checkpoint.pt").read_bytes() == data
    if damage != "journal a folder":
        assert place.names() == {"checkpoint.pt"}


async def cut_after(place: Place, nbytes: int) -> None:
    """Break a transfer off once so many bytes were written."""
    one = Place(place.there, place.here, place.source, BreakingHost(place.destination, wire=nbytes))
    with pytest.raises(TransferCut):
        await one.move(tries=1)


class LossyHost(BreakingHost):
    """A host behind a launcher that loses the end of what is written to checkpoint.pt."""

    @contextlib.asynccontextmanager
    async def _stream(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        async with self.inner.stream(argv, stdin=stdin) as process:
            lossy = "conv=notrunc" in " ".join(argv) and ".checkpoint.pt" in " ".join(argv)
            yield _Lossy(process) if lossy else process


class _Lossy:
    def __init__(self, inner: Process) -> None:
        self._inner, self._passed = inner, 0
        self.read, self.close_stdin = inner.read, inner.close_stdin
        self.wait, self.announced = inner.wait, inner.announced

    async def write(self, data: bytes) -> None:
        self._passed += len(data)
        await self._inner.write(data[:-50] if self._passed >= 3 * MIB else data)


async def test_a_small_file_that_is_proven_again_and_again_does_not_make_the_tries_endless(place: Place) -> None:
    place.make(3 * MIB)
    place.make(2, "config.json")
    place.destination = LossyHost(place.destination)
    with pytest.raises(TransferCut, match=r"given up after \d attempts"):
        await place.move("config.json", "checkpoint.pt", tries=2)
    assert place.seen[-1].attempt <= 5
