from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.evals.rundir import create_run, link_checkpoint, run_name
from dflash_tui.hosts.base import FileMissing
from dflash_tui.hosts.local import LocalHost

LAB = LocalHost("lab")


@given(st.text(), st.one_of(st.none(), st.integers(0, 10**9)))
def test_a_run_s_name_is_safe_as_a_folder_whatever_the_training_is_called(training: str, step: int | None) -> None:
    name = run_name(training, step, "quick", 16, datetime(2026, 5, 21, 9, 40, tzinfo=UTC))
    assert name
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert name[0] not in ".-"


async def test_a_run_directory_is_never_used_twice(tmp_path: Path) -> None:
    first = await create_run(LAB, str(tmp_path), "run")
    second = await create_run(LAB, str(tmp_path), "run")
    assert (first[0], second[0]) == ("run", "run-2")
    assert Path(second[1]).is_dir()


async def test_files_of_a_folder_are_hard_linked_with_their_sub_folders(tmp_path: Path) -> None:
    source, run = tmp_path / "source", tmp_path / "run"
    (source / "sub").mkdir(parents=True)
    run.mkdir()
    for name in ("config.json", "sub/model.safetensors"):
        (source / name).write_text(name)
    linked = await link_checkpoint(LAB, str(source), ("config.json", "sub/model.safetensors"), str(run))
    assert (linked.path, linked.method) == ("checkpoint", "hardlink")
    assert (run / "checkpoint" / "sub" / "model.safetensors").samefile(source / "sub" / "model.safetensors")


async def test_where_no_hard_link_is_possible_a_copy_is_made_and_said(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "checkpoint.pt").write_bytes(b"x" * 1000)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as run:
        assert os.stat(run).st_dev != source.stat().st_dev, "this test needs two filesystems"
        linked = await link_checkpoint(LAB, str(source), ("checkpoint.pt",), run)
        assert (linked.path, linked.method) == ("checkpoint/checkpoint.pt", "copy")
        assert (Path(run) / "checkpoint" / "checkpoint.pt").read_bytes() == b"x" * 1000


async def test_a_vanished_checkpoint_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match=r"gone\.pt"):
        await link_checkpoint(LAB, str(tmp_path), ("gone.pt",), str(tmp_path / "run"))
