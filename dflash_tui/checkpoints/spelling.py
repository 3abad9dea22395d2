"""How each project spells a drafter's settings in its config, brought to one vocabulary of fields.

Read from z-lab DFlash (nested `dflash_config`), SpecForge, DeepSpec (flat), verl-SpeCo and speculators
(`transformer_layer_config`, `aux_hidden_state_layer_ids`) configs; from JSON directly, never through a config class,
because transformers' Qwen3Config drops `sliding_window` unless `use_sliding_window` is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointUnsupported, SettingsConflict
from dflash_tui.checkpoints.sentences import shown

_PLACES: Mapping[str, tuple[str, ...]] = {
    "block_size": ("block_size", "dflash_config.block_size"),
    "mask_token_id": ("mask_token_id", "dflash_config.mask_token_id"),
    "taps": ("taps", "target_layer_ids", "dflash_config.target_layer_ids"),
    "speculators_taps": ("aux_hidden_state_layer_ids",),
    "rope_theta": ("rope_theta", "rope_parameters.rope_theta"),
    "rms_norm_eps": ("rms_norm_eps",),
    "layer_types": ("layer_types", "dflash_config.layer_types"),
    "sliding_window": ("sliding_window", "dflash_config.sliding_window"),
    "use_sliding_window": ("use_sliding_window",),
    "is_causal": ("is_causal", "dflash_config.is_causal", "dflash_config.causal"),
    "sliding_window_non_causal": ("sliding_window_non_causal",),
    "sample_from_anchor": ("sample_from_anchor", "dflash_config.sample_from_anchor"),
    "hidden_size": ("hidden_size",),
    "num_hidden_layers": ("num_hidden_layers",),
    "num_attention_heads": ("num_attention_heads",),
    "num_key_value_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "intermediate_size": ("intermediate_size",),
    "vocab_size": ("vocab_size",),
    "draft_vocab_size": ("draft_vocab_size",),
    "target_hidden_size": ("target_hidden_size", "dflash_config.target_hidden_size"),
    "num_target_layers": ("num_target_layers", "target_num_hidden_layers"),
    "attention_bias": ("attention_bias",),
    "input_embedding_scale": ("input_embedding_scale", "dflash_config.input_embedding_scale"),
    "output_multiplier": ("output_multiplier", "dflash_config.output_multiplier"),
    "final_logit_softcapping": ("final_logit_softcapping", "dflash_config.final_logit_softcapping"),
}
_INNER = "transformer_layer_config"

_REFUSED: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("rope_scaling.rope_type", (None, "default"), "scaled rotary positions"),
    ("rope_scaling.type", (None, "default"), "scaled rotary positions"),
    ("rope_scaling.factor", (None, 1, 1.0), "scaled rotary positions"),
    ("rope_parameters.rope_type", (None, "default"), "scaled rotary positions"),
    ("rope_parameters.factor", (None, 1, 1.0), "scaled rotary positions"),
    ("partial_rotary_factor", (None, 1, 1.0), "rotary positions over a part of each head"),
    ("rope_parameters.partial_rotary_factor", (None, 1, 1.0), "rotary positions over a part of each head"),
    ("is_neox_style", (None, True), "interleaved rotary positions"),
    ("dflash_config.is_neox_style", (None, True), "interleaved rotary positions"),
    ("attention_sink_bias", (None, False), "attention sinks"),
    ("dflash_config.attention_sink_bias", (None, False), "attention sinks"),
    ("add_swa_attention_sink_bias", (None, False), "attention sinks"),
    ("attention_value_scale", (None, 1, 1.0), "scaled attention values"),
    ("dflash_config.attention_value_scale", (None, 1, 1.0), "scaled attention values"),
    ("use_swa", (None, False), "windows in every layer, declared by use_swa"),
    ("dflash_config.use_swa", (None, False), "windows in every layer, declared by use_swa"),
    ("dflash_config.swa_window_size", (None, 0), "windows in every layer, declared by swa_window_size"),
    ("hidden_act", (None, "silu"), "another activation than silu"),
    ("mlp_bias", (None, False), "biases in the MLP"),
    ("mask_embedding", (None, False), "a mask embedding of its own"),
    ("dflash_config.mask_embedding", (None, False), "a mask embedding of its own"),
)


@dataclass(frozen=True)
class Said:
    """A value and where it was read, e.g. "config.json: dflash_config.mask_token_id"."""

    value: Any
    source: str


def spelled_fields(name: str, data: Mapping[str, Any]) -> dict[str, Said]:
    """The settings that one config gives, by field; null and absent are alike.

    Raises SettingsConflict when two spellings of one field disagree, CheckpointUnsupported naming the key that the
    DFlash v1 forward pass can't honour.
    """
    _refuse(name, data)
    found: dict[str, Said] = {}
    for field, places in _PLACES.items():
        for place in places:
            for key in (place, f"{_INNER}.{place}"):
                value = _at(data, key)
                if value is None:
                    continue
                said = Said(value, f"{name}: {key}")
                first = found.setdefault(field, said)
                if first.value != value:
                    raise SettingsConflict(
                        f"{first.source} is {shown(first.value)}, but {said.source} is {shown(value)}"
                    )
    return found


def _refuse(name: str, data: Mapping[str, Any]) -> None:
    for key, harmless, what in _REFUSED:
        for place in (key, f"{_INNER}.{key}"):
            value = _at(data, place)
            if not any(value is fine or (type(value) is type(fine) and value == fine) for fine in harmless):
                raise CheckpointUnsupported(f"{name}: {place} is {shown(value)}: {what} can't be evaluated yet")
    for place in ("rope_parameters", f"{_INNER}.rope_parameters"):
        value = _at(data, place)
        if isinstance(value, Mapping) and any(isinstance(item, Mapping) for item in value.values()):
            raise CheckpointUnsupported(f"{name}: {place} differs by layer type: that can't be evaluated yet")


def _at(data: Mapping[str, Any], path: str) -> Any:
    value: Any = data
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
