"""Folders with hundreds of checkpoints: few questions to their host, the newest first; and one that can't be read."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from dflash_tui.hosts.base import Completed, Entry, Host, PermissionRefused, Process, Stat
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.shell import ShellHost
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.hosts.together import list_folders, read_files
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.watch.clock import HostClock
from dflash_tui.watch.saved import CheckpointLister, Wait
from tests.cases import known
from tests.pct import Pct
from tests.sshd import running_sshd
from tests.watch.test_saved import save, touch

CHECKPOINT = known("cases/checkpoints/raw-step/step_4000/checkpoint.pt")
CLOCK = HostClock(known=True)
FILES = "/data/checkpoints"


class Node(LocalHost):
    """A machine that counts the launchers that are started on it."""

    started = 0

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        self.started += 1
        return super().stream(argv, stdin=stdin)


class Guest:
    """A container, its folder of checkpoints, and how many questions it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pct = Pct(folder)
        self.node = Node("pve")
        self.host = ContainerHost(self.node, pct.prefix(), "ct200")
        self.root = pct.root / FILES.lstrip("/")
        self.root.mkdir(parents=True)
        self.asked = 0
        run = ShellHost.run

        async def counted(shell: ShellHost, argv: Sequence[str], **options: object) -> Completed:
            self.asked += 1
            return await run(shell, argv, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(ShellHost, "run", counted)

    def fill(self, count: int) -> None:
        """So many whole checkpoints, each with names of the same bytes."""
        first = save(self.root, 1)
        for step in range(2, count + 1):
            (self.root / f"step_{step}").mkdir()
            os.link(first, self.root / f"step_{step}" / "checkpoint.pt")


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guest:
    return Guest(tmp_path, monkeypatch)


def states(found: Sequence[SavedCheckpoint]) -> list[str]:
    return [item.completeness for item in found]


async def test_of_many_the_newest_are_looked_into_with_few_commands(guest: Guest) -> None:
    guest.fill(300)
    lister = CheckpointLister(guest.host, FILES)
    found = await lister.look(CLOCK)
    assert [item.step for item in found] == list(range(1, 301))
    assert states(found) == ["unknown"] * 252 + ["complete"] * 48
    assert (lister.reads, lister.unseen) == (48, 252)
    assert found[0].reason.startswith("not looked into")
    assert (found[0].size, found[0].files) == (CHECKPOINT.stat().st_size, ("checkpoint.pt",))
    assert guest.asked < 15, "one question a folder, or more, would be hundreds"
    assert guest.node.started < 10
    again, asked = await lister.look(CLOCK), guest.asked
    assert again == found
    await lister.look(CLOCK)
    assert (lister.reads, guest.asked - asked < 6) == (48, True)


async def test_all_are_looked_into_with_few_commands_when_that_is_asked(guest: Guest) -> None:
    guest.fill(300)
    lister = CheckpointLister(guest.host, FILES)
    found = await lister.look(CLOCK, Wait(every=True))
    assert states(found) == ["complete"] * 300
    assert {item.quick_id for item in found} == {found[-1].quick_id}
    assert (lister.reads, lister.unseen) == (300, 0)
    assert guest.asked < 40
    assert guest.node.started < 25
    before = guest.node.started
    sizes = {await lister.weights_size(item) for item in found}
    assert len(sizes) == 1
    assert guest.node.started - before < 10, "all are of one make: one is read"


async def test_at_most_four_hundred_are_looked_into(guest: Guest) -> None:
    guest.fill(450)
    lister = CheckpointLister(guest.host, FILES)
    found = await lister.look(CLOCK, Wait(every=True))
    assert (len(found), states(found).count("complete"), lister.unseen) == (450, 400, 50)


async def test_what_is_asked_for_is_looked_into_however_old(guest: Guest) -> None:
    guest.fill(60)
    assert states(await CheckpointLister(guest.host, FILES).look(CLOCK, Wait(step=3)))[:4] == [
        "unknown", "unknown", "complete", "unknown",
    ]  # fmt: skip
    by_path = Wait(path=f"{FILES}/step_2/checkpoint.pt")
    assert states(await CheckpointLister(guest.host, FILES).look(CLOCK, by_path))[:3] == [
        "unknown", "complete", "unknown",
    ]  # fmt: skip


async def test_the_newest_whole_one_is_found_behind_many_torn_ones(tmp_path: Path) -> None:
    for step in range(1, 121):
        save(tmp_path, step, keep=1.0 if step in (3, 30) else 0.5)
    found = await CheckpointLister(LocalHost(), str(tmp_path)).look(CLOCK)
    assert [item.step for item in found if item.completeness == "complete"] == [30]
    assert states(found)[-90:] == ["truncated"] * 90


async def test_judgements_made_together_are_those_made_alone(guest: Guest) -> None:
    for step in range(1, 11):
        save(guest.root, step, keep=0.4 if step % 3 == 0 else 1.0)
    (guest.root / "step_5" / "checkpoint.pt").write_bytes(b"")
    touch(guest.root / "step_5" / "checkpoint.pt", 3600)
    (guest.root / "step_7" / "checkpoint.pt").write_bytes(os.urandom(5000))
    touch(guest.root / "step_7" / "checkpoint.pt", 3600)
    (guest.root / "step_8" / "odd\nname 'x'.pt").write_bytes(b"PK\x03\x04" + b"z" * 900)
    together = await CheckpointLister(guest.host, FILES).look(CLOCK)
    near = await CheckpointLister(LocalHost(), str(guest.root)).look(CLOCK)
    assert [(item.step, item.completeness, item.quick_id) for item in together] == [
        (item.step, item.completeness, item.quick_id) for item in near
    ]


@pytest.fixture(params=["container", "ssh", "local"])
async def anywhere(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Host, Path, str]]:
    """A host, a folder on it as this machine sees it, and its path there."""
    if request.param == "container":
        pct = Pct(tmp_path)
        yield ContainerHost(LocalHost("pve"), pct.prefix(), "ct200"), pct.root / "data", "/data"
    elif request.param == "ssh":
        with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
            host = SshHost("server", server.address)
            yield host, tmp_path, str(tmp_path)
            await host.close()
    else:
        yield LocalHost(), tmp_path, str(tmp_path)


async def test_folders_listed_together_are_as_listed_alone(anywhere: tuple[Host, Path, str]) -> None:
    host, here, there = anywhere
    for name in ("a", "b'c", "d\ne", "empty", "a/deeper"):
        (here / name).mkdir()
        if name != "empty":
            (here / name / "81a4 5 1 2 1 x\n81a4 7 7 7 7 y").write_bytes(b"12345")
            (here / name / "link").symlink_to("../a\nb")
    paths = [f"{there}/{name}" for name in ("a", "b'c", "d\ne", "empty", "a/deeper", "gone")]
    found = await list_folders(host, paths)
    for path in paths[:-1]:
        assert found[path] == await host.list(path), path
    assert "does not exist" in str(found[paths[-1]])


async def test_pieces_read_together_are_the_files(anywhere: tuple[Host, Path, str]) -> None:
    host, here, there = anywhere
    data = os.urandom(300_000)
    (here / "one'\n").write_bytes(data)
    (here / "two").write_bytes(data[:700])
    wanted = [("one'\n", 0, 40), ("one'\n", 168_928, 131_072), ("gone", 0, 9), ("two", 600, 100), ("two", 600, 101)]
    found = await read_files(host, [(f"{there}/{name}", offset, length) for name, offset, length in wanted])
    right = [data[:40], data[168_928:], None, data[600:700], None]
    assert found == ([None] * 5 if type(host) is LocalHost else right)


class Refusing(LocalHost):
    """A host that refuses to say anything of a name."""

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        if "step_2" in path:
            raise PermissionRefused(f"{self.name}: {path} may not be used by this user")
        return await super().stat(path, follow=follow)

    async def stat_many(self, paths: Sequence[str], *, follow: bool = True) -> list[Stat | None]:
        return [await self.stat(path, follow=follow) for path in paths]

    async def read(self, path: str, offset: int, length: int) -> bytes:
        if "step_3" in path or path.endswith("latest.txt"):
            raise PermissionRefused(f"{self.name}: {path} may not be used by this user")
        return await super().read(path, offset, length)

    async def list(self, path: str) -> list[Entry]:
        if path.endswith("step_4"):
            raise PermissionRefused(f"{self.name}: {path} may not be used by this user")
        return await super().list(path)


async def test_what_cant_be_read_stays_unknown_and_the_others_are_told(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    (tmp_path / "step_2" / "checkpoint.pt").rename(tmp_path / "elsewhere.bin.old")
    (tmp_path / "step_2" / "checkpoint.pt").symlink_to(tmp_path / "elsewhere.bin.old")
    os.utime(tmp_path / "step_2" / "checkpoint.pt", (time.time() - 3600,) * 2, follow_symlinks=False)
    (tmp_path / "latest.txt").write_text("5")
    now = time.time() + 60
    lister = CheckpointLister(Refusing(), str(tmp_path), clock=lambda: now)
    await lister.look(CLOCK)
    now += 60
    found = {item.step: item for item in await lister.look(CLOCK)}
    assert [found[step].completeness for step in range(1, 6)] == [
        "complete", "unknown", "unknown", "unknown", "complete",
    ]  # fmt: skip
    for step in (2, 3, 4):
        assert "may not be used by this user" in found[step].reason
    size, problem = await lister.weights_size(found[3])
    assert size is None
    assert "may not be used by this user" in problem
