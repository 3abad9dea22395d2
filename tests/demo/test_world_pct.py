"""`pct` behaves like Proxmox's, for its users and for our `ContainerHost`."""

from __future__ import annotations

import os

import pytest

from dflash_tui.demo.world import DemoWorld
from dflash_tui.hosts.base import Completed, HostUnreachable
from dflash_tui.hosts.container import ContainerHost


async def pct(world: DemoWorld, *words: str, stdin: bytes = b"") -> Completed:
    return await world.hosts["pve"].run(["pct", *words], stdin=stdin, check=False)


async def test_tells_what_containers_there_are(world: DemoWorld) -> None:
    rows = [row.split() for row in (await pct(world, "list")).text.splitlines()]
    assert rows == [["VMID", "Status", "Lock", "Name"], ["200", "running", "trainer"]]
    assert (await pct(world, "status", "200")).text == "status: running\n"
    assert "hostname: trainer\n" in (await pct(world, "config", "200")).text


async def test_runs_a_command_with_its_words_streams_and_status(world: DemoWorld) -> None:
    inside = f"{world.root}/ct200"
    assert (await pct(world, "exec", "200", "--", "cat", stdin=b"bytes \0 through")).stdout == b"bytes \0 through"
    assert (await pct(world, "exec", "200", "--keep-env", "0", "--", "test", "-d", inside)).status == 0
    assert (await pct(world, "exec", "200", "--", "test", "-f", inside)).status == 1
    assert (await pct(world, "exec", "200", "--", "test", "nonsense")).status == 2
    missing = await pct(world, "exec", "200", "--", "cat", f"{inside}/a b")
    assert (missing.status, missing.stderr) == (1, f"cat: {inside}/a b: No such file or directory\n")
    absent = await pct(world, "exec", "200", "--", "nvidia-smi")
    assert absent.status == 127
    assert 'Failed to exec "nvidia-smi"' in absent.stderr


async def test_knows_no_shell_and_no_pct_inside(world: DemoWorld) -> None:
    for words in (["sh", "-c", "id"], ["pct", "list"], ["python3", "x.pyz"]):
        assert (await pct(world, "exec", "200", "--", *words)).status == 127
    done = await pct(world, "exec", "200", "--", "cat", "$(id)", "|", "sh")
    assert "$(id): No such file" in done.stderr


async def test_refuses_what_does_not_exist(world: DemoWorld) -> None:
    for words in (["status", "999"], ["exec", "999", "--", "true"], ["config", "999"], ["pull", "999", "/a", "/b"]):
        done = await pct(world, *words)
        assert (done.status, done.stderr) == (2, "Configuration file 'nodes/pve/lxc/999.conf' does not exist\n")
    assert (await pct(world, "exec", "abc", "--", "true")).status == 255
    assert (await pct(world, "frobnicate", "200")).status == 255
    assert (await pct(world)).status == 255
    stranger = ContainerHost(world.hosts["pve"], ("pct", "exec", "999", "--"), "ct999")
    with pytest.raises(HostUnreachable, match="does not exist"):
        await stranger.run(["true"])


async def test_a_stopped_container_runs_nothing(world: DemoWorld) -> None:
    world.container.running = False
    assert (await pct(world, "status", "200")).text == "status: stopped\n"
    done = await pct(world, "exec", "200", "--", "true")
    assert (done.status, done.stderr) == (255, "container '200' not running!\n")
    assert (await pct(world, "pull", "200", f"{world.root}/ct200/x", f"{world.root}/pve/x")).status == 255
    with pytest.raises(HostUnreachable, match="pct start 200"):
        await world.hosts["ct200"].run(["true"])
    world.container.running = True
    await world.hosts["ct200"].run(["true"])


async def test_pull_copies_and_hides_a_failure_as_the_real_one_does(world: DemoWorld) -> None:
    data = os.urandom(300_000)
    (world.root / "ct200" / "file").write_bytes(data)
    target = world.root / "pve" / "pulled"
    assert (await pct(world, "pull", "200", f"{world.root}/ct200/file", str(target))).status == 0
    assert target.read_bytes() == data
    done = await pct(world, "pull", "200", f"{world.root}/ct200/nothing", str(target))
    assert done.status == 0
    assert "No such file" in done.stderr
    assert target.read_bytes() == b""
    refused = await pct(world, "pull", "200", f"{world.root}/ct200/file", f"{world.root}/lab/pulled")
    assert refused.status == 1
    assert not (world.root / "lab" / "pulled").exists()
