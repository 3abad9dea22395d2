"""A checkpoint moves between real hosts: sshd to sshd, container to sshd, on one machine; and what goes wrong then."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.hosts.base import Host, HostUnreachable, Process
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.transfer.errors import (
    DestinationTaken,
    NoSpace,
    SourceChanged,
    TransferCorrupt,
    TransferCut,
    TransferError,
)
from dflash_tui.transfer.move import Moved, TransferProgress, move
from dflash_tui.transfer.plan import make_plan
from tests.pct import Pct
from tests.sshd import Sshd, need, running_sshd

MIB = 1 << 20


@dataclass
class Lab:
    """Two hosts with a folder each; `seen` is every progress that was told."""

    source: Host
    destination: Host
    there: Path
    here: Path
    source_folder: str
    source_sshd: Sshd | None
    destination_sshd: Sshd | None
    seen: list[TransferProgress] = field(default_factory=list)

    def make(self, size: int, name: str = "checkpoint.pt") -> bytes:
        data = os.urandom(min(size, MIB)) * (size // MIB + 1)
        data = data[:size]
        (self.there / name).parent.mkdir(parents=True, exist_ok=True)
        (self.there / name).write_bytes(data)
        return data

    async def move(
        self,
        *names: str,
        emit: Callable[[TransferProgress], None] | None = None,
        into: str | None = None,
        tries: int = 6,
    ) -> Moved:
        folder = into or str(self.here)
        plan = await make_plan(self.source, self.source_folder, names or ("checkpoint.pt",), self.destination, folder)

        def tell(progress: TransferProgress) -> None:
            self.seen.append(progress)
            if emit is not None:
                emit(progress)

        return await move(plan, self.source, self.destination, tell, pause=0.01, tries=tries)

    def names(self) -> set[str]:
        found = {path.name for path in self.here.iterdir()} if self.here.exists() else set()
        return found - {".transfer.json"}


@pytest.fixture(params=["sshd to sshd", "container to sshd"])
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    async with AsyncExitStack() as stack:
        servers = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            servers.append(stack.enter_context(running_sshd(tmp_path / name)))
        pve, ct129 = SshHost("pve", servers[0].address), SshHost("ct129", servers[1].address)
        stack.push_async_callback(pve.close)
        stack.push_async_callback(ct129.close)
        here = tmp_path / "eval" / "step_4000"
        if request.param == "sshd to sshd":
            there = tmp_path / "train"
            there.mkdir()
            yield Lab(pve, ct129, there, here, str(there), servers[0], servers[1])
        else:
            (tmp_path / "pct").mkdir()
            pct = Pct(tmp_path / "pct")
            ct200 = ContainerHost(pve, pct.prefix(), "ct200")
            yield Lab(ct200, ct129, pct.root / "data", here, "/data", servers[0], servers[1])


async def test_moves_every_byte_and_tells_both_hops(lab: Lab) -> None:
    data = lab.make(20 * MIB + 12345)
    moved = await lab.move()
    assert (lab.here / "checkpoint.pt").read_bytes() == data
    assert moved.bytes == len(data)
    assert moved.sha256 == {"checkpoint.pt": hashlib.sha256(data).hexdigest()}
    assert dict(moved.how) == {"checkpoint.pt": "streamed"}
    assert not moved.already_there
    assert lab.names() == {"checkpoint.pt"}
    phases = list(dict.fromkeys(progress.phase for progress in lab.seen))
    assert phases == ["planning", "moving", "verifying", "publishing", "done"]
    last = lab.seen[-1]
    assert (last.read, last.written, last.total) == (len(data),) * 3
    assert all(progress.written <= progress.read <= len(data) for progress in lab.seen)


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1])
async def test_moves_files_of_every_size(lab: Lab, size: int) -> None:
    data = lab.make(size)
    await lab.move()
    assert (lab.here / "checkpoint.pt").read_bytes() == data


async def test_moves_several_files_with_hostile_names(lab: Lab) -> None:
    names = ['it\'s "here" $HOME.pt', "shards/ünïcødé 火.bin", "-rf *", "new\nline", "config.json"]
    data = {name: lab.make(1000 + number, name) for number, name in enumerate(names)}
    moved = await lab.move(*names)
    for name in names:
        assert (lab.here / name).read_bytes() == data[name]
        assert moved.sha256[name] == hashlib.sha256(data[name]).hexdigest()
    assert lab.seen[-1].written == lab.seen[-1].total == sum(map(len, data.values()))


async def test_the_final_name_appears_only_at_the_end(lab: Lab) -> None:
    lab.make(10 * MIB)

    def look(progress: TransferProgress) -> None:
        if progress.phase in ("planning", "moving", "verifying"):
            assert "checkpoint.pt" not in lab.names()

    await lab.move(emit=look)
    assert lab.names() == {"checkpoint.pt"}


async def test_what_is_there_already_is_not_moved_again(lab: Lab) -> None:
    lab.make(3 * MIB)
    first = await lab.move()
    inode = (lab.here / "checkpoint.pt").stat().st_ino
    second = await lab.move()
    assert second.already_there
    assert second.bytes == 0
    assert second.sha256 == first.sha256
    assert (lab.here / "checkpoint.pt").stat().st_ino == inode


async def test_equal_bytes_without_a_record_are_recognised_by_their_hash(lab: Lab) -> None:
    data = lab.make(MIB)
    lab.here.mkdir(parents=True)
    (lab.here / "checkpoint.pt").write_bytes(data)
    assert (await lab.move()).already_there


@pytest.mark.parametrize("other", [b"y", b"x" * 1000])
async def test_another_file_of_that_name_is_left_alone(lab: Lab, other: bytes) -> None:
    lab.make(1000)
    lab.here.mkdir(parents=True)
    (lab.here / "checkpoint.pt").write_bytes(other)
    with pytest.raises(DestinationTaken, match=r"ct129.*checkpoint\.pt already exists"):
        await lab.move()
    assert (lab.here / "checkpoint.pt").read_bytes() == other
    assert lab.names() == {"checkpoint.pt"}


async def test_a_name_taken_while_the_bytes_move_is_left_alone(lab: Lab) -> None:
    lab.make(2 * MIB)

    def take(progress: TransferProgress) -> None:
        if progress.phase == "publishing":
            (lab.here / "checkpoint.pt").write_bytes(b"another's")

    with pytest.raises(DestinationTaken, match="meanwhile"):
        await lab.move(emit=take)
    assert (lab.here / "checkpoint.pt").read_bytes() == b"another's"
    assert lab.names() == {"checkpoint.pt"}


async def test_a_missing_source_and_a_folder_are_refused_with_their_paths(lab: Lab) -> None:
    with pytest.raises(TransferError, match=r"nothing\.pt does not exist"):
        await lab.move("nothing.pt")
    (lab.there / "folder").mkdir()
    with pytest.raises(TransferError, match="is a folder"):
        await lab.move("folder")
    for name in ("../up", "/abs", "a//b", "", "."):
        with pytest.raises(TransferError, match="not a name below a folder"):
            await lab.move(name)
    assert lab.names() == set()


async def test_a_source_that_changes_under_way_is_discarded(lab: Lab) -> None:
    lab.make(4 * MIB)

    def change(progress: TransferProgress) -> None:
        if progress.phase == "verifying":
            (lab.there / "checkpoint.pt").write_bytes(bytes(4 * MIB))
            os.utime(lab.there / "checkpoint.pt", (1, 1_700_000_000))

    with pytest.raises((SourceChanged, TransferCorrupt)):
        await lab.move(emit=change)
    assert lab.names() == set()


async def test_a_source_that_grows_under_way_is_discarded(lab: Lab) -> None:
    lab.make(4 * MIB)
    plan = await make_plan(lab.source, lab.source_folder, ["checkpoint.pt"], lab.destination, str(lab.here))
    with (lab.there / "checkpoint.pt").open("ab") as file:
        file.write(b"more")
    with pytest.raises(SourceChanged, match="written again or replaced"):
        await move(plan, lab.source, lab.destination, lab.seen.append, pause=0.01)
    assert lab.names() == set()


async def test_a_byte_flipped_at_the_destination_is_caught(lab: Lab) -> None:
    lab.make(4 * MIB)

    def flip(progress: TransferProgress) -> None:
        if progress.phase == "verifying" and lab.seen[-2].phase == "moving":
            for path in lab.here.glob(".checkpoint.pt.*.part"):
                with path.open("r+b") as file:
                    file.seek(2 * MIB)
                    byte = file.read(1)
                    file.seek(2 * MIB)
                    file.write(bytes([byte[0] ^ 1]))

    with pytest.raises(TransferCorrupt, match=r"SHA-256.*thrown away"):
        await lab.move(emit=flip)
    assert lab.names() == set()


def cutting(sshd: Sshd, at: int, times: int = 1) -> Callable[[TransferProgress], None]:
    """Pulls the cable `times` times once `at` bytes were written."""
    left = times

    def cut(progress: TransferProgress) -> None:
        nonlocal left
        if left and progress.phase == "moving" and progress.written >= at:
            left -= 1
            sshd.kill_sessions()

    return cut


@pytest.mark.parametrize("end", ["source", "destination"])
async def test_goes_on_after_a_cut_and_ends_right(lab: Lab, end: str) -> None:
    data = lab.make(200 * MIB)
    sshd = lab.source_sshd if end == "source" else lab.destination_sshd
    assert sshd is not None
    cut = cutting(sshd, 100 * MIB)

    def emit(progress: TransferProgress) -> None:
        if progress.phase != "done":
            assert progress.phase == "publishing" or "checkpoint.pt" not in lab.names()
        cut(progress)

    moved = await lab.move(emit=emit)
    assert moved.attempts == 2
    assert moved.sha256["checkpoint.pt"] == hashlib.sha256(data).hexdigest()
    assert (lab.here / "checkpoint.pt").read_bytes() == data
    assert lab.names() == {"checkpoint.pt"}
    again = [progress for progress in lab.seen if progress.attempt == 2 and progress.written]
    assert min(progress.written for progress in again) >= 64 * MIB
    assert any(progress.problem for progress in again)


async def test_a_line_that_breaks_every_time_is_given_up_with_nothing_published(lab: Lab) -> None:
    lab.make(40 * MIB)
    assert lab.source_sshd is not None
    with pytest.raises(TransferCut, match=r"given up after \d+ attempts"):
        await lab.move(emit=cutting(lab.source_sshd, 0, times=99), tries=2)
    assert all(name.endswith((".part", ".journal")) for name in lab.names())


async def test_a_later_transfer_goes_on_after_the_last_whole_chunk(lab: Lab) -> None:
    data = lab.make(200 * MIB)
    await _cancelled_at(lab, 140 * MIB)
    (piece,) = lab.here.glob(".checkpoint.pt.*.part")
    assert piece.stat().st_size >= 128 * MIB
    plan = await make_plan(lab.source, lab.source_folder, ["checkpoint.pt"], lab.destination, str(lab.here))
    assert plan.resumable == 128 * MIB
    lab.seen.clear()
    moved = await move(plan, lab.source, lab.destination, lab.seen.append, pause=0.01)
    assert (lab.here / "checkpoint.pt").read_bytes() == data
    assert lab.names() == {"checkpoint.pt"}
    moving = [progress for progress in lab.seen if progress.phase == "moving"]
    assert min(progress.written for progress in moving) == 128 * MIB
    assert {progress.resumed for progress in moving} == {128 * MIB}
    assert moved.bytes == 72 * MIB, "what was there before did not cross now"
    assert moved.resumed == 128 * MIB
    assert dict(moved.routes) == {"relay": 72 * MIB}


@pytest.mark.parametrize("lab", ["sshd to sshd"], indirect=True)
async def test_a_cut_after_a_piece_was_taken_over_does_not_begin_at_nothing_again(lab: Lab) -> None:
    data = lab.make(200 * MIB)
    await _cancelled_at(lab, 140 * MIB)
    assert lab.destination_sshd is not None
    lab.seen.clear()
    moved = await lab.move(emit=cutting(lab.destination_sshd, 160 * MIB))
    assert moved.attempts == 2
    assert (lab.here / "checkpoint.pt").read_bytes() == data
    again = [progress.written for progress in lab.seen if progress.attempt == 2 and progress.phase == "moving"]
    assert min(written for written in again if written) >= 128 * MIB


async def test_a_part_whose_bytes_are_wrong_is_found_out_and_sent_again_from_there(lab: Lab) -> None:
    data = lab.make(200 * MIB)
    await _cancelled_at(lab, 140 * MIB)
    (piece,) = lab.here.glob(".checkpoint.pt.*.part")
    with piece.open("r+b") as file:
        file.seek(70 * MIB)
        file.write(bytes(16))
    moved = await lab.move()
    assert (lab.here / "checkpoint.pt").read_bytes() == data
    assert moved.attempts == 1
    assert moved.bytes == (72 + 136) * MIB, "the first chunk was right"
    assert lab.names() == {"checkpoint.pt"}


@pytest.mark.parametrize("right", [True, False])
async def test_small_files_that_had_arrived_whole_are_not_sent_again_if_they_are_right(lab: Lab, right: bool) -> None:
    names = [f"shard-{number}.bin" for number in range(4)]
    data = {name: lab.make(8 * MIB + number, name) for number, name in enumerate(names)}
    reached = asyncio.Event()

    def watch(progress: TransferProgress) -> None:
        if progress.written > 20 * MIB:
            reached.set()

    task = asyncio.create_task(lab.move(*names, emit=watch))
    await asyncio.wait_for(reached.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for part in lab.here.glob(".shard-1.bin.*.part") if not right else ():
        with part.open("r+b") as file:
            file.write(bytes(16))
    whole = {len(data[name]) for name in names}
    kept = sum(size for part in lab.here.glob(".*.part") if (size := part.stat().st_size) in whole)
    plan = await make_plan(lab.source, lab.source_folder, names, lab.destination, str(lab.here))
    assert plan.resumable == kept >= 16 * MIB + 1
    moved = await move(plan, lab.source, lab.destination, lab.seen.append, pause=0.01)
    assert {name: (lab.here / name).read_bytes() for name in names} == data
    assert lab.names() == set(names)
    assert moved.resumed == kept
    assert moved.bytes == plan.total - kept + (0 if right else 8 * MIB + 1)


async def test_a_piece_of_another_source_is_not_used_and_goes_at_the_end(lab: Lab) -> None:
    lab.make(90 * MIB)
    await _cancelled_at(lab, 70 * MIB)
    data = lab.make(80 * MIB)
    plan = await make_plan(lab.source, lab.source_folder, ["checkpoint.pt"], lab.destination, str(lab.here))
    assert plan.resumable == 0
    await lab.move()
    assert (lab.here / "checkpoint.pt").read_bytes() == data
    assert lab.names() == {"checkpoint.pt"}


async def _cancelled_at(lab: Lab, at: int) -> None:
    reached = asyncio.Event()

    def watch(progress: TransferProgress) -> None:
        if progress.written >= at:
            reached.set()

    task = asyncio.create_task(lab.move(emit=watch))
    await asyncio.wait_for(reached.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def breaking(stream: Callable[..., AbstractAsyncContextManager[Process]]) -> Any:
    """`Host.stream` of a host whose line breaks whenever somebody lets go of it."""

    @asynccontextmanager
    async def broken(*arguments: Any, **options: Any) -> AsyncIterator[Process]:
        async with stream(*arguments, **options) as process:
            try:
                yield process
            except asyncio.CancelledError:
                raise HostUnreachable("broken by letting go") from None

    return broken


async def test_a_line_that_breaks_because_it_is_let_go_of_is_no_cut(lab: Lab) -> None:
    lab.make(140 * MIB)

    for host in (lab.source, lab.destination):
        host.stream = breaking(host.stream)  # type: ignore[method-assign]
    await _cancelled_at(lab, 70 * MIB)
    assert "checkpoint.pt" not in lab.names()


@pytest.mark.parametrize("phase", ["planning", "moving", "verifying", "publishing"])
async def test_cancelling_leaves_nothing_partial_under_the_final_name(lab: Lab, phase: str) -> None:
    data = lab.make(30 * MIB)
    reached = asyncio.Event()

    def watch(progress: TransferProgress) -> None:
        if progress.phase == phase and (phase != "moving" or progress.written > 0):
            reached.set()

    task = asyncio.create_task(lab.move(emit=watch))
    await asyncio.wait_for(reached.wait(), 60)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    if "checkpoint.pt" in lab.names():
        assert phase == "publishing"
        assert (lab.here / "checkpoint.pt").read_bytes() == data
    assert all(name == "checkpoint.pt" or name.endswith((".part", ".journal")) for name in lab.names())
    await lab.move()
    assert (lab.here / "checkpoint.pt").read_bytes() == data


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 8 MiB."""
    need(os.geteuid() == 0, "mount, which needs root,")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=64", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


async def test_a_destination_without_room_is_refused_before_a_byte_moves(lab: Lab, small_disk: Path) -> None:
    lab.make(9 * MIB)
    with pytest.raises(NoSpace, match=r"bytes free and 9,437,184 are needed"):
        await lab.move(into=str(small_disk / "sub"))
    assert list(small_disk.iterdir()) == []


async def test_a_destination_without_inodes_is_refused(lab: Lab, small_disk: Path) -> None:
    lab.make(10)
    with suppress(OSError):
        for number in range(100):
            (small_disk / str(number)).touch()
    with pytest.raises(NoSpace, match="inodes"):
        await lab.move(into=str(small_disk))


async def test_a_disk_that_fills_up_under_way_publishes_nothing_and_is_given_back(lab: Lab, small_disk: Path) -> None:
    lab.make(7 * MIB)

    def fill(progress: TransferProgress) -> None:
        if progress.phase == "moving" and not (small_disk / "filler").exists():
            (small_disk / "filler").write_bytes(bytes(4 * MIB))

    with pytest.raises(NoSpace, match="full"):
        await lab.move(into=str(small_disk), emit=fill)
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


@pytest.mark.parametrize("size", [0, 10])
async def test_a_destination_that_can_not_be_made_is_refused_at_once(lab: Lab, size: int) -> None:
    lab.make(size)
    with pytest.raises(TransferError, match=r"^ct129:/proc/nowhere/step_1 can't be made.*evaluation.root") as seen:
        await lab.move(into="/proc/nowhere/step_1")
    assert not isinstance(seen.value, TransferCut)
    assert {progress.attempt for progress in lab.seen} <= {1}


async def test_a_folder_that_may_not_be_written_is_refused_at_once(lab: Lab, small_disk: Path) -> None:
    lab.make(10)
    (small_disk / "step_1").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for folder, said in ((small_disk / "step_1", "may not write in it"), (small_disk / "step_2", "can't be made")):
        with pytest.raises(TransferError, match=f"^ct129:{folder} .*{said}.*evaluation.root") as seen:
            await lab.move(into=str(folder))
        assert not isinstance(seen.value, TransferCut)
    assert not lab.seen, "the plan refuses it already"


async def test_on_one_host_a_destination_that_can_not_be_made_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"weights")
    host = LocalHost("here")
    with pytest.raises(TransferError, match=r"^here:/proc/x/checkpoints/step_1 can't be made.*evaluation.root") as seen:
        await make_plan(host, str(tmp_path), ["checkpoint.pt"], host, "/proc/x/checkpoints/step_1")
    assert not isinstance(seen.value, TransferCut)


async def test_an_unreachable_destination_is_a_sentence(lab: Lab) -> None:
    lab.make(10)
    assert lab.destination_sshd is not None
    lab.destination_sshd.stop()
    with pytest.raises(TransferError, match="ct129"):
        await lab.move()


async def test_memory_stays_small_for_a_large_file(lab: Lab) -> None:
    lab.make(5 * MIB)
    await lab.move()
    with (lab.there / "large.pt").open("wb") as file:
        file.truncate(300 * MIB)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await lab.move("large.pt")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    assert (lab.here / "large.pt").stat().st_size == 300 * MIB


async def test_on_one_host_the_file_is_linked(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "checkpoint.pt").write_bytes(b"weights")
    host = LocalHost("here")
    plan = await make_plan(host, str(tmp_path / "a"), ["checkpoint.pt"], host, str(tmp_path / "b"))
    seen: list[TransferProgress] = []
    moved = await move(plan, host, host, seen.append)
    assert dict(moved.how) == {"checkpoint.pt": "linked"}
    assert moved.bytes == 0
    assert moved.sha256 == {"checkpoint.pt": hashlib.sha256(b"weights").hexdigest()}
    assert (tmp_path / "b" / "checkpoint.pt").samefile(tmp_path / "a" / "checkpoint.pt")
    assert (tmp_path / "a" / "checkpoint.pt").stat().st_nlink == 2


async def test_on_one_host_a_file_of_another_disk_is_copied(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"weights")
    os.symlink("checkpoint.pt", tmp_path / "latest.pt")
    host = LocalHost("here")
    for name, into in (("checkpoint.pt", small_disk), ("latest.pt", tmp_path / "b")):
        plan = await make_plan(host, str(tmp_path), [name], host, str(into))
        moved = await move(plan, host, host, lambda _: None)
        assert dict(moved.how) == {name: "copied"}
        assert (into / name).read_bytes() == b"weights"
        assert not (into / name).is_symlink()


async def test_two_that_fetch_the_same_file_at_once_both_have_it(lab: Lab) -> None:
    data = lab.make(3 * MIB)
    plan = await make_plan(lab.source, lab.source_folder, ("checkpoint.pt",), lab.destination, str(lab.here))

    async def fetch() -> Moved:
        return await move(plan, lab.source, lab.destination, lab.seen.append, pause=0.01)

    first, second = await asyncio.gather(fetch(), fetch())
    assert first.sha256 == second.sha256 == {"checkpoint.pt": hashlib.sha256(data).hexdigest()}
    assert lab.names() == {"checkpoint.pt"}
    assert (lab.here / "checkpoint.pt").read_bytes() == data


@pytest.mark.parametrize("lab", ["sshd to sshd"], indirect=True)
@pytest.mark.parametrize("end", ["source", "destination"])
async def test_a_login_shell_that_prints_is_named_before_a_byte_moves(lab: Lab, end: str) -> None:
    lab.make(100)
    sshd = lab.source_sshd if end == "source" else lab.destination_sshd
    assert sshd is not None
    (sshd.folder / ".bashrc").write_text('echo "module load cuda: done"\n')
    name = "pve" if end == "source" else "ct129"
    with pytest.raises(
        TransferError, match=rf"the login shell of {name} prints 'module load cuda: done' on stdout.*make it silent"
    ):
        await make_plan(lab.source, lab.source_folder, ["checkpoint.pt"], lab.destination, str(lab.here))
