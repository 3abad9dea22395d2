"""A growing log is given whole, in order, once: whatever happens to the file or to the way there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dflash_tui.hosts.base import Host
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.watch.follow import TAIL, CaughtUp, Chunk, Followed, Follower, Lost, Opened, Pace, Restored, Waiting
from tests.pct import Pct
from tests.sshd import Sshd, running_sshd
from tests.watch.following import BRISK, following, numbered


@dataclass
class Place:
    """A host, and one file in its view (`path`) and in this machine's (`file`)."""

    host: Host
    path: str
    file: Path
    pace: Pace
    server: Sshd | None = None

    def append(self, text: str) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(text)


@pytest.fixture(params=["local", "ssh", "container"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        if request.param == "container":
            pct = Pct(tmp_path)
            host = ContainerHost(LocalHost(), (str(pct.path), "exec", "200", "--"), "ct200")
            # busybox's tail looks once a second
            yield Place(host, "/data/train.log", pct.root / "data" / "train.log", replace(BRISK, look=0.3, quiet=1.5))
        elif request.param == "ssh":
            keys = tmp_path / "keys"
            keys.mkdir()
            server = stack.enter_context(running_sshd(keys))
            ssh = SshHost("gpu", server.address)
            stack.push_async_callback(ssh.close)
            file = tmp_path / "train.log"
            yield Place(ssh, str(file), file, BRISK, server)
        else:
            file = tmp_path / "train.log"
            yield Place(LocalHost(), str(file), file, BRISK)


async def test_gives_what_is_there_and_then_what_comes(place: Place) -> None:
    place.append(numbered(1, 3))
    async with following(place.host, place.path, place.pace) as taken:
        await taken.until(lambda: taken.text == numbered(1, 3) and taken.has(CaughtUp))
        place.append(numbered(4, 5))
        await taken.until(lambda: taken.text == numbered(1, 5))
    opened = next(item for item in taken.items if isinstance(item, Opened))
    assert opened == Opened(0, 1, partial_head=False)
    chunks = [item for item in taken.items if isinstance(item, Chunk)]
    assert chunks[0].at is None, "nobody saw it come"
    assert chunks[-1].at is not None


async def test_begins_at_the_end_of_a_long_file(place: Place) -> None:
    text = numbered(1, 20_000)
    place.append(text)
    async with following(place.host, place.path, place.pace) as taken:
        await taken.until(lambda: taken.has(CaughtUp))
        place.append("the end\n")
        await taken.until(lambda: taken.text == text[-TAIL:] + "the end\n")
    opened = next(item for item in taken.items if isinstance(item, Opened))
    assert opened == Opened(len(text) - TAIL, None, partial_head=True)


async def test_waits_for_a_file_that_is_not_there_yet_and_says_so(place: Place) -> None:
    async with following(place.host, place.path, place.pace) as taken:
        await taken.until(lambda: taken.has(Waiting))
        assert place.path in next(item.reason for item in taken.items if isinstance(item, Waiting))
        place.append(numbered(1, 2))
        await taken.until(lambda: taken.text == numbered(1, 2))


async def test_drains_a_renamed_file_and_goes_on_with_the_new_one(place: Place) -> None:
    place.append(numbered(1, 3))
    async with following(place.host, place.path, place.pace) as taken:
        await taken.until(lambda: taken.text == numbered(1, 3))
        with place.file.open("a") as old:
            place.file.rename(place.file.with_suffix(".log.1"))
            old.write(numbered(4, 5))
            old.flush()
            place.append(numbered(6, 7))
            await taken.until(lambda: taken.text == numbered(1, 7))
        place.append(numbered(8, 8))
        await taken.until(lambda: taken.text == numbered(1, 8))
    assert [item for item in taken.items if isinstance(item, Opened)][-1] == Opened(0, 1, False, again=True)
    assert not taken.has(Lost)


async def test_goes_on_after_a_file_was_copied_and_emptied(place: Place) -> None:
    place.append(numbered(1, 50))
    async with following(place.host, place.path, place.pace) as taken:
        await taken.until(lambda: taken.text == numbered(1, 50))
        os.truncate(place.file, 0)
        place.append(numbered(51, 52))
        await taken.until(lambda: taken.has(Opened) and "step=52/" in taken.text)
        await taken.until(lambda: sum(isinstance(item, Opened) for item in taken.items) == 2)
        place.append(numbered(53, 54))
        await taken.until(lambda: "step=54/" in taken.text)
    assert taken.text == numbered(1, 54)


async def test_half_a_line_of_an_emptied_file_is_given_again_from_its_beginning(place: Place) -> None:
    place.append(numbered(1, 50))
    async with following(place.host, place.path, place.pace) as taken:
        await taken.until(lambda: taken.text == numbered(1, 50))
        os.truncate(place.file, 0)
        place.append(numbered(51, 51) + "step=52/9")
        await taken.until(lambda: sum(isinstance(item, Opened) for item in taken.items) == 2)
        place.append("000 loss=1.5\n")
        await taken.until(lambda: "loss=1.5\n" in taken.text)
    last = max(index for index, item in enumerate(taken.items) if isinstance(item, Opened))
    after = b"".join(item.data for item in taken.items[last:] if isinstance(item, Chunk)).decode()
    assert after.endswith("step=52/9000 loss=1.5\n")
    assert (numbered(1, 51) + "step=52/9000 loss=1.5\n").endswith(after)


@pytest.mark.parametrize("place", ["ssh"], indirect=True)
async def test_resumes_at_the_right_byte_after_the_link_was_cut(place: Place) -> None:
    assert place.server is not None
    place.append(numbered(1, 3))
    async with following(place.host, place.path, place.pace) as taken:
        await taken.until(lambda: taken.text == numbered(1, 3))
        for begin in (4, 6, 8):
            place.server.kill_sessions()
            place.append(numbered(begin, begin + 1))
            await taken.until(lambda last=begin + 1: taken.text == numbered(1, last))  # type: ignore[misc]
    assert taken.has(Lost)
    assert taken.has(Restored)


@pytest.mark.parametrize("place", ["ssh"], indirect=True)
async def test_finds_the_rest_of_a_file_that_was_renamed_while_the_link_was_cut(place: Place) -> None:
    assert place.server is not None
    place.append(numbered(1, 3))
    async with following(place.host, place.path, place.pace) as taken:
        await taken.until(lambda: taken.text == numbered(1, 3))
        place.server.stop()
        await taken.until(lambda: taken.has(Lost))
        place.append(numbered(4, 5))
        place.file.rename(place.file.with_suffix(".log.1"))
        place.append(numbered(6, 7))
        place.server.start()
        await taken.until(lambda: taken.text == numbered(1, 7))


@pytest.mark.parametrize("place", ["ssh"], indirect=True)
async def test_sees_that_a_file_was_emptied_and_grew_again_while_the_link_was_cut(place: Place) -> None:
    assert place.server is not None
    place.append(numbered(1, 3))
    async with following(place.host, place.path, place.pace) as taken:
        await taken.until(lambda: taken.text == numbered(1, 3))
        place.server.stop()
        await taken.until(lambda: taken.has(Lost))
        os.truncate(place.file, 0)
        place.append(numbered(101, 140))
        place.server.start()
        await taken.until(lambda: taken.text == numbered(1, 3) + numbered(101, 140))


@pytest.mark.parametrize("place", ["ssh"], indirect=True)
@pytest.mark.parametrize("file", ["known_hosts", "authorized_keys"])
async def test_ends_where_only_a_person_can_help(place: Place, file: str) -> None:
    assert place.server is not None
    (place.server.folder / file).write_text("")
    place.append(numbered(1, 3))
    stranger = SshHost("gpu", place.server.address)
    async with following(stranger, place.path, place.pace) as taken:
        await taken.until(lambda: taken.has(Lost))
    await stranger.close()
    assert [item.retry_in for item in taken.items if isinstance(item, Lost)] == [None]


async def test_a_long_backlog_is_given_in_mouthfuls_with_room_for_others_between(tmp_path: Path) -> None:
    log, turns = tmp_path / "train.log", [0]
    at: list[tuple[int, int]] = []
    log.write_text(numbered(1, 9000))  # less than what is read at first

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    def deliver(item: Followed) -> None:
        if isinstance(item, Chunk):
            at.append((turns[0], len(item.data)))

    tasks = [
        asyncio.create_task(others()),
        asyncio.create_task(Follower(LocalHost(), str(log), deliver, pace=BRISK).run()),
    ]
    async with asyncio.timeout(20):
        while sum(size for _, size in at) < log.stat().st_size:
            await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert max(size for _, size in at) <= 16 * 1024
    assert len({turn for turn, _ in at}) == len(at)
