"""`runs`, `show`, `logs`, `import`, `pin`, `compare`, `report`, `keys`, `--version`: what this workstation keeps."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_tui import __version__
from dflash_tui.console.acts import kept
from dflash_tui.results.errors import UnknownReference
from dflash_tui.results.store import Store
from tests.cli.world import Desk
from tests.runs import TEN, drafted, manifest, write_run
from tests.test_readme import documented
from tests.workstation import STORY

PREVIOUS = STORY / "eval_results.json"


def test_runs_lists_runs_oldest_first_and_pins(world: Desk, quick: Any, full: Any) -> None:
    answer = world.json("runs")
    assert set(answer) == documented()["runs"]
    ids = [run["run_id"] for run in answer["runs"]]
    assert ids.index(quick["result"]["run_id"]) < ids.index(full["result"]["run_id"])
    line = answer["runs"][ids.index(full["result"]["run_id"])]
    assert (line["state"], line["preset"], line["step"], line["blocks"]) == ("finished", "full", 4000, 90)
    assert line["streak"] == full["result"]["streak"]
    assert "previous" in [pin["name"] for pin in answer["pins"]]


def test_runs_of_an_empty_workstation_say_how_to_make_one(world: Desk, apart: Path) -> None:
    answer = world.json("runs", state=apart)
    assert (answer["runs"], answer["pins"]) == ([], [])
    assert "dflash-tui eval makes one" in world.run("runs", state=apart).out


def test_show_prints_one_result_by_its_id_or_the_beginning_of_it(world: Desk, full: Any) -> None:
    run_id = full["result"]["run_id"]
    answer = world.json("show", run_id)
    assert set(answer) == documented()["show"]
    assert answer["path"] == str(world.state / "runs" / run_id)
    own = {**full["result"], "caveats": None}
    assert {**answer["result"], "caveats": None} == own
    assert world.json("show", run_id[: run_id.index("-b8-")])["result"]["run_id"] == run_id
    assert world.run("show", run_id).out.startswith(f"{run_id}: 90 blocks, 3 of 4 prompts")


def test_show_reads_a_result_file_that_was_never_imported(world: Desk, apart: Path) -> None:
    answer = world.json("show", PREVIOUS, state=apart)
    assert answer["path"] == str(PREVIOUS)
    assert answer["result"]["run_id"] is None
    assert world.json("runs", state=apart)["pins"] == []


def test_logs_of_a_run_are_those_that_came_home(world: Desk, full: Any) -> None:
    run_id = full["result"]["run_id"]
    answer = world.json("logs", run_id, "-n", "1000")
    assert set(answer) == documented()["logs"]
    assert answer["lines"] == (world.evaluations / "runs" / run_id / "log.txt").read_text().splitlines()
    assert world.run("logs", run_id[: run_id.index("-b8-")], "-n", "1").out == answer["lines"][-1] + "\n"


def test_import_pins_a_file_under_its_own_or_a_given_name(world: Desk, apart: Path) -> None:
    answer = world.json("import", PREVIOUS, "--as", "before", state=apart)
    assert set(answer) == documented()["import"]
    assert answer["name"] == "before"
    assert answer["path"] == str(apart / "pins" / answer["sha256"])
    assert (Path(answer["path"]) / "imported").read_bytes() == PREVIOUS.read_bytes()
    assert world.json("import", PREVIOUS, state=apart)["name"] == "eval_results"
    assert {pin["name"] for pin in world.json("runs", state=apart)["pins"]} == {"before", "eval_results"}


def test_import_brings_a_file_from_a_host_and_pins_it(world: Desk, apart: Path) -> None:
    there = world.lab.root / "eval_results.json"
    answer = world.json("import", f"ct129:{there}", "--as", "before", state=apart)
    assert answer["name"] == "before"
    assert (Path(answer["path"]) / "imported").read_bytes() == there.read_bytes()
    assert world.json("import", f"ct129:{there}", state=apart)["name"] == "eval_results"
    assert "before: " in world.run("show", "before", state=apart).out


def test_import_says_of_a_host_or_file_that_is_none_what_is_wrong(world: Desk, apart: Path) -> None:
    missing = world.run("import", "ct129:/nowhere/results.json", state=apart).failed(1)
    assert "ct129: /nowhere/results.json does not exist" in missing
    assert "no host 'ct12' in the config; did you mean 'ct129'?" in world.run(
        "import", "ct12:/nowhere/results.json", state=apart
    ).failed(2)
    folder = world.run("import", f"ct129:{world.lab.root}", state=apart).failed(1)
    assert "found a folder, expected a result file" in folder
    assert "nowhere.json" in world.run("import", "nowhere.json", state=apart).failed(1)
    assert not (apart / "pins" / "pins.json").exists()


def test_a_pin_is_forgotten_by_its_name_and_what_it_kept_stays(world: Desk, apart: Path) -> None:
    kept = world.json("import", PREVIOUS, "--as", "before", state=apart)
    answer = world.json("pin", "--remove", "before", state=apart)
    assert set(answer) == documented()["pin"]
    assert answer == {**kept, "result": None}
    assert Path(answer["path"]).is_dir()
    assert world.json("runs", state=apart)["pins"] == []
    assert "no pin is called 'before'" in world.run("pin", "--remove", "before", state=apart).failed(1)


def test_logs_of_a_baseline_drafter_are_those_of_its_newest_run(tmp_path: Path) -> None:
    names = [f"run{number:02}" for number in range(15)]
    for name in names:
        write_run(tmp_path / "runs" / name, replace(manifest(name), baseline="z-lab"), drafted(TEN[:3]))
        (tmp_path / "runs" / name / "log.txt").write_text(f"this is {name}\n")
    store = Store(tmp_path)
    assert kept.logs(store, Namespace(result="z-lab", lines=5)).lines == ("this is run14",)
    with pytest.raises(UnknownReference, match=r"no run 'zlab'; runs: run14, .* and 3 more"):
        kept.logs(store, Namespace(result="zlab", lines=5))
    store.pins.pin("mine", tmp_path / "runs" / "run00")
    with pytest.raises(UnknownReference, match="'mine' is a pin, which keeps no log"):
        kept.logs(store, Namespace(result="mine", lines=5))


def test_without_state_and_config_the_user_s_own_folders_are_used(world: Desk) -> None:
    argv = [sys.executable, "-m", "dflash_tui", "import", str(PREVIOUS), "--as", "mine", "--json"]
    done = subprocess.run(argv, env=world.environment(), capture_output=True, text=True, check=True)
    kept = Path(json.loads(done.stdout)["path"])
    assert kept.parent == world.home / ".local" / "state" / "dflash-tui" / "pins"
    shutil.rmtree(world.home / ".local")


def test_a_pinned_run_is_a_baseline_that_nothing_changes_any_more(world: Desk, full: Any) -> None:
    run_id = full["result"]["run_id"]
    answer = world.json("pin", run_id, "--as", "mine")
    assert set(answer) == documented()["pin"]
    assert answer["result"]["streak"] == full["result"]["streak"]
    kept = Path(answer["path"])
    assert (kept / "blocks.jsonl").read_bytes() == (world.state / "runs" / run_id / "blocks.jsonl").read_bytes()
    assert not any(path.stat().st_mode & 0o222 for path in kept.iterdir() if path.is_file())


def test_a_quick_run_stands_beside_the_quick_part_of_a_full_one(world: Desk, quick: Any, full: Any) -> None:
    ran = world.run("compare", quick["result"]["run_id"], full["result"]["run_id"], "--json")
    assert ran.code == 0
    answer = ran.data
    assert set(answer) == documented()["compare"]
    assert answer["delta"] == {"top1": 0.0, "top4": 0.0, "top8": 0.0}
    assert answer["previous"]["name"].endswith("(quick part)")
    assert (answer["pairing"], answer["current"]["blocks"], answer["previous"]["blocks"]) == ("anchors", 45, 45)


def test_incomparable_block_sizes_withhold_the_difference_and_exit_3(world: Desk, quick: Any, wide: Any) -> None:
    ran = world.run("compare", wide["result"]["run_id"], quick["result"]["run_id"], "--json")
    assert ran.code == 3
    assert ran.data["verdict"] == "not comparable"
    assert ran.data["delta"] == {"top1": None, "top4": None, "top8": None}
    assert ran.data["current"]["streak"] == wide["result"]["streak"]
    blocking = [item["code"] for item in ran.data["caveats"] if item["severity"] == "block"]
    assert blocking == ["BLOCK_SIZE_MISMATCH"]
    text = world.run("compare", wide["result"]["run_id"], quick["result"]["run_id"])
    assert text.code == 3
    assert "n/c" in text.out


def test_the_report_of_an_own_run_says_where_it_lies_and_where_its_training_is_now(world: Desk, full: Any) -> None:
    folder = world.container / "data" / "later"
    folder.mkdir()
    line = "[2026-05-21 09:36:42] step=5339/20000 loss=2.0051 lr=2.90e-04 block_size=32 tok/s=19.5K\n"
    (folder / "train.log").write_text((STORY / "train.log").read_text() + line)
    config = world.other_config("later.toml", training={"name": "slammed5", "log": "/data/later/train.log"})
    answer = world.json("--config", config, "report", full["result"]["run_id"], "--against", "previous")
    assert set(answer) == documented()["report"]
    text = answer["markdown"]
    assert f"- Run directory: `ct129:{full['result']['run_dir']}`" in text
    assert "hard link, no bytes copied" in text
    assert "- Then (plan time): step 5329 of 20000" in text
    assert "- Now: step 5339 of 20000" in text
    assert "Δ n/c" in text


def test_a_report_stands_beside_the_configured_baseline_as_an_evaluation_does(world: Desk, full: Any) -> None:
    text = world.json("report", full["result"]["run_id"])["markdown"]
    assert full["comparison"]["previous"] == "previous"
    assert text.splitlines()[0].endswith(" against previous")
    assert "- Previous: previous, " in text


def test_common_parts_that_are_none_are_not_comparable(world: Desk, full: Any) -> None:
    ran = world.run("compare", full["result"]["run_id"], "previous", "--common")
    assert "previous" in ran.failed(3)


def test_a_report_without_its_hosts_is_made_of_what_is_kept(world: Desk, full: Any) -> None:
    config = world.other_config("away.toml", hosts__pve1={"ssh": f"root@127.0.0.1:{_closed_port()}"})
    ran = world.run("--config", config, "report", full["result"]["run_id"], "--json")
    assert ran.code == 0
    assert "- Now: not read" in ran.data["markdown"]
    assert "the training can't be read now" in ran.err


def test_keys_lists_the_app_s_keys(world: Desk) -> None:
    answer = world.json("keys")
    assert all(set(key) == documented()["keys"] for key in answer)
    assert {"e", "E", "t", "c", "b", "z", "q"} <= {name for key in answer for name in key["keys"]}
    assert len(world.run("keys").out.splitlines()) == len(answer)


@pytest.mark.parametrize("form", ["--version", "--help"])
def test_version_and_help_go_to_stdout(world: Desk, form: str) -> None:
    ran = world.run(form)
    assert (ran.code, ran.err) == (0, "")
    assert f"dflash-tui {__version__}\n" == ran.out if form == "--version" else "usage: dflash-tui" in ran.out


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
