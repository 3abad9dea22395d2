from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.checkpoints.files import local_files
from dflash_tui.checkpoints.opening import read_configs, read_structure
from dflash_tui.checkpoints.settings import resolve_settings
from dflash_tui.checkpoints.structure import Structure
from dflash_tui.demo.build_target import (
    BASELINE_KNOWS,
    CAPTURED,
    STAGES,
    TAPS,
    TARGET_STEPS,
    main,
    training_instructions,
)
from dflash_tui.demo.corpus import DATA, EVALUATED, tasks
from dflash_tui.demo.loading import load_in_float
from dflash_tui.demo.pretraining import answers_exactly
from dflash_tui.demo.tokens import END, MASK, Tokenizer, prompt_text
from dflash_tui.demo.training import Row
from dflash_tui.harness.features import features_path, read_features_header
from dflash_tui.harness.mapped import Maps
from dflash_tui.harness.prompts import read_prompts
from dflash_tui.harness.target import complete, load_target
from dflash_tui.harness.target_files import eos_ids, open_target

PROMPTS = read_prompts(DATA / "prompts.jsonl")
TOKENIZER = Tokenizer.load(DATA / "target" / "tokenizer.json")
ROWS: list[dict[str, Any]] = [json.loads(line) for line in (DATA / "rows.jsonl").read_text().splitlines()]
BLOCK, ANCHORS = 32, 30


def _structure(folder: str) -> Structure:
    return read_structure(local_files(DATA / folder))


def test_the_prompt_set_is_the_ten_tasks_in_order() -> None:
    assert tuple(prompt.id for prompt in PROMPTS) == EVALUATED


def test_token_ids_of_a_prompt_are_its_text_tokenised() -> None:
    by_id = tasks()
    for prompt in PROMPTS:
        instruction = by_id[prompt.id].evaluated().instruction
        assert prompt.text == prompt_text(instruction)
        assert prompt.token_ids == tuple(TOKENIZER.prompt(instruction))


def test_no_evaluation_prompt_is_in_the_targets_training_set() -> None:
    trained = (DATA / "target_instructions.txt").read_text(encoding="utf-8").splitlines()
    assert len(trained) > 1000
    assert {prompt.text for prompt in PROMPTS}.isdisjoint(map(prompt_text, trained))


def test_the_list_of_the_targets_instructions_is_what_its_training_reads() -> None:
    trained = (DATA / "target_instructions.txt").read_text(encoding="utf-8").splitlines()
    assert trained == training_instructions(tasks(), TARGET_STEPS)


def test_no_evaluation_prompt_is_in_the_drafters_training_rows() -> None:
    trained = {prompt_text(TOKENIZER.decode(row["prompt"])) for row in ROWS}
    assert {prompt.text for prompt in PROMPTS}.isdisjoint(trained)
    assert {prompt.token_ids for prompt in PROMPTS}.isdisjoint(tuple(row["prompt"]) for row in ROWS)


def test_training_rows_are_distinct_ended_programs_without_the_mask_token() -> None:
    end, mask = TOKENIZER.ids[END], TOKENIZER.ids[MASK]
    assert len({tuple(row["prompt"]) for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row["completion"][-1] == end
        assert mask not in row["prompt"] + row["completion"]
        ast.parse(TOKENIZER.decode(row["completion"]))
    assert set(EVALUATED) < {row["task"] for row in ROWS}


def test_the_baseline_knows_at_most_three_evaluated_tasks_and_one_of_the_first_three() -> None:
    assert set(BASELINE_KNOWS) <= set(EVALUATED)
    assert len(BASELINE_KNOWS) <= 3
    assert len(set(BASELINE_KNOWS) & set(EVALUATED[:3])) <= 1


def test_the_target_is_a_small_qwen3_folder() -> None:
    config = json.loads((DATA / "target" / "config.json").read_text())
    tensors = _structure("target").tensors
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["model_type"] == "qwen3"
    width, heads, keys = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    assert tensors["model.embed_tokens.weight"].shape == (config["vocab_size"], width)
    assert "lm_head.weight" not in tensors
    assert config["tie_word_embeddings"] is True
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        assert tensors[f"{prefix}self_attn.q_proj.weight"].shape == (heads * config["head_dim"], width)
        assert tensors[f"{prefix}self_attn.k_proj.weight"].shape == (keys * config["head_dim"], width)
        assert tensors[f"{prefix}mlp.down_proj.weight"].shape == (width, config["intermediate_size"])
    assert len(tensors) == 11 * config["num_hidden_layers"] + 2
    assert {info.dtype for info in tensors.values()} == {"BF16"}
    assert 1e6 < sum(math.prod(info.shape) for info in tensors.values()) < 2e6
    assert len(TOKENIZER.vocab) == config["vocab_size"]


def test_the_baseline_folder_says_all_that_an_evaluation_must_know() -> None:
    files = local_files(DATA / "baseline")
    settings = resolve_settings(read_structure(files), read_configs(files), {})
    assert (settings.block_size, settings.taps, settings.layer_masks) == (16, TAPS, ("full",))
    assert settings.mask_token_id == TOKENIZER.ids[MASK]
    assert json.loads((DATA / "baseline" / "config.json").read_text())["num_target_layers"] == 6


def test_weights_stay_under_4_mb_and_all_data_under_6() -> None:
    sizes = {path: path.stat().st_size for path in DATA.rglob("*") if path.is_file()}
    assert sum(size for path, size in sizes.items() if path.name == "model.safetensors") <= 4_000_000
    assert sum(sizes.values()) <= 6_000_000


@pytest.mark.parametrize("name", EVALUATED)
def test_the_target_answers_every_prompt_rightly_and_long_enough_for_thirty_anchors(name: str) -> None:
    document = tasks()[name].evaluated()
    answer = TOKENIZER.completion(document.program)
    assert answers_exactly(
        *load_in_float(DATA / "target"), Row(name, tuple(TOKENIZER.prompt(document.instruction)), tuple(answer))
    )
    assert len(answer) >= ANCHORS + BLOCK - 1


def test_what_one_forward_pass_calls_the_targets_answer_is_its_greedy_completion() -> None:
    source, prompt = open_target(DATA / "target"), PROMPTS[0]
    model, vocabulary = load_target(source, Maps())
    assert prompt.token_ids is not None
    made = complete(model, vocabulary, prompt.token_ids, TAPS, eos_ids(source), 300)
    assert made.ended
    assert TOKENIZER.decode(made.tokens[made.prompt_len :]) == tasks()[prompt.id].evaluated().program


def test_three_prompts_have_hidden_states_from_the_start() -> None:
    shipped = sorted(path.name for path in (DATA / "hidden_states").iterdir())
    assert shipped == sorted(features_path(Path(), name).name for name in CAPTURED)
    for prompt in PROMPTS[:3]:
        header = read_features_header(features_path(DATA / "hidden_states", prompt.id))
        assert header.identity["prompt_sha256"] == prompt.sha256


def test_a_target_trained_too_little_to_answer_anything_ends_the_build_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = ["text", "target", "rows", "baseline"]
    assert main([str(tmp_path), "--stages", *stages, "--target-steps", "2", "--rows-per-task", "1"]) == 1
    assert f"{tmp_path / 'rows.jsonl'}: none of its 0 rows is of" in capsys.readouterr().err
    assert len(read_structure(local_files(tmp_path / "target")).tensors) == len(_structure("target").tensors)


def test_the_text_stage_makes_the_shipped_tokenizer_and_prompts(tmp_path: Path) -> None:
    assert main([str(tmp_path), "--stages", STAGES[0]]) == 0
    for name in ("prompts.jsonl", "target/tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes()
