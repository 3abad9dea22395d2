"""Settings that weights can't tell: read from whoever says them, in order; contradictions and silence are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.checkpoints.errors import CheckpointUnsupported, SettingsConflict, SettingsMissing
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.settings import resolve_settings
from dflash_tui.checkpoints.structure import Structure
from dflash_tui.records.codec import dumps, loads
from dflash_tui.records.settings import DrafterSettings
from tests.checkpoints.written import drafter, safetensors_bytes

COMPLETE: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "hidden_size": 4,
    "vocab_size": 50,
    "block_size": 8,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "dflash_config": {"mask_token_id": 49, "target_layer_ids": [1, 3]},
}


@pytest.fixture
def structure(tmp_path: Path) -> Structure:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(drafter(layers=2)))
    return read_structure(LocalFiles(tmp_path))


def resolve(structure: Structure, config: dict[str, Any] | None = None, **overrides: Any) -> DrafterSettings:
    return resolve_settings(structure, [] if config is None else [("config.json", config)], overrides)


def with_args(structure: Structure, **args: Any) -> Structure:
    return dataclasses.replace(structure, args=args, sources={"args": "checkpoint.pt: args"})


def test_each_field_names_its_source(structure: Structure) -> None:
    settings = resolve(structure, COMPLETE)
    assert settings.sources["mask_token_id"] == "config.json: dflash_config.mask_token_id"
    assert settings.sources["hidden_size"] == "weights"
    assert settings.sources["rope_theta"] == "config.json: rope_theta"
    assert loads(DrafterSettings, dumps(settings), "round trip") == settings


def test_the_config_beside_the_weights_comes_before_the_users_keys_and_those_before_args(structure: Structure) -> None:
    bare = {key: value for key, value in COMPLETE.items() if key not in ("block_size", "rope_theta")}
    trained = with_args(structure, block_size=32, rope_theta=5e5, rms_norm_eps=1e-5, lr=6e-4)
    settings = resolve(trained, bare, block_size=16, rms_norm_eps=1e-3)
    assert (settings.block_size, settings.sources["block_size"]) == (16, "config.toml: drafter.block_size")
    assert (settings.rope_theta, settings.sources["rope_theta"]) == (5e5, "checkpoint.pt: args: rope_theta")
    assert (settings.rms_norm_eps, settings.sources["rms_norm_eps"]) == (1e-6, "config.json: rms_norm_eps")


def test_everything_can_come_from_the_users_keys(structure: Structure) -> None:
    settings = resolve(
        structure, taps=[1, 3], block_size=8, mask_token_id=49, rope_theta=1e7, rms_norm_eps=1e-6, vocab_size=50,
        layer_types=["sliding_attention", "full_attention"], sliding_window=20, is_causal=False,
    )  # fmt: skip
    assert settings.taps == (1, 3)
    assert settings.layer_masks == ("sliding-symmetric", "full")
    assert settings.sources["taps"] == "config.toml: drafter.taps"


@pytest.mark.parametrize("field", ["block_size", "rope_theta", "rms_norm_eps", "vocab_size"])
def test_a_field_that_nobody_gives_is_refused_by_name(structure: Structure, field: str) -> None:
    with pytest.raises(SettingsMissing, match=field) as refusal:
        resolve(structure, {key: value for key, value in COMPLETE.items() if key != field})
    assert refusal.value.fields == (field,)


@pytest.mark.parametrize(("field", "key"), [("mask_token_id", "mask_token_id"), ("taps", "target_layer_ids")])
def test_a_nested_field_that_nobody_gives_is_refused_by_name(structure: Structure, field: str, key: str) -> None:
    nested = {name: value for name, value in COMPLETE["dflash_config"].items() if name != key}
    with pytest.raises(SettingsMissing, match=field) as refusal:
        resolve(structure, {**COMPLETE, "dflash_config": nested})
    assert refusal.value.fields == (field,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 8}, "hidden_size is 8, but the weights' shapes give 4"),
        ({"num_hidden_layers": 5}, "num_hidden_layers is 5"),
        ({"num_key_value_heads": 2}, "num_key_value_heads is 2"),
        ({"target_layer_ids": [1, 5]}, r"dflash_config\.target_layer_ids"),
        ({"dflash_config": {"mask_token_id": 49, "target_layer_ids": [1, 3, 5]}}, "3 taps of width 4.*8 columns"),
        ({"dflash_config": {"mask_token_id": 50, "target_layer_ids": [1, 3]}}, "vocabulary has 50"),
        ({"rope_parameters": {"rope_theta": 1e7}}, r"rope_theta is 1000000\.0, but .*rope_parameters"),
        ({"layer_types": ["full_attention"]}, "1 layers.*weights have 2"),
        ({"block_size": 1}, "at least 2"),
        ({"block_size": "8"}, "block_size is '8'"),
        ({"rope_theta": -1}, "positive"),
        ({"draft_vocab_size": 60}, "draft_vocab_size is 60"),
        ({"attention_bias": True}, "attention_bias is True, but the weights have no"),
    ],
)
def test_a_contradiction_names_both_sides(structure: Structure, change: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsConflict, match=words):
        resolve(structure, {**COMPLETE, **change})


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, r"rope_scaling\.rope_type is 'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, r"rope_scaling\.type"),
        ({"rope_scaling": {"factor": 4.0}}, r"rope_scaling\.factor is 4\.0"),
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "llama3"}}, r"rope_parameters\.rope_type"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "rope_parameters"),
        ({"partial_rotary_factor": 0.25}, r"partial_rotary_factor is 0\.25"),
        ({"transformer_layer_config": {"partial_rotary_factor": 0.5}}, r"transformer_layer_config\.partial_rotary"),
        ({"attention_sink_bias": True}, "attention_sink_bias"),
        ({"sample_from_anchor": True}, "sample_from_anchor is True"),
        ({"dflash_config": {**COMPLETE["dflash_config"], "use_swa": True}}, "use_swa"),
        ({"dflash_config": {**COMPLETE["dflash_config"], "is_neox_style": False}}, "is_neox_style"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"layer_types": ["chunked_attention"] * 2}, "layer_types"),
        ({"layer_types": ["full_attention"] * 2, "is_causal": True}, "is_causal"),
        ({"architectures": ["Qwen3DSparkModel"]}, "sample_from_anchor"),
    ],
)
def test_what_the_forward_pass_cannot_do_is_refused_by_its_key(
    structure: Structure, change: dict[str, Any], key: str
) -> None:
    with pytest.raises(CheckpointUnsupported, match=key):
        resolve(structure, {**COMPLETE, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"rope_scaling": None, "attention_bias": False},
        {"rope_scaling": {"rope_type": "default"}},
        {"rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}},
        {"partial_rotary_factor": 1},
        {"partial_rotary_factor": 1.0, "hidden_act": "silu", "attention_sink_bias": False},
        {"sample_from_anchor": False},
        {"block_size": 8, "dflash_config": {**COMPLETE["dflash_config"], "block_size": 8}},
        {"sliding_window": None, "use_sliding_window": False, "layer_types": ["full_attention"] * 2},
        {"sliding_window": 20, "use_sliding_window": False},
        {"draft_vocab_size": 50},
    ],
)
def test_harmless_spellings_change_nothing(structure: Structure, change: dict[str, Any]) -> None:
    changed, plain = resolve(structure, {**COMPLETE, **change}), resolve(structure, COMPLETE)
    assert dataclasses.replace(changed, sources={}) == dataclasses.replace(plain, sources={})


@pytest.mark.parametrize(
    ("change", "masks"),
    [
        ({}, ("sliding-causal", "full")),
        ({"use_sliding_window": True}, ("sliding-causal", "full")),
        ({"is_causal": False}, ("sliding-symmetric", "full")),
        ({"dflash_config": {**COMPLETE["dflash_config"], "causal": False}}, ("sliding-symmetric", "full")),
        ({"sliding_window_non_causal": True}, ("sliding-symmetric", "full")),
        ({"sliding_window_non_causal": False}, ("sliding-causal", "full")),
        ({"layer_types": ["sliding_attention"] * 2, "is_causal": True}, ("sliding-causal",) * 2),
    ],
)
def test_masks_are_those_that_the_config_declares(
    structure: Structure, change: dict[str, Any], masks: tuple[str, ...]
) -> None:
    sliding = {**COMPLETE, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 12}
    settings = resolve(structure, {**sliding, **change})
    assert settings.layer_masks == masks
    assert settings.sliding_window == 12


def test_a_window_without_layer_types_is_not_guessed(structure: Structure) -> None:
    with pytest.raises(SettingsMissing, match="layer_types"):
        resolve(structure, {**COMPLETE, "sliding_window": 12})


def test_sliding_layers_without_a_window_are_not_guessed(structure: Structure) -> None:
    with pytest.raises(SettingsMissing, match="sliding_window"):
        resolve(structure, {**COMPLETE, "layer_types": ["sliding_attention"] * 2, "sliding_window": None})


def test_a_window_that_is_switched_off_beside_sliding_layers_is_a_contradiction(structure: Structure) -> None:
    config = {**COMPLETE, "layer_types": ["sliding_attention"] * 2, "sliding_window": 9, "use_sliding_window": False}
    with pytest.raises(SettingsConflict, match="use_sliding_window is False"):
        resolve(structure, config)


def test_the_whole_block_is_declared_causal_and_symmetric(structure: Structure) -> None:
    config = {**COMPLETE, "layer_types": ["sliding_attention"] * 2, "sliding_window": 9, "is_causal": True}
    with pytest.raises(SettingsConflict, match="sliding_window_non_causal"):
        resolve(structure, {**config, "sliding_window_non_causal": True})


@pytest.mark.parametrize(("ids", "extra"), [([2, 4], {}), ([2, 4, 6], {}), ([2, 4, 6], {"num_target_layers": 6})])
def test_speculators_ids_count_states_and_may_end_with_the_last_one(
    structure: Structure, ids: list[int], extra: dict[str, int]
) -> None:
    nested = {key: COMPLETE[key] for key in ("vocab_size", "rms_norm_eps", "hidden_size")}
    config = {
        "speculators_model_type": "dflash",
        "aux_hidden_state_layer_ids": ids,
        "block_size": 8,
        "mask_token_id": 49,
        "transformer_layer_config": {**nested, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
        **extra,
    }
    settings = resolve(structure, config)
    assert settings.taps == (1, 3)
    assert settings.sources["rope_theta"] == "config.json: transformer_layer_config.rope_parameters.rope_theta"


def test_tap_ids_in_a_speculators_trainers_args_have_an_unknown_numbering(structure: Structure) -> None:
    bare = {**COMPLETE, "dflash_config": {"mask_token_id": 49}}
    assert resolve(with_args(structure, target_layer_ids=[1, 3]), bare).taps == (1, 3)
    with pytest.raises(SettingsMissing, match="taps"):
        resolve(with_args(structure, target_layer_ids=[1, 3], verifier_name_or_path="tiny/verifier"), bare)


def test_a_target_of_another_width_gives_the_number_of_taps(structure: Structure) -> None:
    config = {**COMPLETE, "target_hidden_size": 8, "dflash_config": {"mask_token_id": 49, "target_layer_ids": [3]}}
    assert resolve(structure, config).taps == (3,)


def test_multipliers_are_read_and_default_to_none_at_all(structure: Structure) -> None:
    plain = resolve(structure, COMPLETE)
    assert (plain.input_embedding_scale, plain.output_multiplier, plain.final_logit_softcapping) == (1.0, 1.0, None)
    scaled = resolve(structure, {**COMPLETE, "output_multiplier": 0.5, "final_logit_softcapping": 20})
    assert (scaled.output_multiplier, scaled.final_logit_softcapping) == (0.5, 20.0)
