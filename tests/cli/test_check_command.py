"""`dflash-tui check`: a sound set-up passes and stays as it was; how the answer reads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.cli.checked import Found, check, mounted
from tests.cli.world import Desk
from tests.workstation import tree


def test_a_sound_set_up_passes_and_leaves_nothing_but_the_harness_file(mine: Desk) -> None:
    folders = (mine.container, mine.lab.root, mine.home, mine.pve.folder)
    before = [_kept(folder) for folder in folders]
    listed = [sorted(str(path) for path in folder.rglob("*")) for folder in folders]
    found = check(mine)
    assert found.code == 0, found.failures
    assert found.data["failed"] == 0
    assert found.places("fail") == found.places("not tried") == []
    groups = [item["group"] for item in found.data["items"]]
    assert list(dict.fromkeys(groups)) == ["config", "workstation", "hosts", "training", "evaluation", "baselines"]
    names = {(item["group"], item["name"]) for item in found.data["items"]}
    host = ("python", "torch", "capture", "root", "links", "space", "filesystem", "detached work")
    work = ("drafter", "target", "prompts", "hidden states", "memory", "load")
    assert {
        *(("workstation", name) for name in ("state", "terminal", "known_hosts", "ssh agent")),
        *(("hosts", name) for name in ("pve1", "pve1 clock", "ct200", "ct200 clock", "ct129", "ct129 clock")),
        *(("training", name) for name in ("log", "checkpoints", "arguments", "gpus")),
        *(("evaluation", name) for name in (*host, *work)),
        ("baselines", "previous"),
    } <= names
    for folder, files, paths in zip(folders, before, listed, strict=True):
        assert _kept(folder) == files
        new = set(map(str, folder.rglob("*"))) - set(paths)
        assert all(Path(path).name == ".dflash" or Path(path).name.startswith("harness-") for path in new)
    assert "ct129" in found.err
    assert found.data["seconds"] < 60


def _kept(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything but the harness and the server's own log."""
    return {name: file for name, file in tree(folder).items() if "/.dflash/harness-" not in name and name != "sshd.log"}


def test_the_text_says_the_same_with_a_mark_for_each_state(world: Desk) -> None:
    config = world.other_config("text.toml", training={"log": "/data/slammed5/train.lgo"})
    ran = world.run("--config", config, "check")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0] == "config"
    (wrong,) = [line for line in lines if line.startswith("  ✖")]
    assert wrong.startswith("  ✖ log: ct200:/data/slammed5/train.lgo does not exist; expected the trainer's log")
    assert any(line.startswith("  ✓ pve1: ") for line in lines)
    assert lines[-1].startswith("1 thing failed, ")


def test_a_config_that_only_watches_is_checked_without_evaluation(world: Desk) -> None:
    found = check(world, world.other_config("watch.toml", evaluation={}, drafter={}, baseline={}, hosts__ct129={}))
    assert found.code == 0
    assert {item["group"] for item in found.data["items"]} == {"config", "workstation", "hosts", "training"}


def test_a_state_folder_that_can_not_be_written(world: Desk, tmp_path: Path) -> None:
    with mounted(tmp_path / "state", "size=1m") as folder:
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        ran = world.run("check", "--json", state=folder)
    found = Found(ran.code, json.loads(ran.out), ran.err)
    sentence = found.only("workstation", "state")
    assert f"{folder} can't be written (Read-only file system)" in sentence
    assert "--state" in sentence
