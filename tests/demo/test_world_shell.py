"""The `sh` of the demo's hosts: for the programs with which checkpoints are moved, inside the hosts' folders."""

from __future__ import annotations

import pytest

from dflash_tui.checkpoints.segments import Literal, Range
from dflash_tui.demo.world import DemoWorld
from dflash_tui.hosts.base import Host
from dflash_tui.transfer.emission import emission
from dflash_tui.transfer.writing import writing

BYTES = bytes(range(256)) * 16


async def emitted(host: Host, folder: str) -> bytes:
    program = emission(folder, [Literal(b"head\n"), Range("data", 100, 1000)])
    return (await host.run(program.argv, stdin=program.stdin)).stdout


@pytest.mark.parametrize("side", ["lab", "ct200"])
async def test_emits_and_writes_what_a_transfer_asks_for(world: DemoWorld, side: str) -> None:
    host, folder = world.hosts[side], world.root / side
    (folder / "data").write_bytes(BYTES)
    assert await emitted(host, str(folder)) == b"head\n" + BYTES[100:1100]
    await host.run(writing(str(folder / ".data.part"), 0, len(BYTES)), stdin=BYTES)
    assert (folder / ".data.part").read_bytes() == BYTES


async def test_no_path_leads_out_of_the_host_s_folder(world: DemoWorld) -> None:
    outside = world.root / "pve" / ".data.part"
    done = await world.hosts["lab"].run(writing(str(outside), 0, 10), stdin=b"x", check=False)
    assert (done.status, "Permission denied" in done.stderr) == (126, True)
    assert not outside.exists()


async def test_nobody_else_s_programs_run(world: DemoWorld) -> None:
    for words in (["sh", "-c", "id"], ["sh", "-c", "id", "other"], ["sh", "script"]):
        assert (await world.hosts["lab"].run(words, check=False)).status == 127
    standing = await world.hosts["lab"].run(["sh"], stdin=b"exec 3>&1; n=/dev/null\n", check=False)
    assert standing.status == 127
