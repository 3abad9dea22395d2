"""Thousands of files are looked at by few commands, none of them too long; names that transfers keep are nobody's."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_tui.hosts.ssh import SshHost
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.portions import portions, remove_files
from dflash_tui.transfer.space import look_for_room, missing_room
from tests.sshd import running_sshd
from tests.transfer.interrupted import place_in


def test_portions_hold_all_in_order() -> None:
    paths = [f"/a/folder with 'quotes'/{number:0{number % 200}}" for number in range(3000)]
    cut = list(portions(paths))
    assert [path for some in cut for path in some] == paths
    assert max(sum(map(len, some)) for some in cut) < 60_000
    assert list(portions([])) == []
    assert list(portions(["x" * 100_000, "y"])) == [["x" * 100_000], ["y"]]


async def test_three_thousand_parts_are_looked_at_and_removed_over_ssh(tmp_path: Path) -> None:
    (tmp_path / "sshd").mkdir()
    folder = tmp_path / "a folder of shards"
    folder.mkdir()
    parts = {str(folder / f".model-{number:05d}-of-03000.safetensors.part"): 1 << 40 for number in range(3000)}
    for part in parts:
        Path(part).write_bytes(bytes(4096))
    with running_sshd(tmp_path / "sshd") as server:
        host = SshHost("ct129", server.address)
        try:
            assert len((await look_for_room(host, str(folder), list(parts))).held) == 3000
            assert await missing_room(host, str(folder), parts) > 2999 << 40
            await remove_files(host, list(parts))
        finally:
            await host.close()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("name", [".transfer.json", ".transfer.claim"])
async def test_a_file_with_a_name_that_transfers_keep_is_refused(tmp_path: Path, name: str) -> None:
    place = place_in(tmp_path)
    place.make(10, name)
    with pytest.raises(TransferError, match=r"can't be moved: every transfer keeps a file of its own under that name"):
        await place.plan(name)
