"""One transfer at a time brings files into a folder, and none waits for one that is no more."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from dflash_tui.hosts.base import Process
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer import claim as claims
from dflash_tui.transfer import keeper
from dflash_tui.transfer.claim import CLAIM, Claim, parse_claim
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import NoSpace, TransferError
from dflash_tui.transfer.move import Moved, move
from dflash_tui.transfer.progress import TransferProgress
from dflash_tui.transfer.writing import writing
from tests.sshd import need
from tests.transfer.interrupted import MIB, TWO_CHUNKS, Place, place_in


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_in(tmp_path)


def of_another(folder: Path, *, age: float = 0.0, kernel: str = "another kernel", pid: int = 1) -> Path:
    """A claim of a process elsewhere, or of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    body = {"token": "x", "machine": "laptop", "kernel": kernel, "pid": pid, "start": 1, "bytes": 5}
    (folder / CLAIM).write_text(json.dumps(body) + "\n")
    os.utime(folder / CLAIM, (time.time() - age,) * 2)
    return folder / CLAIM


async def test_of_many_who_come_at_once_one_gets_it(tmp_path: Path) -> None:
    for stale in (False, True):
        if stale:
            of_another(tmp_path, age=2 * claims.LIVE_SECONDS)
        asking = [Claim(LocalHost("lab"), str(tmp_path), 5) for _ in range(8)]
        told = await asyncio.gather(*(claim.take() for claim in asking))
        assert told.count("") == 1
        assert all(f"process {os.getpid()} on" in said for said in told if said)
        (holder,) = [claim for claim in asking if claim.held]
        assert [await claim.touch() for claim in asking].count(True) == 1
        for claim in asking:
            await claim.give_back()
        assert not holder.held
        assert list(tmp_path.iterdir()) == []


async def test_a_living_claim_is_waited_for_and_a_dead_one_is_not(tmp_path: Path) -> None:
    claim = Claim(LocalHost("lab"), str(tmp_path), 5)
    of_another(tmp_path, age=claims.LIVE_SECONDS / 2)
    assert await claim.take() == "process 1 on laptop"
    of_another(tmp_path, age=claims.LIVE_SECONDS * 2)
    assert await claim.take() == ""
    of_another(tmp_path, kernel=claims._kernel(), pid=os.getppid())
    assert not await claim.touch(), "somebody has taken it over"
    assert await claim.take() == "", "of this machine, and another process has that id now"
    age = 2 * claims.LIVE_SECONDS
    for text in ("", "{", "[]", '{"token": 1}', "noise\nmore"):
        (tmp_path / CLAIM).write_text(text)
        # Each older than the one before: one that was touched since it was seen lives.
        age += claims.LIVE_SECONDS
        os.utime(tmp_path / CLAIM, (time.time() - age,) * 2)
        assert await claim.take() == ""
    await claim.give_back()
    assert list(tmp_path.iterdir()) == []


async def test_a_claim_that_nobody_touches_is_dead_though_the_clock_there_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_another(tmp_path, age=-100_000)
    claim = Claim(LocalHost("lab"), str(tmp_path), 5)
    assert await claim.take() == "process 1 on laptop"
    monkeypatch.setattr(claims, "LIVE_SECONDS", 0.0)
    assert await claim.take() == ""


async def test_a_folder_that_may_not_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match=r"lab:.*nowhere/\.transfer\.claim can't be written"):
        await Claim(LocalHost("lab"), str(tmp_path / "nowhere"), 5).take()
    assert parse_claim("[" * 100_000) is None


async def test_who_waits_finds_the_file_there(place: Place) -> None:
    data = place.make(TWO_CHUNKS)
    plan = await place.plan()
    other = Place(place.there, place.here)
    first, second = await asyncio.gather(place.move(plan=plan), other.move(plan=plan))
    assert {first.how["checkpoint.pt"], second.how["checkpoint.pt"]} == {"streamed", "already there"}
    assert sorted([first.bytes, second.bytes]) == [0, len(data)]
    assert first.sha256 == second.sha256
    waiting = {told.waits_for for told in place.seen + other.seen if told.waits_for}
    assert waiting == {f"process {os.getpid()} on {platform.node()}, which fills ct129:{place.here}"}
    assert not any(told.problem for told in place.seen + other.seen), "a wait is no cut"
    assert place.names() == {"checkpoint.pt"}


SLOW = """
import asyncio, sys
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer.move import move
from dflash_tui.transfer.plan import make_plan

async def main():
    source, destination = LocalHost("ct200"), LocalHost("ct129")
    plan = await make_plan(source, sys.argv[1], ["checkpoint.pt"], destination, sys.argv[2])
    crossed = 0

    async def pace(nbytes):
        nonlocal crossed
        crossed += nbytes
        if crossed > int(sys.argv[3]):
            print("slow", flush=True)
            await asyncio.sleep(float(sys.argv[4]))

    moved = await move(plan, source, destination, lambda progress: None, pace=pace)
    print("moved", moved.bytes, moved.how["checkpoint.pt"], flush=True)

asyncio.run(main())
"""


def another_process(place: Place, after: int, pause: float) -> subprocess.Popen[str]:
    """Moves the same, and is slow once so many bytes have passed; returns when they have."""
    argv = [sys.executable, "-c", SLOW, str(place.there), str(place.here), str(after), str(pause)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "slow\n"
    return process


async def test_another_process_is_waited_for(place: Place) -> None:
    data = place.make(TWO_CHUNKS)
    process = await asyncio.to_thread(another_process, place, CHUNK, 0.3)
    moved = await place.move()
    out, _ = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0
    assert f"moved {len(data)} streamed" in out, "it was not disturbed"
    assert (moved.bytes, moved.already_there) == (0, True)
    assert (place.here / "checkpoint.pt").read_bytes() == data
    assert place.names() == {"checkpoint.pt"}


async def test_another_process_that_was_killed_is_not_waited_for(place: Place) -> None:
    data = place.make(2 * CHUNK + MIB)
    process = await asyncio.to_thread(another_process, place, CHUNK + 8 * MIB, 60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    began = time.monotonic()
    moved = await place.move()
    assert time.monotonic() - began < claims.LIVE_SECONDS / 2
    assert moved.resumed == CHUNK
    assert moved.bytes == len(data) - CHUNK
    assert (place.here / "checkpoint.pt").read_bytes() == data
    assert place.names() == {"checkpoint.pt"}


async def test_who_lost_the_claim_stops_and_waits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    data = place.make(TWO_CHUNKS)
    monkeypatch.setattr(keeper, "BEAT_SECONDS", 0.05)
    taken, gone = asyncio.Event(), asyncio.Event()

    async def pace(nbytes: int) -> None:
        if not taken.is_set() and list(place.here.glob(".*.part")):
            of_another(place.here)
            taken.set()
            await asyncio.sleep(30)

    def watch(progress: TransferProgress) -> None:
        place.seen.append(progress)
        if progress.waits_for and not gone.is_set():
            (place.here / CLAIM).unlink()  # it gives up
            gone.set()

    plan = await place.plan()
    moved = await move(plan, place.source, place.destination, watch, pace=pace, pause=0.01)
    problems = [told.problem for told in place.seen if told.problem]
    assert any("another console (process 1 on laptop) went on with this transfer" in problem for problem in problems)
    assert any("process 1 on laptop" in told.waits_for for told in place.seen)
    assert moved.attempts == 2
    assert (place.here / "checkpoint.pt").read_bytes() == data


def orphan(place: Place, part: Path, start: int, size: int) -> subprocess.Popen[bytes]:
    """A writer whose transfer is gone, with its end of the pipe still open."""
    argv = writing(str(part), start, size)
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(b"orphan" * 1000)
    process.stdin.flush()
    return process


async def test_an_orphaned_writer_is_ended_before_its_part_is_continued(place: Place) -> None:
    data = place.make(2 * CHUNK)
    process = await asyncio.to_thread(another_process, place, CHUNK + 8 * MIB, 60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    part = place.part
    await _until_free(part)
    left = orphan(place, part, CHUNK, 2 * CHUNK)
    await _until_open(part, left.pid)
    moved = await place.move()
    assert left.wait(10) != 0
    assert moved.resumed in (0, CHUNK)
    assert (place.here / "checkpoint.pt").read_bytes() == data
    assert place.names() == {"checkpoint.pt"}


async def _until_free(part: Path) -> None:
    """The writer of a killed process comes to its end by itself."""
    async with asyncio.timeout(20):
        while (await LocalHost("lab").run(["flock", "-n", str(part), "true"], check=False)).status != 0:
            await asyncio.sleep(0.05)


async def _until_open(part: Path, pid: int) -> None:
    async with asyncio.timeout(10):
        while not any(os.readlink(path) == str(part) for path in Path(f"/proc/{pid}/fd").iterdir()):
            await asyncio.sleep(0.01)


async def test_a_writer_let_loose_before_the_name_is_given_reaches_nothing_that_counts(place: Place) -> None:
    """A command that was on its way when the line broke begins now."""
    data = place.make(5 * MIB)
    late: list[subprocess.Popen[bytes]] = []

    def watch(progress: TransferProgress) -> None:
        if progress.phase == "publishing" and not late:
            late.append(orphan(place, place.part, 0, 5 * MIB))
            time.sleep(0.3)

    plan = await place.plan()
    moved: Moved = await move(plan, place.source, place.destination, watch, pause=0.01)
    late[0].kill()
    late[0].wait()
    assert (place.here / "checkpoint.pt").read_bytes() == data
    assert moved.attempts == 2, "what was verified was not what lay there"


async def test_a_claim_that_is_touched_lives_however_old_it_says_it_is(tmp_path: Path) -> None:
    of_another(tmp_path, age=claims.LIVE_SECONDS - 20)
    claim = Claim(LocalHost("lab"), str(tmp_path), 5)
    assert await claim.take() == "process 1 on laptop"
    monday = time.time() - 10 * claims.LIVE_SECONDS
    for later in (claims.LIVE_SECONDS - 10, claims.LIVE_SECONDS):
        claim = Claim(LocalHost("lab"), str(tmp_path), 5)
        os.utime(tmp_path / CLAIM, (time.time(),) * 2)
        assert await claim.take() == "process 1 on laptop"
        # The server's clock and the host's drift apart: only that it changes is sure.
        claim._seen = (monday, (tmp_path / CLAIM).read_text().rstrip("\n"))
        os.utime(tmp_path / CLAIM, (monday + later,) * 2)
        assert await claim.take() == "process 1 on laptop"


async def test_what_time_it_is_there_is_told_by_the_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server's clock is behind the host's."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "date").write_text("#!/bin/sh\necho $(($(/bin/date +%s) + 1000))\n")
    (programs / "date").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    of_another(tmp_path / "here", age=claims.LIVE_SECONDS / 2)
    assert await Claim(LocalHost("lab"), str(tmp_path / "here"), 5).take() == "process 1 on laptop"
    assert [path.name for path in (tmp_path / "here").iterdir()] == [CLAIM]


async def test_a_full_disk_leaves_no_claim(tmp_path: Path) -> None:
    need(os.geteuid() == 0, "mount, which needs root,")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=True)
    try:
        subprocess.run(["dd", "if=/dev/zero", f"of={tmp_path}/filler", "bs=4096"], capture_output=True)
        with pytest.raises(NoSpace, match=r"\.transfer\.claim can't be written: .*No space left on device"):
            await Claim(LocalHost("lab"), str(tmp_path), 5).take()
        assert [path.name for path in tmp_path.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


class Guest(LocalHost):
    """This machine as another user has it."""

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
        return super().stream([*user, *argv], stdin=stdin)


async def test_a_dead_claim_of_another_user_says_whose_it_is(tmp_path: Path) -> None:
    need(os.geteuid() == 0, "setpriv, which needs root,")
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        for mode, free in ((0o1777, False), (0o777, True)):
            folder = Path(name) / f"{mode:o}"
            folder.mkdir()
            folder.chmod(mode)
            of_another(folder, age=claims.LIVE_SECONDS * 2)
            claim = Claim(Guest("lab"), str(folder), 5)
            if free:
                assert await claim.take() == ""
                continue
            with pytest.raises(TransferError, match="of user root that goes on no more, and only root can remove it"):
                await claim.take()
            assert [path.name for path in folder.iterdir()] == [CLAIM]


async def test_a_folder_in_a_claims_place_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / CLAIM).mkdir()
    with pytest.raises(TransferError, match=r"\.transfer\.claim is a folder, and .*; move it away"):
        await Claim(LocalHost("lab"), str(tmp_path), 5).take()


async def test_a_claim_that_is_removed_by_hand_is_taken_again(tmp_path: Path) -> None:
    claim = Claim(LocalHost("lab"), str(tmp_path), 5)
    assert await claim.take() == ""
    (tmp_path / CLAIM).unlink()
    assert not await claim.touch()
    assert "was removed while this transfer went on; it is taken again" in await claim.loss()
    assert await claim.take() == ""
