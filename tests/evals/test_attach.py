"""Following a run: what counts as a sign of life."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dflash_tui.evals.attach import Attachment, RunUpdate
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.codec import dumps
from dflash_tui.records.process import ExitRecord
from tests.launchers.boxes import running_box


@pytest.mark.parametrize("beats", [True, False])
async def test_a_silent_run_is_asked_after_unless_its_heart_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beats: bool
) -> None:
    monkeypatch.setattr("dflash_tui.evals.attach.POLL_SECONDS", 0.01)
    monkeypatch.setattr("dflash_tui.evals.attach.ASK_SECONDS", 1.0)
    run_dir, python = tmp_path / "run", tmp_path / "python"
    run_dir.mkdir()
    (run_dir / "progress.jsonl").touch()
    python.write_text(f"#!/bin/sh\necho running\ntouch {tmp_path}/asked\n")
    python.chmod(0o755)
    began, looks = time.monotonic(), 0

    def emit(update: RunUpdate) -> None:
        nonlocal looks
        looks += 1
        if beats:
            os.utime(run_dir / "progress.jsonl", (looks, looks))
        if time.monotonic() - began > 2.5 and not (run_dir / "exit.json").exists():
            (run_dir / "part").write_text(dumps(ExitRecord("finished", 0, "2026-05-21T09:36:25Z")))
            (run_dir / "part").rename(run_dir / "exit.json")

    attachment = Attachment(LocalHost("lab"), str(python), "harness.pyz", str(run_dir), tmp_path / "home")
    assert (await attachment.follow(emit)).state == "finished"
    assert (tmp_path / "asked").exists() != beats


async def test_following_in_a_container_starts_its_launcher_once_not_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dflash_tui.evals.attach.POLL_SECONDS", 0.01)
    (tmp_path / "box").mkdir()
    with running_box(tmp_path / "box", "docker") as box:
        run_dir, looks = box.root / "data" / "run", 0
        run_dir.mkdir()
        (run_dir / "progress.jsonl").touch()

        def emit(update: RunUpdate) -> None:
            nonlocal looks
            looks += 1
            with (run_dir / "log.txt").open("a") as log:
                log.write(f"line {looks}\n")
            if looks == 30:
                (run_dir / "part").write_text(dumps(ExitRecord("finished", 0, "2026-05-21T09:36:25Z")))
                (run_dir / "part").rename(run_dir / "exit.json")

        host = ContainerHost(LocalHost("pve"), box.prefix(), "ct")
        attachment = Attachment(host, "python3", "harness.pyz", "/data/run", tmp_path / "home")
        assert (await attachment.follow(emit)).state == "finished"
        assert looks >= 30
        assert (tmp_path / "home" / "log.txt").read_text().splitlines()[:30] == [f"line {n}" for n in range(1, 31)]
        assert len(box.calls) <= 2, "one that stands open, and its end"
