"""What is noted of files that were moved: it spares work, and nothing hangs on it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from dflash_tui.hosts.base import CommandFailed, PermissionRefused, Process
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.record import Identity, Recorded, read_records, write_records
from tests.transfer.interrupted import BreakingHost, Place, place_in


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_in(tmp_path)


class FullHost(BreakingHost):
    """A host on which no record can be written."""

    async def write(self, path: str, data: bytes) -> None:
        if path.endswith("/.transfer.json"):
            raise CommandFailed(f"{self.name}: {path}: No space left on device", 1, "No space left on device")
        await super().write(path, data)


async def test_a_record_that_can_not_be_written_is_a_notice_and_no_failure(place: Place) -> None:
    data = place.make(100_000)
    place.destination = FullHost(LocalHost("ct129"))
    moved = await place.move()
    assert (place.here / "checkpoint.pt").read_bytes() == data
    assert "could not be noted" in moved.notice
    assert "No space left" in moved.notice
    assert (place.seen[-1].phase, place.seen[-1].notice) == ("done", moved.notice)
    again = await place.move()
    assert again.already_there
    assert again.notice


async def test_a_record_that_was_written_is_no_notice(place: Place) -> None:
    place.make(100_000)
    assert (await place.move()).notice == place.seen[-1].notice == ""


async def test_a_long_record_is_read_whole(tmp_path: Path) -> None:
    identity = Identity(1 << 31, 1790000000.123456, 123456789)
    path = "/root/run/checkpoints/step_4000/model-00001-of-09000.safetensors"
    records = {
        f"model-{number:05d}-of-09000.safetensors": Recorded("a" * 64, identity, "ct200", path, identity, "a" * 12)
        for number in range(9000)
    }
    await write_records(LocalHost(), str(tmp_path), records)
    assert (tmp_path / ".transfer.json").stat().st_size > 3 << 20
    assert await read_records(LocalHost(), str(tmp_path)) == records


class CountingHost(BreakingHost):
    """Counts how often the record is read, and programs that hash."""

    read_record = hashed = 0

    async def read(self, path: str, offset: int, length: int) -> bytes:
        self.read_record += path.endswith("/.transfer.json")
        return await super().read(path, offset, length)

    @contextlib.asynccontextmanager
    async def _stream(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        self.hashed += "sha256" in " ".join(argv)
        async with self.inner.stream(argv, stdin=stdin) as process:
            yield process


async def test_the_record_is_read_once_for_all_files(place: Place) -> None:
    names = [f"{number}.bin" for number in range(5)]
    for name in names:
        place.make(10, name)
    await place.move(*names)
    place.destination = counting = CountingHost(LocalHost("ct129"))
    plan = await place.plan(*names)
    assert plan.to_move == 0
    assert (counting.read_record, counting.hashed) == (1, 0)


async def test_a_record_that_is_nonsense_costs_a_hash(place: Place) -> None:
    place.make(10)
    await place.move()
    (place.here / ".transfer.json").write_text(json.dumps({"version": 1, "files": {"checkpoint.pt": [os.sep]}}))
    place.destination = counting = CountingHost(LocalHost("ct129"))
    assert (await place.plan()).to_move == 0
    assert counting.hashed


@pytest.mark.parametrize("kind", ["a folder", "a link", "no file"])
async def test_a_record_that_is_no_file_is_refused_before_a_byte_moves(place: Place, kind: str) -> None:
    place.make(100_000)
    record = place.here / ".transfer.json"
    place.here.mkdir(parents=True)
    match kind:
        case "a folder":
            record.mkdir()
        case "a link":
            record.symlink_to("nowhere")
        case _:
            os.mkfifo(record)
    sentence = (
        f"ct129:{record} is {kind}, and every transfer keeps its record in a file of that name; move it away or name "
        "another folder"
    )
    with pytest.raises(TransferError) as refusal:
        await place.plan()
    assert str(refusal.value) == sentence
    assert [path.name for path in place.here.iterdir()] == [".transfer.json"]


async def test_a_record_that_may_not_be_read_is_refused_before_a_byte_moves(place: Place) -> None:
    class Refusing(LocalHost):
        async def read(self, path: str, offset: int, length: int) -> bytes:
            raise PermissionRefused(f"{self.name}: {path} may not be used by this user: Permission denied")

    place.make(100_000)
    place.here.mkdir(parents=True)
    (place.here / ".transfer.json").write_text("{}")
    place.destination = Refusing("ct129")
    with pytest.raises(TransferError) as refusal:
        await place.plan()
    assert str(refusal.value) == (
        f"ct129:{place.here}/.transfer.json can't be read by this user, and every transfer keeps its record in a file "
        "of that name; move it away or name another folder"
    )
    assert place.names() == set()


async def test_a_folder_with_the_records_name_that_comes_meanwhile_is_a_notice(place: Place) -> None:
    data = place.make(100_000)
    plan = await place.plan()
    (place.here / ".transfer.json").mkdir(parents=True)
    moved = await place.move(plan=plan)
    assert (place.here / "checkpoint.pt").read_bytes() == data
    assert "could not be noted there" in moved.notice
    assert "is a folder" in moved.notice
