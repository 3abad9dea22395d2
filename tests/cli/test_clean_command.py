"""`clean`: what goes and what stays, as people and programs read it."""

from __future__ import annotations

import os
from typing import Any

from tests.cli.world import Desk
from tests.test_readme import documented


def test_what_stays_is_said_with_the_reason_and_nothing_is_touched(world: Desk, quick: Any) -> None:
    other = world.evaluations / ".dflash" / f"harness-{'0' * 64}.pyz"
    other.write_bytes(b"another version's")
    before = {os.fspath(path) for path in world.evaluations.rglob("*")}
    answer = world.json("clean", "--dry-run", "--checkpoints")
    assert set(answer) == documented()["clean"]
    assert (answer["host"], answer["root"], answer["dry_run"]) == ("ct129", os.fspath(world.evaluations), True)
    assert answer["found"] == []
    assert os.fspath(other) in {kept["path"] for kept in answer["kept"]}
    said = world.run("clean").out
    assert f"{other}  stays: is " in said
    assert f"0 leftovers gone from ct129:{world.evaluations}" in said
    assert {os.fspath(path) for path in world.evaluations.rglob("*")} == before
    other.unlink()


def test_a_console_that_only_watches_has_nothing_to_clean(world: Desk) -> None:
    config = world.other_config("watching.toml", evaluation={}, drafter={}, baseline={})
    assert "without [evaluation] this console only watches" in world.run("--config", config, "clean").failed(1)
