"""Checkpoints of which nothing but time tells that they are whole: looked at twice, a while after the last change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from dflash_tui.hosts.base import Stat
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.watch.clock import HostClock
from dflash_tui.watch.saved import CheckpointLister, Wait
from dflash_tui.watch.settled import ABANDONED, APART, QUIET, settled, sighted
from tests.cases import known

CLOCK = HostClock(known=True)
WHOLE = known("cases/checkpoints/raw-step/step_4000/checkpoint.pt")
HUGGING = save({"norm.weight": np.ones(8, np.float32)})
STRANGE = b"a format that nobody knows, " * 100


class Host(LocalHost):
    """This machine, whose clock stands where the test puts it."""

    now = 1_000_000.0


def put(root: Path, step: int, age: float, data: bytes = STRANGE, now: float | None = None) -> Path:
    path = root / f"step_{step}" / "checkpoint.pt"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    when = (time.time() if now is None else now) - age
    os.utime(path, (when, when))
    return path


def lister(root: Path, host: Host) -> CheckpointLister:
    return CheckpointLister(host, str(root), clock=lambda: host.now)


async def test_two_looks_at_what_is_quiet_make_it_complete_and_say_so(tmp_path: Path) -> None:
    host = Host()
    put(tmp_path, 1, 100, now=host.now)
    looker = lister(tmp_path, host)
    (first,) = await looker.look(CLOCK)
    assert first.completeness == "unknown"
    host.now += APART / 2
    (again,) = await looker.look(CLOCK)
    assert again.completeness == "unknown", "too soon after the first look"
    host.now += APART
    (second,) = await looker.look(CLOCK)
    assert second.completeness == "complete"
    assert f"unchanged for {QUIET:.0f} s and looked at twice" in second.reason
    host.now += 1000
    assert await looker.look(CLOCK) == (second,), "what is told stays the same"


async def test_a_young_one_is_saving_until_it_is_quiet(tmp_path: Path) -> None:
    host = Host()
    put(tmp_path, 1, 1, now=host.now)
    looker = lister(tmp_path, host)
    for seconds, state in ((0, "saving"), (10, "saving"), (QUIET - 12, "saving"), (2, "complete")):
        host.now += seconds
        (found,) = await looker.look(CLOCK)
        assert found.completeness == state, seconds


async def test_a_save_over_an_older_one_is_not_ended_by_that_ones_last_file(tmp_path: Path) -> None:
    host = Host()
    folder = tmp_path / "checkpoint-100"
    folder.mkdir()
    looker = lister(tmp_path, host)
    for name, data, age in (("model.safetensors", HUGGING, 1), ("trainer_state.json", b'{"global_step": 100}', 3600)):
        (folder / name).write_bytes(data)
        os.utime(folder / name, (host.now - age, host.now - age))
    (over,) = await looker.look(CLOCK)
    assert (over.completeness, "more may come" in over.reason) == ("saving", True)
    os.utime(folder / "trainer_state.json", (host.now, host.now))
    (again,) = await looker.look(CLOCK)
    assert again.completeness == "complete"


async def test_each_change_begins_the_wait_anew(tmp_path: Path) -> None:
    host = Host()
    looker = lister(tmp_path, host)
    for number in range(5):
        put(tmp_path, 1, 0, STRANGE + bytes(number), now=host.now)
        (found,) = await looker.look(CLOCK)
        assert found.completeness == "saving"
        host.now += QUIET - 1
        (found,) = await looker.look(CLOCK)
        assert found.completeness == "saving"
    host.now += 2
    (found,) = await looker.look(CLOCK)
    assert found.completeness == "complete"


async def test_the_host_s_clock_counts_not_this_machine_s(tmp_path: Path) -> None:
    host = Host()
    put(tmp_path, 1, 100, now=host.now)
    behind = HostClock(ahead=-95.0, known=True)
    looker = lister(tmp_path, host)
    for _ in range(2):
        (found,) = await looker.look(behind)
        assert found.completeness == "saving", "on its host it is 5 s old"
        host.now += 2
    host.now += QUIET
    (found,) = await looker.look(behind)
    assert found.completeness == "complete"


async def test_a_time_in_the_future_does_not_keep_it_waiting_forever(tmp_path: Path) -> None:
    host = Host()
    put(tmp_path, 1, -5000, now=host.now)
    looker = lister(tmp_path, host)
    await looker.look(CLOCK)
    host.now += QUIET + 1
    (found,) = await looker.look(CLOCK)
    assert found.completeness == "complete"


async def test_who_looks_once_looks_twice_by_itself(tmp_path: Path) -> None:
    put(tmp_path, 1, 100)
    told: list[str] = []
    looker = CheckpointLister(LocalHost(), str(tmp_path))
    began = time.monotonic()
    (found,) = await looker.settle(CLOCK, Wait(told=lambda path, seconds: told.append(path)))
    assert found.completeness == "complete"
    assert APART <= time.monotonic() - began < 5
    assert told == [str(tmp_path / "step_1")]


async def test_it_waits_as_long_as_the_file_has_to_be_quiet(tmp_path: Path) -> None:
    put(tmp_path, 1, QUIET - 2)
    began = time.monotonic()
    (found,) = await CheckpointLister(LocalHost(), str(tmp_path)).settle(CLOCK, Wait())
    assert found.completeness == "complete"
    assert 1.5 <= time.monotonic() - began < 10


async def test_it_does_not_wait_for_one_that_grows(tmp_path: Path) -> None:
    path = put(tmp_path, 1, 0)

    async def write() -> None:
        while True:
            with path.open("ab") as stream:
                stream.write(b"more")
            await asyncio.sleep(0.05)

    writing = asyncio.create_task(write())
    began = time.monotonic()
    (found,) = await CheckpointLister(LocalHost(), str(tmp_path)).settle(CLOCK, Wait())
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    assert found.completeness == "saving"
    assert time.monotonic() - began < 10


async def test_it_does_not_wait_where_bytes_tell_or_for_what_is_not_wanted(tmp_path: Path) -> None:
    put(tmp_path, 1, 100)
    (tmp_path / "step_2").mkdir()
    shutil.copyfile(WHOLE, tmp_path / "step_2" / "checkpoint.pt")
    began = time.monotonic()
    found = await CheckpointLister(LocalHost(), str(tmp_path)).settle(CLOCK, Wait())
    assert [item.completeness for item in found] == ["unknown", "complete"]
    assert time.monotonic() - began < APART
    found = await CheckpointLister(LocalHost(), str(tmp_path)).settle(CLOCK, Wait(step=1))
    assert [item.completeness for item in found] == ["complete", "complete"]
    put(tmp_path, 3, 5)
    looker = CheckpointLister(LocalHost(), str(tmp_path))
    found = await looker.settle(CLOCK, Wait(patience=2.0, every=True))
    assert [item.completeness for item in found] == ["complete", "complete", "saving"]


async def test_a_save_that_a_crash_has_left_is_called_that_after_an_hour(tmp_path: Path) -> None:
    host = Host()
    path = put(tmp_path, 1, 10, now=host.now)
    path.rename(path.with_name("checkpoint.pt.tmp"))
    looker = lister(tmp_path, host)
    (found,) = await looker.look(CLOCK)
    assert found.completeness == "saving"
    host.now += ABANDONED
    (found,) = await looker.look(CLOCK)
    assert found.completeness == "truncated"
    assert "nothing changed for an hour" in found.reason


async def test_a_folder_that_may_not_be_read_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dflash_tui.hosts.base import Entry, PermissionRefused

    class Refusing(LocalHost):
        async def list(self, path: str) -> list[Entry]:
            if path.endswith(("lost+found", "step_2")):
                raise PermissionRefused(f"local: {path}: permission denied")
            return await super().list(path)

    put(tmp_path, 1, 100, WHOLE.read_bytes())
    (tmp_path / "step_2").mkdir()
    (tmp_path / "lost+found").mkdir()
    first, second = await CheckpointLister(Refusing(), str(tmp_path)).look(CLOCK)
    assert (first.step, first.completeness) == (1, "complete")
    assert (second.step, second.completeness) == (2, "unknown")
    assert "permission denied" in second.reason


@given(
    state=st.sampled_from(("complete", "saving", "truncated", "unknown")),
    finished=st.sampled_from((True, False, None)),
    ended=st.booleans(),
    age=st.floats(0, 5000),
    watched=st.floats(0, 5000),
)
def test_nothing_that_bytes_or_names_call_unfinished_is_ever_complete(
    state: str, finished: bool | None, ended: bool, age: float, watched: float
) -> None:
    files = (("checkpoint.pt", Stat("file", 10, 1e6 - age, 7, 1)),)
    judged = SavedCheckpoint("h", "/c", "/", ("checkpoint.pt",), 1, 10, 1e6 - age, 7, state, "why")  # type: ignore[arg-type]
    seen = sighted(sighted(None, files, 0.0, 1e6 - watched), files, 0.0, 1e6)
    answer = settled(judged, seen, finished, "latest names it", ended=ended)
    if state in ("saving", "truncated"):
        assert answer.completeness in ("saving", "truncated")
    if state == "complete" and (ended or finished) and finished is not False:
        assert answer == judged
    if answer.completeness == "complete" and state == "unknown" and not finished:
        assert watched >= APART
        assert max(age, watched) >= QUIET
