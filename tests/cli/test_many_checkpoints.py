"""A folder with hundreds of checkpoints, as commands tell of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.cli.world import Desk

COUNT = 420


def many(world: Desk, name: str) -> Path:
    """A config whose training has saved steps 0 … COUNT - 1."""
    first = world.save(0, name)
    os.utime(first, (time.time() - 3600,) * 2)
    for step in range(1, COUNT):
        folder = first.parent.parent / f"step_{step}"
        folder.mkdir()
        os.link(first, folder / "checkpoint.pt")
    changed = {"name": name, "checkpoints": f"/data/{name}/checkpoints"}
    return world.other_config(f"{name}.toml", training=changed, baseline={})


def test_the_newest_and_what_is_asked_for_are_found_among_many(world: Desk) -> None:
    config = many(world, "many")
    assert world.json("--config", config, "status")["newest_saved"]["step"] == COUNT - 1
    ran = world.run("--config", config, "checkpoints", "--json")
    found = ran.data["checkpoints"]
    assert [item["step"] for item in found] == list(range(COUNT))
    assert [item["completeness"] for item in found] == ["unknown"] * 20 + ["complete"] * 400
    assert all(item["weights_size"] == found[-1]["weights_size"] for item in found[20:])
    assert found[0]["weights_size"] is None
    assert found[0]["size"] == found[-1]["size"]
    assert "420 checkpoints are there; 400 of them, the newest, were looked into" in ran.err
    for asked in (("--step", "3"), ("/data/many/checkpoints/step_3/checkpoint.pt",)):
        assert world.json("--config", config, "fetch", *asked, "--dry-run")["step"] == 3
