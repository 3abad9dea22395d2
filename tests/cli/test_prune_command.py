"""`prune`: which fetched checkpoints go, on a real host; and `checkpoints` with what is known of each."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Desk
from tests.test_readme import documented
from tests.workstation import RAW

DAY = 86400
PIECE = ".checkpoint.pt.0123456789ab.part"


@dataclass(frozen=True)
class Shelf:
    """The checkpoints that were fetched of one training, in the evaluation host's root."""

    world: Desk
    name: str
    config: Path
    python: Path

    @property
    def folder(self) -> Path:
        return self.world.evaluations / "checkpoints" / self.name

    def fetched(self, name: str, days: float, data: bytes = b"w" * 5000) -> Path:
        """A folder as a transfer leaves it, of a checkpoint that was saved that many days ago."""
        path = self.folder / name / "checkpoint.pt"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        found = path.stat()
        here = {"size": found.st_size, "mtime": found.st_mtime, "inode": found.st_ino}
        source = {"size": 9000, "mtime": found.st_mtime - days * DAY, "inode": 1}
        at = f"/data/{self.name}/{name.removesuffix('-full')}/checkpoint.pt"
        entry = {"sha256": hashlib.sha256(data).hexdigest(), "here": here, "host": "ct200", "path": at}
        record = {"version": 1, "files": {"checkpoint.pt": entry | {"source": source}}}
        (path.parent / ".transfer.json").write_text(json.dumps(record))
        return path

    def prune(self, *options: str) -> Any:
        answer = self.world.json("--config", self.config, "prune", *options)
        assert set(answer) == documented()["prune"]
        assert (answer["host"], answer["root"]) == ("ct129", os.fspath(self.folder))
        return answer

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def goes(answer: Any) -> list[str]:
    return [Path(item["path"]).name for item in answer["found"]]


def stays(answer: Any) -> dict[str, str]:
    return {Path(item["path"]).name: item["reason"] for item in answer["kept"]}


@pytest.fixture
def shelf(world: Desk, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    """A training of the test's own; on its evaluation host it is an hour later than files' own times say."""
    yield from _shelf(world, request.node.name, tmp_path, later=3600)


def _shelf(world: Desk, test: str, tmp_path: Path, *, later: float, before: str = "") -> Iterator[Shelf]:
    name = f"shelf-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport sys, time\nnow = time.time\ntime.time = lambda: now() + {later}\n{before}"
        "sys.argv = sys.argv[1:]\nexec(compile(sys.stdin.read(), '-', 'exec'), {'__name__': '__main__'})\n"
    )
    python.chmod(0o755)
    config = world.other_config(
        f"{name}.toml", training={"name": name}, evaluation={"python": os.fspath(python)}, baseline={}
    )
    made = Shelf(world, name, config, python)
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)


def test_without_yes_it_says_what_would_go_and_removes_nothing(shelf: Shelf) -> None:
    for step, days in ((1000, 9), (2000, 8), (3000, 7), (4000, 6), (5000, 5)):
        shelf.fetched(f"step_{step}", days)
    before = {path: path.stat().st_mtime_ns for path in shelf.folder.rglob("*")}
    answer = shelf.prune()
    assert (goes(answer), answer["dry_run"], answer["bytes"]) == (["step_1000", "step_2000"], True, 10000)
    assert stays(answer) == {
        "step_3000": "is one of the 3 newest", "step_4000": "is one of the 3 newest", "step_5000": "is the newest",
    }  # fmt: skip
    assert {path: path.stat().st_mtime_ns for path in shelf.folder.rglob("*")} == before
    text = shelf.world.run("--config", shelf.config, "prune").out
    assert f"2 things would go from ct129:{shelf.folder}, 10.00 kB" in text
    assert f"nothing was removed; this removes them: {answer['repeat']}" in text
    assert answer["repeat"] == f"dflash-tui prune --config {shelf.config} --state {shelf.world.state} --yes"
    asked = shelf.prune("--keep", "1", "--older-than", "6.5")
    assert asked["repeat"] == answer["repeat"].replace("--yes", "--keep 1 --older-than 6.5 --yes")


def test_with_yes_the_same_goes_as_a_whole(shelf: Shelf) -> None:
    for step in (1000, 2000, 3000):
        shelf.fetched(f"step_{step}", 10 - step / 1000)
    assert goes(shelf.prune("--keep", "1", "--yes")) == ["step_1000", "step_2000"]
    assert shelf.names() == ["step_3000"]
    assert goes(shelf.prune("--keep", "1", "--yes")) == []


def test_age_counts_from_when_it_was_saved_and_the_newest_stays_however_old(shelf: Shelf) -> None:
    shelf.fetched("step_9000", 40)  # of a run that was given up
    shelf.fetched("step_100", 35)
    shelf.fetched("step_200", 30)
    shelf.fetched("step_150", 33)
    answer = shelf.prune("--older-than", "31")
    assert goes(answer) == ["step_100", "step_150"]
    assert stays(answer) == {"step_9000": "is the newest", "step_200": "was saved last"}
    assert goes(shelf.prune("--older-than", "34")) == ["step_100"]
    assert goes(shelf.prune("--older-than", "31", "--keep", "2")) == ["step_100"]
    assert goes(shelf.prune("--older-than", "99")) == []


def test_what_was_fetched_last_is_not_what_was_saved_last(shelf: Shelf) -> None:
    """Slim copies have a file that lies nowhere at the source; its time is that of the fetch."""
    now = time.time()
    for step, days in ((1000, 40), (2000, 30), (3000, 20), (4000, 10)):
        os.utime(shelf.world.save(step, shelf.name), (now - days * DAY,) * 2)
    at = {"name": shelf.name, "checkpoints": f"/data/{shelf.name}/checkpoints"}
    config = shelf.world.other_config(f"{shelf.name}-fetch.toml", training=at, baseline={})
    for step in (4000, 3000, 2000, 1000):
        shelf.world.json("--config", config, "fetch", "--step", str(step))
    names = {path.name for path in (shelf.folder / "step_1000").iterdir()}
    assert "checkpoint.pt.slim.json" in names
    assert goes(shelf.prune("--older-than", "25")) == ["step_1000", "step_2000"]
    assert goes(shelf.prune("--older-than", "35")) == ["step_1000"]
    assert goes(shelf.prune("--keep", "1", "--yes")) == ["step_1000", "step_2000", "step_3000"]
    assert shelf.names() == ["step_4000"]


def test_without_steps_the_sources_times_decide_and_what_has_none_stays(shelf: Shelf) -> None:
    for name, days in (("last-2", 1), ("last", 5), ("epoch_3", 3), ("other", 2)):
        shelf.fetched(name, days)
    record = shelf.folder / "other" / ".transfer.json"
    said = json.loads(record.read_text())
    said["files"]["checkpoint.pt"]["source"] = None
    record.write_text(json.dumps(said))
    answer = shelf.prune("--keep", "1")
    assert goes(answer) == ["last", "epoch_3"]
    assert stays(answer) == {"last-2": "is the newest", "other": "nothing tells when it was saved"}


def test_another_training_is_left_alone(shelf: Shelf) -> None:
    shelf.fetched("step_1000", 9)
    shelf.fetched("step_2000", 8)
    other = replace(shelf, name=f"{shelf.name}-other")
    try:
        other.fetched("step_1", 90)
        other.fetched("step_2", 80)
        assert goes(shelf.prune("--keep", "1", "--yes")) == ["step_1000"]
        assert other.names() == ["step_1", "step_2"]
    finally:
        shutil.rmtree(other.folder)


def test_all_copies_of_a_step_are_one_checkpoint(shelf: Shelf) -> None:
    for name, days in (("step_1000", 4), ("step_2000", 3), ("step_3000", 2), ("step_3000-2", 1)):
        shelf.fetched(name, days)
        shelf.fetched("step_3000-full-2" if name.endswith("-2") else f"{name}-full", days - 0.1)
    assert goes(shelf.prune("--keep", "2")) == ["step_1000", "step_1000-full"]
    assert stays(shelf.prune("--keep", "2")) == {
        "step_2000": "is one of the 2 newest", "step_2000-full": "is one of the 2 newest",
        "step_3000": "is the newest", "step_3000-2": "is the newest",
        "step_3000-full": "is the newest", "step_3000-full-2": "is the newest",
    }  # fmt: skip


def test_what_a_run_has_linked_stays_until_the_run_is_gone(shelf: Shelf) -> None:
    path = shelf.fetched("step_1000", 9)
    shelf.fetched("step_2000", 8)
    run = shelf.world.evaluations / "runs" / f"{shelf.name}-run"
    (run / "checkpoint").mkdir(parents=True)
    os.link(path, run / "checkpoint" / "checkpoint.pt")
    try:
        answer = shelf.prune("--keep", "1", "--yes")
        assert goes(answer) == []
        assert stays(answer)["step_1000"] == f"{run.name} has checkpoint.pt by a hard link"
    finally:
        shutil.rmtree(run)
    assert goes(shelf.prune("--keep", "1", "--yes")) == ["step_1000"]


def test_another_name_elsewhere_keeps_bytes_and_frees_none(shelf: Shelf) -> None:
    path = shelf.fetched("step_1000", 9)
    shelf.fetched("step_2000", 8)
    os.link(path, shelf.folder.parent / f"{shelf.name}-mine")
    answer = shelf.prune("--keep", "1", "--yes")
    kept = shelf.folder.parent / f"{shelf.name}-mine"
    assert kept.read_bytes() == b"w" * 5000
    kept.unlink()
    assert (goes(answer), answer["bytes"]) == (["step_1000"], 0)
    assert "another name keeps its bytes" in answer["found"][0]["reason"]


def test_what_the_config_names_stays(shelf: Shelf) -> None:
    path = shelf.fetched("step_1000", 9)
    shelf.fetched("step_2000", 8)
    shelf.fetched("step_3000", 7)
    other = shelf.world.other_config(
        f"{shelf.name}-2.toml",
        training={"name": shelf.name},
        evaluation={"python": os.fspath(shelf.python)},
        baseline={"name": "zlab", "host": "ct129", "drafter": os.fspath(path), "file": ""},
        drafter={"config": os.fspath(shelf.folder / "step_2000" / "config.json")},
    )
    answer = shelf.world.json("--config", other, "prune", "--keep", "1", "--yes")
    assert goes(answer) == []
    assert stays(answer)["step_1000"] == "baseline zlab names it"
    assert stays(answer)["step_2000"] == "[drafter] names its config"


def test_what_a_pin_is_of_stays(shelf: Shelf, quick: Any, apart: Path) -> None:
    world = shelf.world
    path = shelf.fetched("step_4000", 9)
    shelf.fetched("step_5000", 8)
    record = json.loads((path.parent / ".transfer.json").read_text())
    record["files"]["checkpoint.pt"]["path"] = "/data/slammed5/checkpoints/step_4000/checkpoint.pt"
    (path.parent / ".transfer.json").write_text(json.dumps(record))
    shutil.copytree(world.state / "runs" / quick["result"]["run_id"], apart / "runs" / quick["result"]["run_id"])
    command = ("--config", shelf.config, "prune", "--keep", "1")
    assert goes(world.json(*command, state=apart)) == ["step_4000"]
    assert world.run("pin", quick["result"]["run_id"], "--as", "kept", state=apart).code == 0
    answer = world.json(*command, "--yes", state=apart)
    assert goes(answer) == []
    assert stays(answer)["step_4000"] == "pin kept is of it"
    # The fetched copy itself may be what was evaluated.
    record["files"]["checkpoint.pt"]["path"] = "/elsewhere/checkpoint.pt"
    (path.parent / ".transfer.json").write_text(json.dumps(record))
    assert goes(world.json(*command, state=apart)) == ["step_4000"]
    manifest = apart / "runs" / quick["result"]["run_id"] / "manifest.json"
    told = json.loads(manifest.read_text())
    told["checkpoint"] |= {"host": "ct129", "path": os.fspath(path)}
    manifest.write_text(json.dumps(told))
    assert world.run("pin", quick["result"]["run_id"], "--as", "copy", state=apart).code == 0
    assert stays(world.json(*command, state=apart))["step_4000"] == "pin copy is of it"


def test_what_a_transfer_writes_stays(shelf: Shelf) -> None:
    shelf.fetched("step_1000", 9)
    shelf.fetched("step_2000", 8)
    shelf.fetched("step_3000", 7)
    part = shelf.folder / "step_1000" / PIECE
    part.write_bytes(b"half")
    (shelf.folder / "step_2000" / ".transfer.claim").write_text("{}")
    os.utime(shelf.folder / "step_2000" / ".transfer.claim", (part.stat().st_mtime + 3600,) * 2)
    with subprocess.Popen(["flock", part, "sleep", "60"]) as writer:
        try:
            while subprocess.run(["flock", "-n", part, "true"], check=False).returncode == 0:
                pass
            answer = shelf.prune("--keep", "1", "--yes")
        finally:
            writer.kill()
    assert goes(answer) == []
    assert "a transfer to it is at work" in stays(answer)["step_1000"]
    assert "a transfer to it is at work" in stays(answer)["step_2000"]


def test_who_comes_for_it_at_the_last_moment_gets_it_back(
    world: Desk, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run = world.evaluations / "runs" / "comes-late"
    (run / "checkpoint").mkdir(parents=True)
    at = os.fspath(run / "checkpoint" / "checkpoint.pt")
    link = (
        "import os\nrename = os.rename\ndef late(old, new):\n    rename(old, new)\n"
        f"    if old.endswith('step_1000'): os.link(new + '/checkpoint.pt', {at!r})\n"
        "os.rename = late\n"
    )
    try:
        for shelf in _shelf(world, request.node.name, tmp_path, later=3600, before=link):
            path = shelf.fetched("step_1000", 9)
            shelf.fetched("step_2000", 8)
            answer = shelf.prune("--keep", "1", "--yes")
            assert goes(answer) == []
            assert stays(answer)["step_1000"] == "comes-late has checkpoint.pt by a hard link"
            assert path.read_bytes() == b"w" * 5000
            assert shelf.names() == ["step_1000", "step_2000"]
    finally:
        shutil.rmtree(run)


def test_who_comes_for_it_while_it_is_fetched_again_keeps_it(
    world: Desk, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run = world.evaluations / "runs" / "comes-late"
    (run / "checkpoint").mkdir(parents=True)
    at = os.fspath(run / "checkpoint" / "checkpoint.pt")
    again = (
        "import os\nrename = os.rename\ndef late(old, new):\n    rename(old, new)\n"
        f"    if old.endswith('step_1000'):\n        os.link(new + '/checkpoint.pt', {at!r})\n"
        "        os.mkdir(old)\n        open(old + '/checkpoint.pt', 'w').write('again')\n"
        "os.rename = late\n"
    )
    try:
        for shelf in _shelf(world, request.node.name, tmp_path, later=3600, before=again):
            path = shelf.fetched("step_1000", 9)
            shelf.fetched("step_2000", 8)
            answer = shelf.prune("--keep", "1", "--yes")
            assert goes(answer) == []
            assert stays(answer)["step_1000-2"] == (
                "comes-late has checkpoint.pt by a hard link; "
                "step_1000 was fetched again meanwhile, so its name is another now"
            )
            assert shelf.names() == ["step_1000", "step_1000-2", "step_2000"]
            assert path.read_text() == "again"
            assert (shelf.folder / "step_1000-2" / "checkpoint.pt").read_bytes() == b"w" * 5000
    finally:
        shutil.rmtree(run)


def test_what_cant_get_its_name_back_is_said_and_stays_until_nobody_uses_it(
    world: Desk, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run = world.evaluations / "runs" / "comes-late"
    (run / "checkpoint").mkdir(parents=True)
    at = os.fspath(run / "checkpoint" / "checkpoint.pt")
    refusing = (
        "import os\nrename = os.rename\ndef late(old, new):\n"
        "    if old.endswith('.pruned'): raise OSError(30, 'Read-only file system')\n    rename(old, new)\n"
        f"    if old.endswith('step_1000'): os.link(new + '/checkpoint.pt', {at!r})\n"
        "os.rename = late\n"
    )
    try:
        for shelf in _shelf(world, request.node.name, tmp_path, later=3600, before=refusing):
            shelf.fetched("step_1000", 9)
            shelf.fetched("step_2000", 8)
            answer = shelf.prune("--keep", "1", "--yes")
            (hidden,) = (name for name in shelf.names() if name.endswith(".pruned"))
            assert stays(answer)[hidden] == (
                "comes-late has checkpoint.pt by a hard link; it can't get its name back: Read-only file system"
            )
            assert stays(shelf.prune("--yes"))[hidden] == "comes-late has checkpoint.pt by a hard link"
            assert (shelf.folder / hidden / "checkpoint.pt").read_bytes() == b"w" * 5000
            shutil.rmtree(run)
            assert goes(shelf.prune("--yes")) == [hidden]
    finally:
        shutil.rmtree(run, ignore_errors=True)


def test_what_is_not_ours_or_was_changed_stays(shelf: Shelf) -> None:
    shelf.fetched("step_1000", 9)
    (shelf.folder / "step_1000" / "notes.txt").write_text("mine")
    shelf.fetched("step_2000", 8).write_bytes(b"mine")
    (shelf.folder / "step_2500").mkdir()
    (shelf.folder / "step_2500" / "checkpoint.pt").write_bytes(b"copied by hand")
    shelf.fetched("step_3000", 7)
    answer = shelf.prune("--keep", "1", "--yes")
    assert goes(answer) == []
    assert stays(answer)["step_1000"] == "holds notes.txt, which no transfer brought"
    assert "was changed or replaced since" in stays(answer)["step_2000"]
    assert "which no transfer brought" in stays(answer)["step_2500"]


def test_a_removal_that_did_not_end_is_ended(shelf: Shelf) -> None:
    shelf.fetched("step_3000", 7)
    half = shelf.folder / ".step_1000.0123abcd.pruned"
    half.mkdir()
    (half / "checkpoint.pt").write_bytes(b"w" * 700)
    answer = shelf.prune("--yes")
    assert [(item["kind"], item["bytes"]) for item in answer["found"]] == [("half-removed checkpoint", 700)]
    assert shelf.names() == ["step_3000"]


def test_a_part_that_nobody_writes_goes_after_a_day(
    world: Desk, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for later, going in ((3600, []), (2 * DAY, [PIECE])):
        for shelf in _shelf(world, request.node.name, tmp_path, later=later):
            shelf.fetched("step_3000", 7)
            part = shelf.folder / "step_4000" / PIECE
            part.parent.mkdir()
            part.write_bytes(b"h" * 300)
            assert goes(shelf.prune("--yes")) == going
            assert part.exists() == (not going)


def test_what_was_just_fetched_stays(world: Desk, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    for shelf in _shelf(world, request.node.name, tmp_path, later=0):
        shelf.fetched("step_1000", 9)
        shelf.fetched("step_2000", 8)
        answer = shelf.prune("--keep", "1", "--yes")
        assert goes(answer) == []
        assert "what is younger than 900 s may be in use" in stays(answer)["step_1000"]


def test_a_root_without_checkpoints_has_nothing_to_prune(shelf: Shelf) -> None:
    assert shelf.prune("--yes")["found"] == []
    assert not shelf.folder.exists()


def test_a_console_that_only_watches_has_nothing_to_prune(world: Desk) -> None:
    config = world.other_config("only.toml", evaluation={}, drafter={}, baseline={})
    assert "without [evaluation] this console only watches" in world.run("--config", config, "prune").failed(1)


def on_a_terminal(world: Desk, *argv: str | Path) -> str:
    """What a command shows on a terminal."""
    master, terminal = pty.openpty()
    command = subprocess.Popen(
        world.command(*argv), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdout=terminal, cwd=world.home,
        env=world.environment(),
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # the other side is closed
        while data := os.read(master, 4096):
            shown += data
    command.wait()
    os.close(master)
    return shown.decode()


@pytest.mark.parametrize("wrong", [("--keep", "0"), ("--keep", "x"), ("--older-than", "-1"), ("--older-than", "nan")])
def test_a_number_that_means_nothing_is_a_wrong_use(world: Desk, wrong: tuple[str, str]) -> None:
    assert world.run("prune", *wrong).code == 2


def test_checkpoints_tells_age_weights_and_hash(world: Desk) -> None:
    for step in (500, 1000):
        world.save(step, "known")
    config = world.other_config("known.toml", training={"checkpoints": "/data/known/checkpoints"})
    world.json("--config", config, "fetch", "--step", "500", "--full")
    first, second = world.json("--config", config, "checkpoints")["checkpoints"]
    assert first["sha256"] == hashlib.sha256(RAW.read_bytes()).hexdigest()
    assert second["sha256"] is None
    assert second["quick_id"]
    assert 0 < first["weights_size"] < first["size"] / 2
    assert 0 <= first["age"] < 600
    text = world.run("--config", config, "checkpoints").out
    assert f"sha256 {first['sha256'][:12]}" in text
    kind, _, digits = second["quick_id"].partition("-")
    assert f"{kind} {digits[:12]}  " in text
    assert "quick" not in text
    assert "state" not in text.splitlines()[1], "what a program reads has no heading"
    shown = on_a_terminal(world, "--config", config, "checkpoints")
    assert "step" in shown.splitlines()[1]
    assert "content" in shown.splitlines()[1]
    assert "weights " in text


@pytest.mark.parametrize("link", ["training", "checkpoints"])
def test_what_lies_elsewhere_behind_a_link_is_not_ours_to_remove(shelf: Shelf, tmp_path: Path, link: str) -> None:
    for step in (1000, 2000):
        shelf.fetched(f"step_{step}", 9)
    root = shelf.folder.parent.parent
    if link == "training":
        shelf.folder.rename(tmp_path / "elsewhere")
        shelf.folder.symlink_to(tmp_path / "elsewhere")
        config = shelf.config
    else:
        root = tmp_path / "root"
        root.mkdir()
        (root / "checkpoints").symlink_to(shelf.folder.parent)
        config = shelf.world.other_config(
            "linked.toml",
            training={"name": shelf.name},
            evaluation={"python": os.fspath(shelf.python), "root": os.fspath(root)},
            baseline={},
        )
    answer = shelf.world.json("--config", config, "prune", "--keep", "1", "--yes")
    assert answer["found"] == []
    (kept,) = answer["kept"]
    assert kept["path"] == os.fspath(root / "checkpoints" / shelf.name)
    assert kept["reason"].startswith("leads by a link to ")
    assert len(list(shelf.folder.glob("*/checkpoint.pt"))) == 2


@pytest.mark.parametrize(
    "entry",
    [["here"], {"here": {"size": 5000, "mtime": float("inf"), "inode": 0}}, {"here": {"mtime": float("nan")}}, 3],
    ids=["list", "infinite", "no number", "number"],
)
def test_a_damaged_record_holds_its_own_folder_alone(shelf: Shelf, entry: Any) -> None:
    for step, days in ((1000, 9), (2000, 8), (3000, 7)):
        shelf.fetched(f"step_{step}", days)
    record = shelf.folder / "step_1000" / ".transfer.json"
    record.write_text(json.dumps({"version": 1, "files": {"checkpoint.pt": entry}}))
    answer = shelf.prune("--keep", "1")
    assert goes(answer) == ["step_2000"]
    assert set(stays(answer)) == {"step_1000", "step_3000"}


def test_a_record_that_nests_without_end_holds_its_own_folder_alone(shelf: Shelf) -> None:
    shelf.fetched("step_1000", 9)
    (shelf.folder / "step_1000" / ".transfer.json").write_text("[" * 100_000)
    assert stays(shelf.prune("--keep", "1"))["step_1000"]
