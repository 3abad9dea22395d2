"""A training watched whole: its log and its checkpoints, live and once."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dflash_tui.hosts.base import Entry, HostUnreachable, PermissionRefused, Stat
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.watch.arguments import Arguments, training_facts
from dflash_tui.watch.events import (
    CheckpointsListed,
    HostAnswered,
    MachineRead,
    TrainingProgressed,
    WatchEvent,
    WatchLost,
    WatchRestored,
)
from dflash_tui.watch.progress import Progress
from dflash_tui.watch.training import EVENT_INTERVAL, TrainingWatch, read_once
from tests.cases import known
from tests.pct import Pct
from tests.sshd import running_sshd
from tests.watch.following import BRISK, numbered
from tests.watch.test_saved import save

STORY = known("cases/story")


class Seen:
    """The events of a watch."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []
        self.times: list[float] = []
        self._more = asyncio.Event()

    def emit(self, event: WatchEvent) -> None:
        self.events.append(event)
        if isinstance(event, TrainingProgressed):
            self.times.append(time.monotonic())
        self._more.set()

    @property
    def progress(self) -> Progress | None:
        """The newest."""
        found = [event.progress for event in self.events if isinstance(event, TrainingProgressed)]
        return found[-1] if found else None

    @property
    def lines(self) -> list[str]:
        """All new lines, in order."""
        return [line for event in self.events if isinstance(event, TrainingProgressed) for line in event.new_lines]

    def steps(self) -> list[int | None]:
        """Steps of the newest listing."""
        listed = [event for event in self.events if isinstance(event, CheckpointsListed)]
        return [item.step for item in listed[-1].checkpoints] if listed else []

    async def until(self, what: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until something is true; checked whenever an event comes."""
        async with asyncio.timeout(seconds):
            while not what():
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def watching(watch: TrainingWatch) -> AsyncIterator[Seen]:
    """Watch until the block ends."""
    seen = Seen()
    task = asyncio.create_task(watch.run(seen.emit))
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def at_step(seen: Seen, step: int) -> Callable[[], bool]:
    return lambda: seen.progress is not None and seen.progress.step == step


async def test_reads_the_story_once_with_every_fact_and_its_source(tmp_path: Path) -> None:
    for name in ("train.log", "train_args.json"):
        shutil.copyfile(STORY / name, tmp_path / name)
    save(tmp_path / "checkpoints", 4000)
    log, arguments = str(tmp_path / "train.log"), str(tmp_path / "train_args.json")
    found = await read_once(LocalHost("ct200"), log, str(tmp_path / "checkpoints"), arguments)
    assert found.progress is not None
    assert (found.progress.step, found.progress.total) == (5329, 20000)
    assert found.host_clock.known
    assert abs(found.host_clock.ahead) < 1
    facts = [(fact.kind, fact.value, fact.source.path, fact.source.where) for fact in found.facts]
    blocks = [fact[1:] for fact in facts if fact[0] == "train.block_size"]
    assert blocks == [(32, arguments, "block_size"), (32, log, "line 48")]
    told = {fact[0]: fact[1:] for fact in facts}
    assert told["train.mask_token_id"] == (248070, arguments, "mask_token_id")
    assert told["train.taps"] == ([1, 16, 31, 46, 61], arguments, "target_layer_ids")
    (live,) = [fact for fact in found.facts if fact.kind == "train.live"]
    assert (live.value["step"], live.value["total"], live.value["line_number"]) == (5329, 20000, 48)
    assert live.value["line"].startswith("[2026-05-21 09:36:25] step=5329/20000")
    assert live.source.host == "ct200"
    (newest,) = [fact for fact in facts if fact[0] == "train.newest_saved"]
    assert newest[1:] == (4000, str(tmp_path / "checkpoints" / "step_4000"), "")


def test_arguments_as_a_command_line_spells_them_and_not_those_of_the_target() -> None:
    values = {"--target-layer-ids": "1,16, 31", "draft": {"mask-token-id": "7"}, "target_config": {"mask_token_id": 9}}
    facts = training_facts("h", "/log", None, (), Arguments("h", "/a.json", values), now=0.0)
    assert [(fact.kind, fact.value, fact.source.where) for fact in facts] == [
        ("train.mask_token_id", 7, "draft.mask-token-id"),
        ("train.taps", [1, 16, 31], "--target-layer-ids"),
    ]


async def test_reads_the_story_inside_a_busybox_container(tmp_path: Path) -> None:
    pct = Pct(tmp_path)
    shutil.copyfile(STORY / "train.log", pct.root / "data" / "train.log")
    save(pct.root / "data" / "checkpoints", 4000)
    save(pct.root / "data" / "checkpoints", 6000, keep=0.7, age=3)
    host = ContainerHost(LocalHost(), (str(pct.path), "exec", "200", "--"), "ct200")
    found = await read_once(host, "/data/train.log", "/data/checkpoints")
    assert found.progress is not None
    assert (found.progress.step, found.progress.block_size) == (5329, 32)
    assert [(item.step, item.completeness) for item in found.checkpoints] == [(4000, "complete"), (6000, "saving")]
    assert found.checkpoints[0].quick_id is not None


async def test_says_what_is_missing_and_reads_the_rest(tmp_path: Path) -> None:
    save(tmp_path / "checkpoints", 4000)
    log, arguments = str(tmp_path / "none.log"), str(tmp_path / "no.json")
    found = await read_once(LocalHost(), log, str(tmp_path / "checkpoints"), arguments)
    assert found.progress is None
    assert "none.log" in found.log_problem
    assert [item.step for item in found.checkpoints] == [4000]
    assert [fact.kind for fact in found.facts] == ["train.newest_saved"]
    assert len(found.problems) == 2
    assert "no.json" in found.problems[1]


async def test_says_why_an_arguments_file_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text("block_size: 32")
    found = await read_once(LocalHost(), str(tmp_path / "no.log"), str(tmp_path / "none"), str(tmp_path / "args.json"))
    assert found.arguments is not None
    assert "args.json: not a JSON text" in found.arguments.problem
    assert "none" in found.checkpoints_problem


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"block_size": 32}', "block_size"),
        ('{"drafter": {"block-size": "32"}}', "drafter.block-size"),
        ('{"args": {"model": {"draft_block_size": 32}}, "kv_block_size": 16}', "args.model.draft_block_size"),
    ],
)
async def test_finds_the_block_size_in_the_arguments(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / "args.json").write_text(text)
    found = await read_once(LocalHost(), str(tmp_path / "no.log"), str(tmp_path), str(tmp_path / "args.json"))
    assert [(fact.value, fact.source.where) for fact in found.facts] == [(32, where)]


async def test_watches_a_log_and_its_checkpoints_grow(tmp_path: Path) -> None:
    log, root = tmp_path / "train.log", tmp_path / "checkpoints"
    root.mkdir()
    log.write_text(numbered(1, 5))
    watch = TrainingWatch(LocalHost("gpu"), str(log), str(root), pace=BRISK, listing_interval=60)
    async with watching(watch) as seen:
        await seen.until(at_step(seen, 5))
        await seen.until(lambda: any(isinstance(event, CheckpointsListed) for event in seen.events))
        save(root, 6)
        with log.open("a") as file:
            file.write(numbered(6, 6) + f"saved checkpoint: {root}/step_6/checkpoint.pt\n")
        # The announcement is reason enough to look: the next regular look is a minute away.
        await seen.until(lambda: seen.steps() == [6])
        await seen.until(at_step(seen, 6))
    assert seen.lines == [*numbered(1, 6).splitlines(), f"saved checkpoint: {root}/step_6/checkpoint.pt"]
    assert any(isinstance(event, HostAnswered) and event.host == "gpu" for event in seen.events)
    assert not any(isinstance(event, WatchLost) for event in seen.events)


async def test_tells_progress_at_most_four_times_a_second(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("")
    watch = TrainingWatch(LocalHost(), str(log), str(tmp_path), pace=BRISK)
    async with watching(watch) as seen:
        for step in range(1, 121):
            with log.open("a") as file:
                file.write(numbered(step, step))
            await asyncio.sleep(0.01)
        await seen.until(at_step(seen, 120))
    gaps = [later - earlier for earlier, later in zip(seen.times, seen.times[1:], strict=False)]
    assert len(gaps) >= 3
    assert min(gaps) > EVENT_INTERVAL * 0.9
    assert seen.lines == numbered(1, 120).splitlines()


async def test_a_silence_becomes_a_stall_without_any_new_line(tmp_path: Path) -> None:
    log, shift = tmp_path / "train.log", [0.0]
    log.write_text(numbered(1, 5))
    watch = TrainingWatch(LocalHost(), str(log), str(tmp_path), pace=BRISK, clock=lambda: time.time() + shift[0])
    async with watching(watch) as seen:
        await seen.until(at_step(seen, 5))
        shift[0] = 61.0
        await seen.until(lambda: seen.progress is not None and seen.progress.stalled)


async def test_says_that_it_waits_for_the_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    async with watching(TrainingWatch(LocalHost(), str(log), str(tmp_path), pace=BRISK)) as seen:
        await seen.until(lambda: seen.progress is not None and "train.log" in seen.progress.waiting)
        log.write_text(numbered(1, 1))
        await seen.until(at_step(seen, 1))
        assert seen.progress is not None
        assert seen.progress.waiting == ""


async def test_tells_that_the_host_is_lost_and_back_and_misses_nothing(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    log = tmp_path / "train.log"
    log.write_text(numbered(1, 2))
    with running_sshd(tmp_path / "keys") as server:
        host = SshHost("gpu", server.address)
        async with watching(TrainingWatch(host, str(log), str(tmp_path), pace=BRISK)) as seen:
            await seen.until(at_step(seen, 2))
            server.stop()
            await seen.until(lambda: any(isinstance(event, WatchLost) and event.retry_in for event in seen.events))
            with log.open("a") as file:
                file.write(numbered(3, 4))
            server.start()
            await seen.until(lambda: any(isinstance(event, WatchRestored) for event in seen.events))
            await seen.until(at_step(seen, 4))
        await host.close()
    assert seen.lines == numbered(1, 4).splitlines()


class Gone(LocalHost):
    """A host that nobody reaches."""

    def __init__(self) -> None:
        super().__init__("gone")
        self.tried: list[str] = []

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        self.tried.append("log")
        raise HostUnreachable("gone: no route")

    async def list(self, path: str) -> list[Entry]:
        self.tried.append("checkpoints")
        raise HostUnreachable("gone: no route")


async def test_a_host_that_is_gone_is_tried_by_one_at_its_own_pace(tmp_path: Path) -> None:
    host = Gone()
    watch = TrainingWatch(
        host, str(tmp_path / "train.log"), str(tmp_path), pace=BRISK, listing_interval=0.001, machine_interval=0.001
    )
    async with watching(watch) as seen:
        await seen.until(lambda: any(isinstance(event, WatchLost) for event in seen.events))
        before = host.tried.count("checkpoints")
        await seen.until(lambda: len([event for event in seen.events if isinstance(event, WatchLost)]) > 5)
    assert host.tried.count("checkpoints") <= before + 1  # one may have been under way
    assert not any(isinstance(event, CheckpointsListed) for event in seen.events)


async def test_a_log_that_may_not_be_read_keeps_nobody_from_the_checkpoints(tmp_path: Path) -> None:
    class Refusing(LocalHost):
        async def stat(self, path: str, *, follow: bool = True) -> Stat:
            if path.endswith(".log"):
                raise PermissionRefused("gpu: train.log may not be used by this user")
            return await super().stat(path, follow=follow)

    (tmp_path / "train.log").write_text("")
    watch = TrainingWatch(
        Refusing(), str(tmp_path / "train.log"), str(tmp_path), pace=BRISK, listing_interval=0.05, machine_interval=0.05
    )
    async with watching(watch) as seen:
        await seen.until(lambda: any(isinstance(event, WatchLost) for event in seen.events))
        save(tmp_path, 6)
        await seen.until(lambda: seen.steps() == [6])


async def test_tells_how_much_room_there_is_where_checkpoints_go(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step=1/10 loss=1.0\n")
    async with watching(TrainingWatch(LocalHost("here"), str(tmp_path / "train.log"), str(tmp_path))) as seen:
        await seen.until(lambda: any(isinstance(event, MachineRead) for event in seen.events))
    (machine,) = [event.machine for event in seen.events if isinstance(event, MachineRead)]
    space = os.statvfs(tmp_path)
    assert machine.free == pytest.approx(space.f_bavail * space.f_frsize, rel=0.05)
    assert machine.gpus
