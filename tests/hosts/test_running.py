"""Tasks that belong together."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from dflash_tui.hosts.running import command_text, together


class Part:
    """Works until it is cancelled, then clears away for some turns of the loop."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self.cleared = False

    async def work(self) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            for _ in range(self._turns):
                await asyncio.sleep(0)
            self.cleared = True


async def test_all_clear_away_when_they_are_cancelled_however_long_each_takes() -> None:
    parts = [Part(turns) for turns in (0, 3, 20)]
    task = asyncio.create_task(together(*(part.work() for part in parts)))
    await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert [part.cleared for part in parts] == [True] * 3


async def test_all_clear_away_when_a_time_is_over() -> None:
    parts = [Part(turns) for turns in (0, 20)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await together(*(part.work() for part in parts))
    assert [part.cleared for part in parts] == [True] * 2


async def test_the_error_of_one_ends_the_others_also_in_a_task_that_is_being_cancelled() -> None:
    parts = [Part(0), Part(20)]

    async def fail() -> None:
        raise ValueError("mine")

    async def clearing() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            with pytest.raises(ValueError, match="mine"):
                await together(*(part.work() for part in parts), fail())

    task = asyncio.create_task(clearing())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(10):
        with suppress(asyncio.CancelledError):
            await task
    assert [part.cleared for part in parts] == [True] * 2


async def test_a_part_that_makes_an_error_of_its_end_does_not_hide_that_all_were_cancelled() -> None:
    async def broken() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise ValueError("the line broke") from None

    task = asyncio.create_task(together(broken(), Part(20).work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["ls", "a b"], "ls 'a b'"),
        (["sh", "-c", "exit 3"], "sh -c 'exit 3'"),
        (["sh", "-c", "\npart=$1\nexec dd\n", "dflash", "/a b/x", "5"], "sh -c … dflash '/a b/x' 5"),
        (["cat", "new\nline"], "cat 'new\nline'"),
        (["echo", "x" * 200], "echo " + "x" * 154 + "…"),
    ],
)
def test_a_command_in_a_sentence_is_one_line_that_fits(argv: list[str], text: str) -> None:
    assert command_text(argv) == text
    assert len(text) <= 160
