from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dflash_tui.config import ConfigError
from dflash_tui.config.placing import place


def test_a_new_file_is_its_user_s_alone_and_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "config.toml"
    before = os.umask(0)
    try:
        assert place("text\n", path, replace=False) == ""
    finally:
        os.umask(before)
    assert path.read_text() == "text\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["config.toml"]


def test_a_file_that_came_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("another's\n")
    with pytest.raises(ConfigError, match=r"there is a config already; .*--output PATH, .*--replace"):
        place("text\n", path, replace=False)
    assert path.read_text() == "another's\n"
    assert os.listdir(tmp_path) == ["config.toml"]


def test_every_replaced_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert place("0\n", path, replace=True) == ""
    kept = [place(f"{number}\n", path, replace=True) for number in (1, 2)]
    assert path.read_text() == "2\n"
    assert [Path(name).read_text() for name in kept] == ["0\n", "1\n"]
    assert sorted(os.listdir(tmp_path)) == sorted(["config.toml", *(Path(name).name for name in kept)])


def test_a_link_that_leads_nowhere_is_there_too(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError, match="there is a config already"):
        place("text\n", path, replace=False)
    assert not (tmp_path / "gone").exists()
