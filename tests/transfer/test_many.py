"""Thousands of files are looked at by few commands, none of them too long; names that transfers keep are nobody's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from dflash_tui.hosts.base import Process
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import DestinationTaken, SourceChanged, TransferError
from dflash_tui.transfer.move import Moved, move
from dflash_tui.transfer.plan import TransferPlan, kept_of, make_plan
from dflash_tui.transfer.portions import batches, portions, remove_files
from dflash_tui.transfer.progress import TransferProgress
from dflash_tui.transfer.record import Identity, Recorded, write_records
from dflash_tui.transfer.space import look_for_room, missing_room
from tests.sshd import running_sshd
from tests.transfer import lab
from tests.transfer.interrupted import Place, place_in


def test_portions_hold_all_in_order() -> None:
    paths = [f"/a/folder with 'quotes'/{number:0{number % 200}}" for number in range(3000)]
    cut = list(portions(paths))
    assert [path for some in cut for path in some] == paths
    assert max(sum(map(len, some)) for some in cut) < 60_000
    assert list(portions([])) == []
    assert list(portions(["x" * 100_000, "y"])) == [["x" * 100_000], ["y"]]


async def test_three_thousand_parts_are_looked_at_and_removed_over_ssh(tmp_path: Path) -> None:
    (tmp_path / "sshd").mkdir()
    folder = tmp_path / "a folder of shards"
    folder.mkdir()
    parts = {str(folder / f".model-{number:05d}-of-03000.safetensors.part"): 1 << 40 for number in range(3000)}
    for part in parts:
        Path(part).write_bytes(bytes(4096))
    with running_sshd(tmp_path / "sshd") as server:
        host = SshHost("ct129", server.address)
        try:
            assert len((await look_for_room(host, str(folder), list(parts))).held) == 3000
            assert await missing_room(host, str(folder), parts) > 2999 << 40
            await remove_files(host, list(parts))
        finally:
            await host.close()
    assert not list(folder.iterdir())


class Counting(SshHost):
    """Counts the commands that are started on it, and the questions that SFTP is asked one by one."""

    asked = 0

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        Counting.asked += 1
        return super().stream(argv, stdin=stdin)

    async def read(self, path: str, offset: int, length: int) -> bytes:
        Counting.asked += 1
        return await super().read(path, offset, length)


SHARDS = 2000
ENOUGH = 40
"""Round trips to both ends together, of which a container's take one each."""


@pytest.fixture(params=["ssh", "pct"])
async def ends(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[lab.Place, lab.Place]]:
    monkeypatch.setattr(lab, "SshHost", Counting)
    async with (
        lab.place(request.param, tmp_path / "from", "ct200") as source,
        lab.place(request.param, tmp_path / "to", "ct129") as target,
    ):
        yield source, target


def shards(folder: Path, count: int = SHARDS) -> list[str]:
    names = [f"it's __{number}_0.distcp" for number in range(count)]
    for number, name in enumerate(names):
        (folder / name).write_bytes(b"%d" % number)
    return names


async def test_a_checkpoint_of_thousands_of_shards_is_planned_by_few_commands(
    ends: tuple[lab.Place, lab.Place],
) -> None:
    source, target = ends
    names = shards(source.real)

    async def plan() -> TransferPlan:
        Counting.asked = 0
        made = await make_plan(source.host, source.folder, names, target.host, f"{target.folder}/run")
        assert Counting.asked <= ENOUGH
        return made

    first = await plan()
    assert len(first.files) == SHARDS
    assert first.to_move == first.total == sum(len(str(number)) for number in range(SHARDS))
    # Some of them have begun, others are there.
    here = target.real / "run"
    here.mkdir()
    records = {}
    for file in first.files[:1500]:
        path = here / file.name
        path.write_bytes(bytes(file.size))
        its = (await target.host.stat(first.final_path(file))) if file is first.files[0] else None
        known = Identity(file.size, float(int(path.stat().st_mtime)), path.stat().st_ino)
        assert its is None or Identity.of(its) == known
        records[file.name] = Recorded("a" * 64, known, "ct200", first.source_path(file), None, file.plan_id)
    await write_records(target.host, first.destination_folder, records)
    for file in first.files[1500:]:
        (here / Path(first.part_path(file)).name).write_bytes(b"")
    second = await plan()
    assert [bool(file.present) for file in second.files] == [True] * 1500 + [False] * 500
    assert [bool(file.part) for file in second.files] == [False] * 1500 + [True] * 500
    Counting.asked = 0
    assert await kept_of(second, target.host) == 0
    assert Counting.asked <= ENOUGH


async def test_thousands_of_sources_are_checked_by_few_commands_before_a_byte_moves(
    ends: tuple[lab.Place, lab.Place],
) -> None:
    source, target = ends
    names = shards(source.real)
    plan = await make_plan(source.host, source.folder, names, target.host, target.folder)
    for change, said in ((lambda path: path.write_bytes(b"longer"), "is not the file that"), (Path.unlink, "is gone")):
        change(source.real / names[-1])
        Counting.asked = 0
        with pytest.raises(SourceChanged, match=said):
            await move(plan, source.host, target.host, lambda progress: None)
        assert Counting.asked <= ENOUGH
        assert list(target.real.iterdir()) == []


async def test_shards_in_folders_of_their_own_take_few_commands_too(ends: tuple[lab.Place, lab.Place]) -> None:
    source, target = ends
    names = []
    for number in range(600):
        (source.real / f"rank {number}").mkdir()
        names += [f"rank {number}/{name}" for name in shards(source.real / f"rank {number}", 1)]
    Counting.asked = 0
    plan = await make_plan(source.host, source.folder, names, target.host, f"{target.folder}/run")
    assert Counting.asked <= ENOUGH
    assert [file.name for file in plan.files] == names


async def test_a_small_file_costs_a_command_to_read_one_to_write_and_one_to_name_it(
    ends: tuple[lab.Place, lab.Place],
) -> None:
    source, target = ends
    names = shards(source.real, 60)
    plan = await make_plan(source.host, source.folder, names, target.host, f"{target.folder}/run")
    Counting.asked = 0
    await move(plan, source.host, target.host, lambda progress: None)
    assert Counting.asked <= 3 * len(names) + ENOUGH
    for number, name in enumerate(names):
        assert (target.real / "run" / name).read_bytes() == b"%d" % number


async def once(place: Place, phase: str, names: Sequence[str], work: Callable[[], object]) -> Moved:
    """Move files, and do something when a phase begins for the first time."""
    left = [work]

    def emit(progress: TransferProgress) -> None:
        if progress.phase == phase and left:
            left.pop()()

    return await move(await place.plan(*names), place.source, place.destination, emit)


async def test_of_many_small_files_the_one_that_arrived_wrong_is_sent_again(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    names = [f"{number}.bin" for number in range(230)]
    data = {name: place.make(1000, name, seed=number) for number, name in enumerate(names)}

    def spoil() -> None:
        (part,) = place.here.glob(".117.bin.*.part")
        part.write_bytes(bytes(1000))

    moved = await once(place, "verifying", names, spoil)
    assert moved.bytes == 231 * 1000
    assert {name: (place.here / name).read_bytes() for name in names} == data
    assert {name: moved.sha256[name] for name in names} == {
        name: hashlib.sha256(each).hexdigest() for name, each in data.items()
    }


async def test_of_many_small_files_a_source_that_is_written_in_place_is_found(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    names = [f"{number}.bin" for number in range(120)]
    for number, name in enumerate(names):
        place.make(1000, name, seed=number)
    path = place.there / "7.bin"

    def written() -> None:
        before = path.stat()
        path.write_bytes(bytes(1000))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(SourceChanged, match=r"7\.bin was written again while it moved"):
        await once(place, "verifying", names, written)
    assert not place.names()


async def test_where_a_name_is_taken_meanwhile_it_is_left_and_the_index_is_not_named(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    names = ["model.safetensors.index.json", *(f"{number}.bin" for number in range(5))]
    for name in names:
        place.make(1000, name)
    other = place.here / "3.bin"
    with pytest.raises(DestinationTaken, match=r"3\.bin came into being meanwhile; it was left as it is"):
        await once(place, "publishing", names, lambda: other.write_bytes(b"another's"))
    assert other.read_bytes() == b"another's"
    assert "model.safetensors.index.json" not in place.names()
    other.unlink()
    assert (await place.move(*names)).attempts == 1
    assert place.names() == set(names)


def test_small_files_are_looked_at_together_and_long_ones_alone() -> None:
    sizes = [1] * 250 + [CHUNK - 50, 60, CHUNK, CHUNK + 1, 0, 0, 7]
    cut = list(batches(sizes, int, lambda size: size == 7))
    assert [size for some in cut for size in some] == sizes
    assert [len(some) for some in cut] == [100, 100, 50 + 1, 1, 1, 1, 2, 1]
    assert list(batches([], int)) == []


@pytest.mark.parametrize("name", [".transfer.json", ".transfer.claim"])
async def test_a_file_with_a_name_that_transfers_keep_is_refused(tmp_path: Path, name: str) -> None:
    place = place_in(tmp_path)
    place.make(10, name)
    with pytest.raises(TransferError, match=r"can't be moved: every transfer keeps a file of its own under that name"):
        await place.plan(name)
