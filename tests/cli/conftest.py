"""One workstation with its two hosts for all tests of this folder, and results that many of them look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Desk, desk


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk(tmp_path_factory.mktemp("desk")) as made:
        yield made


@pytest.fixture(autouse=True)
def kept_tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test puts into the container's /data goes with it: others look around there."""
    if "world" not in request.fixturenames:
        yield
        return
    folder: Path = request.getfixturevalue("world").container / "data"
    before = set(folder.iterdir())
    yield
    for left in set(folder.iterdir()) - before:
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()


@pytest.fixture(scope="session")
def quick(world: Desk) -> Any:
    """`eval --json` of the newest checkpoint."""
    return world.json("eval")


@pytest.fixture(scope="session")
def full(world: Desk, quick: Any) -> Any:
    """`eval --preset full --json` of the same."""
    return world.json("eval", "--preset", "full")


@pytest.fixture(scope="session")
def wide(world: Desk, quick: Any) -> Any:
    """`eval --block-size 16 --json`: the block size of the baseline `previous`."""
    return world.json("eval", "--block-size", "16")


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """A state folder of one test: none of the others' runs and pins are in it."""
    return tmp_path / "state"


@pytest.fixture
def mine(world: Desk, tmp_path: Path) -> Desk:
    """The same hosts from a HOME that one test may spoil."""
    home = tmp_path / "home"
    shutil.copytree(world.home, home)
    return replace(world, home=home)


@pytest.fixture
def spoiled(world: Desk) -> Iterator[Path]:
    """A folder in the container that one test may fill; gone afterwards. Its name there is /data/spoiled."""
    folder = world.container / "data" / "spoiled"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)
