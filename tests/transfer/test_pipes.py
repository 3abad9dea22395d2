"""Bytes between two pipes: exactly as many as were asked for, in their order, whoever waits for whom."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_tui.transfer import pipes
from dflash_tui.transfer.pipes import FarEndGone, Join


@pytest.fixture(params=["spliced", "copied"], autouse=True)
def passing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "copied":  # as where the kernel has no splice
        monkeypatch.setattr(pipes, "_pass", pipes._copy)


@pytest.fixture
def join() -> Iterator[Join]:
    made = Join()
    yield made
    made.close()


async def passed(join: Join, source: list[str], most: int, step: int) -> tuple[bytes, int, bool]:
    """What a program got of another one's output, how many bytes were counted, and whether some were left."""
    with (
        subprocess.Popen(source, stdout=join.out) as out,
        subprocess.Popen(["cat"], stdin=join.into, stdout=subprocess.PIPE) as into,
    ):
        join.begun()
        assert into.stdout is not None
        reading = asyncio.create_task(asyncio.to_thread(into.stdout.read))
        moved = 0
        while moved < most and (count := await join.move(min(step, most - moved))):
            moved += count
        join.finish()
        got = await reading
        left = join.left()
        out.kill()
    return got, moved, left


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.integers(0, 3 << 20), most=st.integers(1, 3 << 20), step=st.sampled_from([1, 4096, 70_000, 4 << 20]))
async def test_passes_what_was_asked_for_and_no_byte_more(size: int, most: int, step: int) -> None:
    join = Join()
    step = max(step, most // 200)
    data = os.urandom(size)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=join.out) as source:
        assert source.stdin is not None
        feeding = asyncio.create_task(asyncio.to_thread(_feed, source, data))
        got, moved, left = await passed(join, ["true"], most, step)
        source.kill()
        await feeding
    join.close()
    assert got == data[:most]
    assert moved == len(got)
    assert left == (size > most)


def _feed(source: subprocess.Popen[bytes], data: bytes) -> None:
    assert source.stdin is not None
    try:
        source.stdin.write(data)
        source.stdin.close()
    except BrokenPipeError:
        return


async def _all(join: Join) -> None:
    while await join.move(8 << 20):
        pass


async def test_a_reader_that_goes_away_is_told_though_nothing_comes(join: Join) -> None:
    with subprocess.Popen(["sleep", "600"], stdout=join.out) as silent:
        with subprocess.Popen(["true"], stdin=join.into):
            join.begun()
        with pytest.raises(FarEndGone):
            await asyncio.wait_for(join.move(1), 10)
        silent.kill()


async def test_a_reader_that_goes_away_in_the_middle_is_told(join: Join) -> None:
    with (
        subprocess.Popen(["cat", "/dev/zero"], stdout=join.out) as source,
        subprocess.Popen(["head", "-c", "100000"], stdin=join.into, stdout=subprocess.DEVNULL),
    ):
        join.begun()
        with pytest.raises(FarEndGone):
            await asyncio.wait_for(_all(join), 30)
        source.kill()


@pytest.mark.parametrize(("source", "reader"), [("sleep 600", "cat"), ("cat /dev/zero", "sleep 600")])
async def test_can_be_left_while_one_of_them_is_silent(join: Join, source: str, reader: str) -> None:
    with (
        subprocess.Popen(source.split(), stdout=join.out) as out,
        subprocess.Popen(reader.split(), stdin=join.into, stdout=subprocess.DEVNULL) as into,
    ):
        join.begun()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_all(join), 0.5)
        for program in (out, into):
            program.kill()
