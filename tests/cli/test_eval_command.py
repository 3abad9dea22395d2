"""`eval`: fetch, evaluate, compare, from one command."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Desk
from tests.test_readme import documented
from tests.workstation import FILES_OF_A_RUN


def caveats(result: Any) -> dict[tuple[str, str], Any]:
    return {(finding["code"], finding["severity"]): finding["values"] for finding in result["caveats"]}


def test_quick_evaluates_three_prompts_with_fifteen_blocks_each(quick: Any) -> None:
    assert set(quick) == documented()["eval"]
    assert quick["existing"] is False
    result = quick["result"]
    assert (result["training"], result["step"], result["preset"], result["anchors"]) == (
        "slammed5", 4000, "quick", "spaced",
    )  # fmt: skip
    assert (result["blocks"], result["prompts"], result["prompts_asked"]) == (45, 3, 3)
    assert {name: prompt["blocks"] for name, prompt in result["per_prompt"].items()} == {"p0": 15, "p1": 15, "p2": 15}
    assert set(result["streak"]) == {"top1", "top4", "top8"}
    assert result["tau"] == pytest.approx(result["streak"]["top1"] + 1)
    assert result["checkpoint"] == "ct200:/data/slammed5/checkpoints/step_4000"
    assert len(result["weights_id"]) == 64


def test_full_evaluates_every_prompt_that_has_hidden_states(full: Any) -> None:
    result = full["result"]
    assert (result["preset"], result["blocks"], result["prompts"], result["prompts_asked"]) == ("full", 90, 3, 4)
    assert caveats(result)["PARTIAL_PROMPT_COVERAGE", "warn"] == ["3/4"]


def test_caveats_are_found_from_evidence(full: Any) -> None:
    found = caveats(full["result"])
    assert found["STEP_BEHIND_LIVE", "note"] == [4000, 5329, 1329]
    assert found["BLOCK_SIZE_MISMATCH", "warn"] == [8, 32]
    assert "verifier_norm.weight" in found["SKIPPED_WEIGHTS", "note"]
    assert all(finding["evidence"] for finding in full["result"]["caveats"])


def test_a_configured_baseline_stands_beside_the_result(quick: Any) -> None:
    comparison = quick["comparison"]
    assert comparison["previous"] == "previous"
    assert comparison["verdict"] == "not comparable"
    assert comparison["delta"] == {"top1": None, "top4": None, "top8": None}
    assert caveats(comparison)["BLOCK_SIZE_MISMATCH", "block"] == [8, 16]


def test_the_same_request_shows_the_existing_result(world: Desk, quick: Any) -> None:
    before = world.run_dirs()
    ran = world.run("eval", "--json")
    assert ran.data["existing"] is True
    assert ran.data["result"]["run_id"] == quick["result"]["run_id"]
    assert f"already evaluated: {quick['result']['run_id']}" in ran.err
    assert "already there: " in ran.err
    assert "moving" not in ran.err
    assert world.run_dirs() == before


def test_again_evaluates_once_more_in_a_run_directory_of_its_own(world: Desk, wide: Any) -> None:
    before = world.run_dirs()
    answer = world.json("eval", "--again", "--step", "4000", "--block-size", "16")
    assert answer["existing"] is False
    assert world.run_dirs() - before == {answer["result"]["run_id"]}
    assert answer["result"]["per_prompt"] == wide["result"]["per_prompt"]


def test_block_size_makes_a_result_comparable_with_the_baseline(world: Desk, wide: Any) -> None:
    assert wide["result"]["block_size"] == 16
    ran = world.run("eval", "--block-size", "16", "--against", "previous", "--json")
    assert ran.code == 0
    comparison = ran.data["comparison"]
    assert comparison["verdict"] == "untestable"
    assert all(isinstance(delta, float) for delta in comparison["delta"].values())


def test_a_comparison_that_was_asked_for_and_may_not_be_made_is_exit_3(world: Desk, quick: Any) -> None:
    ran = world.run("eval", "--against", "previous", "--json")
    assert ran.code == 3
    assert ran.data["comparison"]["verdict"] == "not comparable"
    assert ran.data["result"]["run_id"] == quick["result"]["run_id"]


def test_a_baseline_that_does_not_exist_costs_no_evaluation(world: Desk, apart: Path) -> None:
    before = world.run_dirs()
    assert "'nope' is no run, pin or file" in world.run("eval", "--against", "nope", "--json", state=apart).failed(1)
    assert world.run_dirs() == before


def test_the_run_directory_holds_everything_and_so_does_the_copy_at_home(world: Desk, full: Any) -> None:
    run_id = full["result"]["run_id"]
    run_dir = Path(full["result"]["run_dir"])
    assert run_dir == world.evaluations / "runs" / run_id
    home = world.state / "runs" / run_id
    for name in FILES_OF_A_RUN:
        assert (home / name).read_bytes() == (run_dir / name).read_bytes(), name
    assert world.manifest(run_id).command[-3:] == ("--preset", "full", "--json")


def test_for_people_it_prints_the_result_and_narrates_on_stderr(world: Desk, quick: Any) -> None:
    ran = world.run("eval")
    assert ran.code == 0
    assert ran.out.startswith(f"{quick['result']['run_id']}: 45 blocks, 3 of 3 prompts")
    assert "vanilla top-1" in ran.out
    assert "against previous: not comparable" in ran.out
    assert "already" not in ran.out
    assert "block size 8, trained at 32 (" in ran.err  # the training says 32, the drafter.json that is used 8
    assert "drafter.json: block_size says 8); 1 thread, nice 10, float32" in ran.err


def test_the_harness_is_sent_once_under_the_hash_of_its_bytes(world: Desk, full: Any) -> None:
    sent = {path.name: path for path in (world.evaluations / ".dflash").iterdir()}
    for name, path in sent.items():
        assert name == f"harness-{hashlib.sha256(path.read_bytes()).hexdigest()}.pyz"
    used = sent[f"harness-{world.manifest(full['result']['run_id']).harness}.pyz"]
    before = used.stat()
    world.json("eval", "--preset", "full")
    assert (used.stat().st_ino, used.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
