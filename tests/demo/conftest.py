from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dflash_tui.demo.world import DemoWorld
from tests.demo.worlds import stand_in


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DemoWorld]:
    """A world without training, its folder below this test's own."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    async with DemoWorld(train=False, data=stand_in(tmp_path / "data")) as world:
        yield world
