"""Outputs of every kind, carried by engines that work, break, lie and give up."""

from __future__ import annotations

import asyncio
import hashlib
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.checkpoints.segments import Late, Literal, Output, Range
from dflash_tui.hosts.base import Completed, HostUnreachable
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer import filling
from dflash_tui.transfer.engine import CHUNK, Engine, Leg, Passed, Route
from dflash_tui.transfer.errors import DestinationTaken, TransferCorrupt, TransferCut, TransferError
from dflash_tui.transfer.move import move
from dflash_tui.transfer.plan import make_plan
from dflash_tui.transfer.progress import TransferProgress
from dflash_tui.transfer.relaying import RelayEngine
from tests.transfer.interrupted import MIB, TWO_CHUNKS, BreakingHost, Place, place_in


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_in(tmp_path)


class Unseen:
    """An engine through which bytes pass unseen, as they do where they go from host to host. `spoil` is called before
    a leg, and may change the part after it."""

    route: Route = "direct"

    def __init__(
        self, before: Callable[[Leg], None] = lambda leg: None, after: Callable[[Leg], None] = lambda leg: None
    ):
        self._relay, self._before, self._after = RelayEngine(), before, after
        self.legs: list[tuple[int, int]] = []

    async def carry(self, leg: Leg) -> Passed:
        self.legs.append((leg.start, leg.stop))
        self._before(leg)
        await self._relay.carry(replace(leg, arrived=lambda number, sha256: None))
        self._after(leg)
        return Passed()


class Choosing:
    """Chooses the first engine that has not failed; legs of at most `most` bytes."""

    def __init__(self, *engines: Engine, most: int = CHUNK) -> None:
        self.engines, self._most = list(engines), most
        self.rates: list[tuple[Route, int]] = []
        self.sentences: list[str] = []

    async def choose(self, remaining: int) -> tuple[Engine, int]:
        return self.engines[0], min(self._most, remaining)

    def measured(self, engine: Engine, nbytes: int, seconds: float) -> None:
        assert seconds > 0
        self.rates.append((engine.route, nbytes))

    def failed(self, engine: Engine, sentence: str) -> bool:
        self.sentences.append(sentence)
        self.engines.remove(engine)
        return bool(self.engines)


def zipped(place: Place) -> Output:
    """A composed file: ranges of two files, literals between them."""
    data, other = place.make(TWO_CHUNKS), place.make(3 * MIB, "shards/other.bin", seed=3)
    crc = zlib.crc32(data[5 : 5 + CHUNK])
    pieces = (
        Literal(b"head" * 100), Range("checkpoint.pt", 5, CHUNK, crc), Literal(bytes(range(256))),
        Range("shards/other.bin", MIB, MIB), Literal(b"tail"),
    )  # fmt: skip
    expected = b"head" * 100 + data[5 : 5 + CHUNK] + bytes(range(256)) + other[MIB : 2 * MIB] + b"tail"
    place.expected = expected  # type: ignore[attr-defined]
    return Output("slim.pt", pieces)


@pytest.mark.parametrize("by", ["relay", "unseen", "both", "one host"])
async def test_a_composed_file_is_put_together_by_any_engine(place: Place, by: str) -> None:
    output = zipped(place)
    expected: bytes = place.expected  # type: ignore[attr-defined]
    if by == "one host":
        place.destination = place.source
    engines: dict[str, Choosing | None] = {
        "relay": None, "unseen": Choosing(Unseen()), "both": Choosing(Unseen(), RelayEngine()), "one host": None,
    }  # fmt: skip
    chooser = engines[by]
    if by == "both" and chooser is not None:
        first = chooser.engines[0]
        assert isinstance(first, Unseen)
        first._before = lambda leg: chooser.engines.reverse() if leg.start else None
    moved = await place.move(output, "shards/other.bin", chooser=chooser)
    assert (place.here / "slim.pt").read_bytes() == expected
    assert moved.sha256["slim.pt"] == hashlib.sha256(expected).hexdigest()
    assert place.names() == {"slim.pt", "shards/other.bin"}
    if by == "one host":
        assert dict(moved.how) == {"slim.pt": "streamed", "shards/other.bin": "linked"}
        assert dict(moved.routes) == {"same host": len(expected)}
    again = await place.move(output, "shards/other.bin")
    assert again.already_there, "its record knows what it was made of"
    (place.here / ".transfer.json").unlink()
    assert (await place.move(output, "shards/other.bin")).already_there, "its bytes do"


async def test_another_selection_of_the_same_file_is_another_file(place: Place) -> None:
    place.make(3 * MIB)
    await place.move(Output("slim.pt", (Range("checkpoint.pt", 0, MIB),)))
    with pytest.raises(DestinationTaken, match="same size and another SHA-256"):
        await place.plan(Output("slim.pt", (Range("checkpoint.pt", MIB, MIB),)))
    with pytest.raises(TransferError, match=r"checkpoint\.pt has 3,145,728 bytes; slim\.pt needs it up to byte 4,0"):
        await place.plan(Output("slim.pt", (Range("checkpoint.pt", MIB, 3 * 10**6),)))
    with pytest.raises(TransferError, match="two different files are to be called"):
        await place.plan("checkpoint.pt", Output("checkpoint.pt", (Literal(b"x"),)))


async def test_an_end_that_tells_what_passed_is_right_wherever_it_was_broken_off(place: Place) -> None:
    data = place.make(2 * CHUNK)
    half = CHUNK // 2
    pieces = tuple(Range("checkpoint.pt", start, half) for start in range(0, 2 * CHUNK, half))
    late = Late(16, lambda crcs: b"".join(crc.to_bytes(4, "big") for crc in crcs))
    output = Output("late.pt", (Literal(b"x" * MIB), *pieces, late))
    tail = b"".join(zlib.crc32(data[start : start + half]).to_bytes(4, "big") for start in range(0, 2 * CHUNK, half))
    expected = b"x" * MIB + data + tail
    for nbytes in (CHUNK + 3 * MIB, CHUNK + MIB // 2):
        broken = Place(place.there, place.here, place.source, BreakingHost(LocalHost("ct129"), wire=nbytes))
        with pytest.raises(TransferCut):
            await broken.move(output, tries=1)
    moved = await place.move(output)
    assert moved.resumed >= CHUNK
    assert (place.here / "late.pt").read_bytes() == expected
    assert place.names() == {"late.pt"}


async def test_an_engine_that_can_not_work_gives_way_at_the_same_byte(place: Place) -> None:
    data = place.make(3 * CHUNK + 5)

    def refuse(leg: Leg) -> None:
        if leg.start:
            raise TransferError("ct200 does not let itself be used so")

    direct = Unseen(before=refuse)
    chooser = Choosing(direct, RelayEngine())
    moved = await place.move(chooser=chooser)
    assert direct.legs == [(0, CHUNK), (CHUNK, 2 * CHUNK)]
    assert dict(moved.routes) == {"direct": CHUNK, "relay": 2 * CHUNK + 5}
    assert chooser.rates == [("direct", CHUNK), ("relay", CHUNK), ("relay", CHUNK), ("relay", 5)]
    assert chooser.sentences == ["ct200 does not let itself be used so"]
    assert (place.here / "checkpoint.pt").read_bytes() == data
    os.utime(place.there / "checkpoint.pt", (1, 1))
    (place.here / "checkpoint.pt").unlink()
    with pytest.raises(TransferError, match="does not let itself"):
        await place.move(chooser=Choosing(Unseen(before=refuse)))


async def test_an_engine_whose_line_breaks_every_time_is_left(place: Place) -> None:
    data = place.make(2 * CHUNK)

    def cut(leg: Leg) -> None:
        raise HostUnreachable("ct200 lost ct129")

    chooser = Choosing(Unseen(before=cut), RelayEngine())
    moved = await place.move(chooser=chooser)
    assert dict(moved.routes) == {"relay": 2 * CHUNK}
    assert moved.attempts == 3
    assert (place.here / "checkpoint.pt").read_bytes() == data


def flip(leg: Leg, at: int) -> None:
    if leg.start <= at < leg.stop:
        with open(leg.part, "r+b") as file:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("times", [1, 2])
async def test_bytes_that_arrive_wrong_unseen_are_sent_once_more(place: Place, times: int) -> None:
    data = place.make(2 * CHUNK + MIB)
    left = times

    def spoil(leg: Leg) -> None:
        nonlocal left
        if left and leg.start == CHUNK:
            left -= 1
            flip(leg, CHUNK + 77)

    engine = Unseen(after=spoil)
    if times == 1:
        moved = await place.move(chooser=Choosing(engine))
        assert engine.legs == [(0, CHUNK), (CHUNK, 2 * CHUNK), (2 * CHUNK, len(data)), (CHUNK, 2 * CHUNK),
                               (2 * CHUNK, len(data))]  # fmt: skip
        assert moved.sha256["checkpoint.pt"] == hashlib.sha256(data).hexdigest()
        assert (place.here / "checkpoint.pt").read_bytes() == data
    else:
        with pytest.raises(
            TransferCorrupt, match=r"bytes 67,108,864 to 134,217,728 is .*, of the source .*thrown away"
        ):
            await place.move(chooser=Choosing(engine))
    assert place.names() == ({"checkpoint.pt"} if times == 1 else set())


async def test_a_range_that_is_not_what_its_file_states_is_read_twice_and_then_given_up(place: Place) -> None:
    data = place.make(MIB)
    with pytest.raises(TransferCorrupt, match="CRC-32"):
        await place.move(Output("x.pt", (Range("checkpoint.pt", 0, MIB, zlib.crc32(data) ^ 1),)))
    assert place.names() == set()


async def test_verification_is_a_step_of_its_own_with_its_own_count(place: Place) -> None:
    place.make(TWO_CHUNKS)
    await place.move()
    phases = list(dict.fromkeys(told.phase for told in place.seen))
    assert phases == ["planning", "moving", "verifying", "publishing", "done"]
    last = [told for told in place.seen if told.phase == "verifying"][-1]
    assert 0 < last.verified <= last.to_verify
    done = place.seen[-1]
    assert done.verified == done.to_verify == 2 * TWO_CHUNKS
    assert done.route == "relay"


async def test_on_one_host_a_file_of_two_parts_takes_room_and_is_proven(place: Place) -> None:
    data = place.make(5 * MIB)
    host = LocalHost("lab")
    output = Output("both.pt", (Range("checkpoint.pt", MIB, MIB), Literal(b"and"), Range("checkpoint.pt", 0, MIB)))
    plan = await make_plan(host, str(place.there), [output], host, str(place.here))
    place.source = place.destination = host
    moved = await place.move(plan=plan)
    assert (place.here / "both.pt").read_bytes() == data[MIB : 2 * MIB] + b"and" + data[:MIB]
    assert dict(moved.how) == {"both.pt": "streamed"}
    assert (place.there / "checkpoint.pt").read_bytes() == data


class SlowHost(BreakingHost):
    """Puts files together slowly: goes on when somebody has seen how far it is."""

    seen: asyncio.Event

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        if "conv=notrunc" not in " ".join(argv):
            return await super().run(argv, stdin=stdin, timeout=timeout, check=check)
        (part,) = (word for word in argv if word.endswith(".part"))
        Path(part).write_bytes(bytes(MIB))
        await self.seen.wait()
        return await super().run(argv, stdin=stdin, timeout=timeout, check=check)


async def test_on_one_host_it_is_seen_how_far_a_file_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "_LOOK", 0.01)
    place.make(5 * MIB)
    host = SlowHost(LocalHost("lab"))
    host.seen = asyncio.Event()
    output = Output("both.pt", (Range("checkpoint.pt", MIB, MIB), Literal(b"and"), Range("checkpoint.pt", 0, MIB)))
    plan = await make_plan(host, str(place.there), [output], host, str(place.here))

    def emit(progress: TransferProgress) -> None:
        place.seen.append(progress)
        if progress.written == MIB:
            host.seen.set()

    async with asyncio.timeout(30):
        await move(plan, host, host, emit)
    assert MIB in [progress.written for progress in place.seen]
    assert place.seen[-1].written == 2 * MIB + 3
    written = [progress.written for progress in place.seen if progress.phase == "moving"]
    assert written == sorted(written)
