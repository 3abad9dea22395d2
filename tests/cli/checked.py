"""What `dflash-tui check` answers, and what a test spoils for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.world import Desk
from tests.sshd import need

Place = tuple[str, str]


@dataclass(frozen=True)
class Found:
    """What a check answered."""

    code: int
    data: dict[str, Any]
    err: str

    def places(self, state: str) -> list[Place]:
        """Group and name of the items in a state."""
        return [(item["group"], item["name"]) for item in self.data["items"] if item["state"] == state]

    def sentence(self, group: str, name: str) -> str:
        """What was said of one item."""
        (found,) = [i["sentence"] for i in self.data["items"] if (i["group"], i["name"]) == (group, name)]
        return str(found)

    def only(self, group: str, name: str) -> str:
        """The sentence of the only thing that failed."""
        assert self.code == 1, self
        assert self.places("fail") == [(group, name)], self.failures
        assert self.data["failed"] == 1
        return self.sentence(group, name)

    @property
    def failures(self) -> list[dict[str, str]]:
        return [item for item in self.data["items"] if item["state"] == "fail"]


def check(desk: Desk, config: Path | None = None) -> Found:
    """`check --json`, with a config of another name where one is given."""
    options = ("--config", config) if config is not None else ()
    ran = desk.run(*options, "check", "--json")
    assert "Traceback" not in ran.err, ran
    return Found(ran.code, json.loads(ran.out), ran.err)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small filesystem of its own at a folder."""
    need(os.geteuid() == 0 and shutil.which("mount") is not None, "mount, which needs root,")
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def stand_in(desk: Desk, name: str, text: str) -> str:
    """A program on the evaluation host."""
    path = desk.root / "spoilt" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return os.fspath(path)
