"""`--like`: an evaluation that is measured as an earlier result was; and which hidden states it finds."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from dflash_tui.console import events as happened
from dflash_tui.console.acts import capture as capturing
from dflash_tui.console.acts.evaluate import evaluate, evaluate_like_baseline
from dflash_tui.console.acts.like import like_of
from dflash_tui.console.acts.shown import pin_shown
from dflash_tui.console.errors import ConsoleError
from dflash_tui.evals.errors import EvaluationRefused
from dflash_tui.records.facts import Fact
from dflash_tui.records.result import Evaluation, Score
from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.evaluation import quick_of
from dflash_tui.results.importers import import_file
from tests.console.world import STORY, Bench, bench, capturable


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench(tmp_path)
    made.console.config = replace(made.console.config, baselines=())
    made.save(4000)
    yield made
    await made.console.close()


def fact(evaluation: Evaluation, kind: str) -> Fact:
    return next(item for item in reversed(evaluation.facts) if item.kind == kind)


def plan(tiny: Bench) -> tuple[str, ...]:
    return next(event.lines for event in reversed(tiny.told) if isinstance(event, happened.PlanMade))


def several_folders(tiny: Bench, *folders: Path) -> None:
    evaluation = tiny.console.evaluation
    tiny.console.config = replace(
        tiny.console.config, evaluation=replace(evaluation, hidden_states=tuple(map(str, folders)))
    )


async def test_an_own_run_is_copied_whole(tiny: Bench) -> None:
    first = await evaluate(tiny.console, preset="quick", block_size=6)
    tiny.save(5000)
    like = await evaluate(tiny.console, preset="full", like=first.evaluation, again=True)
    mine = like.evaluation
    assert (mine.preset, mine.block_size, mine.prompts_asked) == ("quick", 6, ("p0", "p1", "p2"))
    assert [(block.prompt, block.anchor) for block in mine.blocks] == [
        (block.prompt, block.anchor) for block in first.evaluation.blocks
    ]
    recorded = fact(mine, "eval.like").value
    assert (recorded["name"], recorded["unrecorded"]) == (first.run_id, [])
    assert recorded["copied"]["hidden_states"] == str(tiny.lab.hidden_states)
    assert any(
        line.startswith(f"like {first.run_id}: its 3 prompts, 15 blocks each, block size 6") for line in plan(tiny)
    )


async def test_prompts_are_taken_by_name_wherever_they_stand_in_the_set(tiny: Bench) -> None:
    first = await evaluate(tiny.console)
    prompts = tiny.root / "lab" / "prompts.jsonl"
    prompts.write_text("\n".join(reversed(prompts.read_text().splitlines())) + "\n")
    like = await evaluate(tiny.console, like=first.evaluation, again=True)
    assert like.evaluation.prompts_asked == ("p0", "p1", "p2")
    assert like.evaluation.blocks == first.evaluation.blocks


async def test_the_quick_part_of_a_full_result_is_quick(tiny: Bench) -> None:
    full = await evaluate(tiny.console, preset="full")
    like = like_of(quick_of(full.evaluation), "lab")
    assert (like.preset, like.blocks_per_prompt, like.prompts) == ("quick", 15, ("p0", "p1", "p2"))


async def test_a_prompt_of_another_text_is_refused(tiny: Bench) -> None:
    first = await evaluate(tiny.console)
    prompts = tiny.root / "lab" / "prompts.jsonl"
    lines = [json.loads(line) for line in prompts.read_text().splitlines()]
    lines[1]["prompt"] = "Write something else.\n"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(EvaluationRefused, match=f"p1 has another text than in {first.run_id}"):
        await evaluate(tiny.console, like=first.evaluation)


async def test_a_prompt_that_is_gone_is_refused_by_its_name(tiny: Bench) -> None:
    first = await evaluate(tiny.console)
    prompts = tiny.root / "lab" / "prompts.jsonl"
    prompts.write_text("".join(line + "\n" for line in prompts.read_text().splitlines() if '"p1"' not in line))
    with pytest.raises(EvaluationRefused, match="no prompt p1 in it"):
        await evaluate(tiny.console, like=first.evaluation)


async def test_an_imported_result_gives_what_it_records_and_the_rest_is_said(tiny: Bench) -> None:
    previous = import_file(STORY / "eval_results.json", "previous")
    done = await evaluate(tiny.console, like=previous)
    assert (done.evaluation.preset, done.evaluation.block_size, done.evaluation.pooled.blocks) == ("quick", 16, 45)
    said = next(line for line in plan(tiny) if line.startswith("not recorded by previous"))
    for word in ("which prompts", "anchors", "hidden states"):
        assert word in said
    assert "blocks a prompt" not in said


async def test_blocks_that_no_preset_has_are_spaced_as_many_as_recorded(tiny: Bench) -> None:
    odd = Evaluation("odd", "import", "/odd.json", "s", Score(21, {}, 1.0), block_size=8, prompt_count=3)
    done = await evaluate(tiny.console, like=odd)
    assert done.evaluation.preset == "like"
    assert {score.blocks for score in done.evaluation.per_prompt.values()} == {7}


def test_a_result_that_records_nothing_is_refused() -> None:
    bare = Evaluation("bare", "import", "/bare.json", "s", Score(0, {}, 1.0))
    with pytest.raises(ConsoleError, match="bare records nothing of how it was measured"):
        like_of(bare, "lab")


async def test_another_block_size_than_that_of_the_result_is_refused(tiny: Bench) -> None:
    first = await evaluate(tiny.console, block_size=6)
    with pytest.raises(ConsoleError, match=r"found 7, but .* was evaluated at 6"):
        await evaluate(tiny.console, block_size=7, like=first.evaluation)


async def test_like_the_baseline_that_is_shown(tiny: Bench) -> None:
    with pytest.raises(ConsoleError, match="no baseline is shown"):
        await evaluate_like_baseline(tiny.console)
    first = await evaluate(tiny.console, preset="quick", block_size=6)
    await pin_shown(tiny.console, name="mine")
    await evaluate(tiny.console, preset="full")
    tiny.save(5000)
    done = await evaluate_like_baseline(tiny.console)
    assert (done.evaluation.block_size, done.evaluation.preset) == (6, "quick")
    assert done.evaluation.prompts_asked == first.evaluation.prompts_asked


async def test_the_plan_and_the_manifest_say_which_folder_was_chosen_and_why(tiny: Bench) -> None:
    small = tiny.root / "lab" / "small"
    small.mkdir()
    shutil.copy(tiny.lab.hidden_states / "p0.safetensors", small)
    several_folders(tiny, small, tiny.lab.hidden_states)
    done = await evaluate(tiny.console, preset="full")
    assert done.evaluation.prompts_present == ("p0", "p1", "p2")
    sentence = f"hidden states from {tiny.lab.hidden_states}: 3 of 4 prompts; {small} has 1"
    assert sentence in plan(tiny)
    chosen = fact(done.evaluation, "cache.chosen")
    assert chosen.value["folder"] == str(tiny.lab.hidden_states)
    assert chosen.value["usable"] == {str(small): 1, str(tiny.lab.hidden_states): 3}
    assert (chosen.source.path, chosen.source.where) == (tiny.console.config.path, "evaluation.hidden_states")


async def test_the_folder_of_the_result_to_be_like_is_used_though_it_is_configured_no_more(tiny: Bench) -> None:
    small = tiny.root / "lab" / "small"
    small.mkdir()
    shutil.copy(tiny.lab.hidden_states / "p0.safetensors", small)
    several_folders(tiny, small)
    first = await evaluate(tiny.console)
    assert first.evaluation.prompts_present == ("p0",)
    several_folders(tiny, tiny.lab.hidden_states)
    like = await evaluate(tiny.console, like=first.evaluation, again=True)
    assert fact(like.evaluation, "cache.chosen").value["folder"] == str(small)
    assert like.evaluation.prompts_present == ("p0",)


async def test_capture_writes_where_an_evaluation_would_look(tiny: Bench) -> None:
    small = tiny.root / "lab" / "small"
    small.mkdir()
    cache = capturable(tiny, small)
    done = await capturing.capture(tiny.console)
    assert done.captured == ("graph_bfs",)
    assert (cache / "graph_bfs.safetensors").exists()
    assert list(small.iterdir()) == []
    assert any(line.startswith(f"hidden states go to {cache}: 3 of 4") for line in plan(tiny))


def with_metadata(path: Path, **changes: str) -> None:
    """Write a hidden-state file anew with other words about itself."""
    with safe_open(path, "pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in ("hidden", "tokens")}
    path.unlink()
    save_file(tensors, path, metadata={**metadata, **changes})


async def test_the_cache_s_identity_is_what_all_of_its_files_say(tiny: Bench) -> None:
    done = await evaluate(tiny.console)
    whole = fact(done.evaluation, "cache.identity").value
    assert (whole["target"], whole["taps"]) == (tiny.lab.target.name, [1, 3, 5])
    with_metadata(tiny.lab.hidden_states / "p1.safetensors", target="renamed")
    again = await evaluate(tiny.console)
    partly = fact(again.evaluation, "cache.identity").value
    assert (partly["target"], partly["target_config_sha256"]) == (None, whole["target_config_sha256"])


async def test_states_of_another_target_are_left_out_and_told_as_such(tiny: Bench) -> None:
    with_metadata(tiny.lab.hidden_states / "p1.safetensors", target_config_sha256="0" * 64)
    done = await evaluate(tiny.console)
    assert done.evaluation.prompts_present == ("p0", "p2")
    stale = [item for item in caveats_of(done.evaluation) if item.code == "STALE_CACHE" and item.scope == "p1"]
    assert [item.severity for item in stale] == ["warn"]
    assert "another target" in stale[0].sentence
    assert not [item for item in caveats_of(done.evaluation) if item.code == "CACHE_DANGLING"]
