"""A plan is of the sources that were read, or there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_tui.checkpoints.segments import Literal, Output, Range
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer.errors import SourceChanged
from dflash_tui.transfer.plan import make_plan
from dflash_tui.transfer.record import Identity

OUTPUTS: dict[str, Output | str] = {
    "whole": "checkpoint.pt",
    "composed": Output("checkpoint.pt", (Literal(b"head"), Range("checkpoint.pt", 10, 50))),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("change", ["bytes", "size", "replaced", "time"])
async def test_a_source_that_is_not_what_was_read_is_not_planned(tmp_path: Path, output: str, change: str) -> None:
    host, path = LocalHost("local"), tmp_path / "checkpoint.pt"
    path.write_bytes(bytes(100))
    os.utime(path, (1, 1))
    read = {"checkpoint.pt": Identity.of(await host.stat(str(path)))}
    outputs, into = [OUTPUTS[output]], str(tmp_path / "into")
    plan = await make_plan(host, str(tmp_path), outputs, host, into, read=read)
    assert plan.files[0].sources == read
    if change == "replaced":
        other = tmp_path / "other"
        other.write_bytes(bytes(100))
        os.utime(other, (1, 1))
        other.replace(path)
    elif change == "time":
        os.utime(path, (2, 2))
    else:
        path.write_bytes(b"\1" * (100 if change == "bytes" else 120))
    with pytest.raises(SourceChanged, match=r"checkpoint\.pt was written again or replaced .*; plan again"):
        await make_plan(host, str(tmp_path), outputs, host, into, read=read)
    assert not Path(into).exists()
