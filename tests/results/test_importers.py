"""Result files as evaluations: chosen by content."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.results.errors import NotRecognised, ResultDamaged
from dflash_tui.results.importers import import_file
from tests.runs import TEN, UNHURRIED, drafted, manifest, write_run

AVERAGES = {"avg_vanilla_streak": 3.5, "avg_ddtree4_streak": 6.5, "avg_ddtree8_streak": 8.5}


def _file(folder: Path, data: Any, name: str = "anything.txt") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_three_averages_are_enough_and_nothing_else_is_guessed(tmp_path: Path) -> None:
    found = import_file(_file(tmp_path, AVERAGES), "mine")
    assert found.name == "mine"
    assert found.pooled.streak == {"top1": 3.5, "top4": 6.5, "top8": 8.5}
    assert found.pooled.tau == 4.5
    assert found.pooled.blocks == 0
    unrecorded = (found.step, found.training, found.block_size, found.horizon, found.prompts_asked, found.anchors)
    assert set(unrecorded) == {None}
    assert found.prompts_present is None
    assert found.prompt_count is None
    assert found.preset is None
    assert found.facts == ()


@pytest.mark.parametrize(
    ("name", "training", "step"),
    [
        ("checkpoint_slammed5_step4000.pt", "slammed5", 4000),
        ("checkpoint_v4_step4k.pt", "v4", 4000),
        ("/workspace/run/step_4000/checkpoint.pt", None, 4000),
        ("outputs/tiny-v1-step200", "tiny_v1", 200),
        ("epoch_0_step_100", None, 100),
        ("drafter.pt", None, None),
        ("footstep4000.pt", None, None),
        ("checkpoint_v4_step4kb.pt", None, None),
    ],
)
def test_run_and_step_come_from_the_checkpoints_name(
    tmp_path: Path, name: str, training: str | None, step: int | None
) -> None:
    found = import_file(_file(tmp_path, {**AVERAGES, "checkpoint": name}), "mine")
    assert (found.training, found.step) == (training, step)


def test_a_stated_step_is_believed_before_the_name(tmp_path: Path) -> None:
    found = import_file(_file(tmp_path, {**AVERAGES, "checkpoint": "run_step10.pt", "step": 12}), "mine")
    assert found.step == 12


def test_prompts_asked_and_measured_are_told_apart(tmp_path: Path) -> None:
    prompt = {"blocks": 30, "vanilla_streak": 1, "ddtree4_streak": 2, "ddtree8_streak": 3}
    data = {**AVERAGES, "num_prompts_requested": 10, "max_blocks": 30, "per_prompt": {"a": prompt, "b": prompt}}
    found = import_file(_file(tmp_path, data), "mine")
    assert (found.prompts_asked_count, found.prompt_count, found.prompts_present) == (10, 2, ("a", "b"))
    assert found.pooled.blocks == 60
    assert found.preset == "full"
    assert found.per_prompt["a"].streak == {"top1": 1.0, "top4": 2.0, "top8": 3.0}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"avg_vanilla_streak": "3.5"}, "avg_vanilla_streak is '3.5', expected a number"),
        ({"avg_ddtree4_streak": True}, "avg_ddtree4_streak is 'True'"),
        ({"avg_ddtree4_streak": None}, "avg_ddtree4_streak is missing"),
        ({"avg_ddtree8_streak": float("nan")}, "avg_ddtree8_streak is 'nan'"),
        ({"avg_ddtree8_streak": 10**400}, "avg_ddtree8_streak is"),
        ({"avg_ddtree8_streak": -1}, "avg_ddtree8_streak is '-1'"),
        ({"total_blocks": 4.5}, "total_blocks is 4.5, expected a whole number"),
        ({"block_size": 1}, "block_size is 1, expected at least 2"),
        ({"checkpoint": 4}, "checkpoint is a int, expected a text"),
        ({"per_prompt": []}, "per_prompt is a list, expected an object"),
        ({"per_prompt": {"a": 3}}, r"per_prompt\.a is a int"),
        ({"per_prompt": {"a": {"vanilla_streak": 3}}}, r"per_prompt\.a\.avg_ddtree4_streak is missing"),
    ],
)
def test_a_wrong_value_is_one_sentence_that_names_the_key(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ResultDamaged, match=sentence):
        import_file(_file(tmp_path, {**AVERAGES, **change}), "mine")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"accuracy": 1, "loss": 2}, "found keys 'accuracy', 'loss', expected"),
        ({}, "found keys none"),
        ([1], "found a JSON list"),
        ("not json", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_not_recognised_says_what_was_found_and_expected(tmp_path: Path, content: Any, found: str) -> None:
    with pytest.raises(NotRecognised, match=found):
        import_file(_file(tmp_path, content), "mine")


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ResultDamaged, match="can't be read"):
        import_file(tmp_path / "nothing.json", "mine")


@pytest.mark.parametrize("record", ["", "manifest.json", "results.json", "blocks.jsonl"])
def test_an_own_run_is_accepted_by_its_folder_or_any_record(tmp_path: Path, record: str) -> None:
    run = write_run(tmp_path / "run", manifest(), drafted(TEN))
    found = import_file(run / record if record else run, "mine")
    assert (found.name, found.origin, len(found.blocks)) == ("mine", "run", 300)


def test_results_without_their_run_keep_scores_only(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest(), drafted(TEN))
    lost = _file(tmp_path, (run / "results.json").read_text())
    found = import_file(lost, "mine")
    assert (found.origin, found.blocks, found.anchors, found.horizon) == ("import", (), None, 15)
    assert list(found.per_prompt) == list(TEN)


def test_a_story_file_beside_an_unrelated_manifest_is_still_itself(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest(), drafted(TEN))
    assert import_file(_file(run, AVERAGES, "eval_results.json"), "mine").pooled.tau == 4.5


def test_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotRecognised, match=r"without manifest\.json"):
        import_file(tmp_path, "mine")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("checkpoint", "num_prompts", "max_blocks", "block_size", "total_blocks", "per_prompt", *AVERAGES, "run_id")


@UNHURRIED
@given(st.dictionaries(st.sampled_from(KEYS), JSON), st.booleans())
def test_any_json_is_read_or_refused_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any], whole: bool
) -> None:
    path = _file(tmp_path_factory.mktemp("any"), {**AVERAGES, **data} if whole else data)
    with contextlib.suppress(NotRecognised, ResultDamaged):
        assert set(import_file(path, "mine").pooled.streak) == {"top1", "top4", "top8"}


def test_a_device_is_no_result_file() -> None:
    with pytest.raises(NotRecognised, match="no regular file"):
        import_file(Path("/dev/zero"), "endless")
