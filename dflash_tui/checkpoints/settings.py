"""What a drafter's forward pass needs beyond its tensors: read from configs and shapes, never guessed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dflash_tui.checkpoints.audit import infer
from dflash_tui.checkpoints.errors import CheckpointUnsupported, SettingsConflict, SettingsMissing
from dflash_tui.checkpoints.family import BIAS_KEYS, declared_family, family_of
from dflash_tui.checkpoints.keys import Part, canonical_tensors
from dflash_tui.checkpoints.masks import resolve_masks
from dflash_tui.checkpoints.sentences import shown
from dflash_tui.checkpoints.spelling import Said, spelled_fields
from dflash_tui.checkpoints.structure import Structure
from dflash_tui.records.settings import DrafterSettings

CONFIG = "config.toml"
"""What the user's own config is called in sources and sentences: who reads a checkpoint doesn't know its path."""

OVERRIDES = f"{CONFIG}: drafter"
"""How the source of a user's own settings is named."""

_FIELDS = frozenset(item.name for item in dataclasses.fields(DrafterSettings))
_SHAPES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
)  # fmt: skip

Configs = Sequence[tuple[str, Mapping[str, Any]]]
Fields = Mapping[str, Said]


def resolve_settings(structure: Structure, configs: Configs, overrides: Mapping[str, Any]) -> DrafterSettings:
    """The drafter's settings with the source of each.

    Field by field: `configs` in order (those beside the weights first, then a file that the user names), else
    `overrides` (keys of `[drafter]` in config.toml), else the checkpoint's own args. Shapes come from the weights and
    must agree with every config. Raises SettingsMissing naming all fields that nothing gives, SettingsConflict naming
    both sides, CheckpointUnsupported naming the key.
    """
    parts = canonical_tensors(structure)
    given = [(name, spelled_fields(name, data)) for name, data in configs]
    given.append((OVERRIDES, _override_fields(overrides)))
    shapes = infer(parts, _target_width(given))
    _agree(shapes, given)
    args = spelled_fields(_args_name(structure), structure.args or {})
    sources = [fields for _, fields in given] + [args]
    pick = _Picker(sources)
    taps = _taps(pick, sources, shapes, structure)
    values: dict[str, Any] = {
        "block_size": pick.whole("block_size", least=2),
        "mask_token_id": pick.whole("mask_token_id", least=0),
        "taps": taps,
        "rope_theta": pick.real("rope_theta"),
        "rms_norm_eps": pick.real("rms_norm_eps"),
    }
    for field in _SHAPES:
        if field in shapes:
            values[field], pick.sources[field] = shapes[field], "weights"
        else:
            values[field] = pick.whole(field, least=1)
    if "vocab_size" in shapes:
        values["vocab_size"], pick.sources["vocab_size"] = shapes["vocab_size"], "weights"
    else:
        values["vocab_size"] = pick.whole("vocab_size", least=1)
    layers = values["num_hidden_layers"] or 0
    values["layer_masks"], values["sliding_window"] = resolve_masks(pick, layers)
    if pick.missing:
        raise SettingsMissing(_missing_sentence(structure, pick.missing, configs), tuple(pick.missing))
    _check_taps(taps, pick, parts, shapes, sources)
    _check_anchor_layout(pick, configs)
    _check_mask_token(values, pick)
    biased = any(name.endswith(BIAS_KEYS) for name in parts)
    _check_biases(biased, pick)
    return DrafterSettings(
        **values,
        family=family_of(parts),
        draft_vocab_size=_draft_vocabulary(pick, shapes, values["vocab_size"]),
        sample_from_anchor=False,
        attention_bias=biased,
        input_embedding_scale=pick.optional_real("input_embedding_scale", 1.0),
        output_multiplier=pick.optional_real("output_multiplier", 1.0),
        final_logit_softcapping=pick.optional_real("final_logit_softcapping", None),
        sources={field: source for field, source in sorted(pick.sources.items()) if field in _FIELDS},
    )


class _Picker:
    """Takes the first source that gives a field, notes where it came from, and collects what nobody gives."""

    def __init__(self, given: Sequence[Fields]) -> None:
        self.given = given
        self.sources: dict[str, str] = {}
        self.missing: list[str] = []

    def find(self, field: str) -> Said | None:
        said = next((fields[field] for fields in self.given if field in fields), None)
        if said is not None:
            self.sources[field] = said.source
        return said

    def whole(self, field: str, least: int) -> int:
        said = self.find(field)
        if said is None:
            self.missing.append(field)
            return 0
        if type(said.value) is not int or said.value < least:
            raise SettingsConflict(f"{said.source} is {shown(said.value)}, expected a whole number of at least {least}")
        return said.value

    def real(self, field: str) -> float:
        said = self.find(field)
        if said is None:
            self.missing.append(field)
            return 0.0
        return _real(said)

    def optional_real(self, field: str, default: Any) -> Any:
        said = self.find(field)
        return default if said is None else _real(said)


def _real(said: Said) -> float:
    number = isinstance(said.value, (int, float)) and not isinstance(said.value, bool)
    if not number or not math.isfinite(said.value) or said.value <= 0:
        raise SettingsConflict(f"{said.source} is {shown(said.value)}, expected a positive number")
    return float(said.value)


def _override_fields(overrides: Mapping[str, Any]) -> dict[str, Said]:
    fields = spelled_fields(OVERRIDES, {key: value for key, value in overrides.items() if key != "config"})
    return {
        field: Said(said.value, said.source.replace(": drafter: ", ": drafter.", 1)) for field, said in fields.items()
    }


def _args_name(structure: Structure) -> str:
    return structure.sources.get("args", "the checkpoint's args")


def _target_width(given: Sequence[tuple[str, Fields]]) -> int | None:
    for _, fields in given:
        said = fields.get("target_hidden_size")
        if said is not None and type(said.value) is int:
            return said.value
    return None


def _agree(shapes: Mapping[str, int], given: Sequence[tuple[str, Fields]]) -> None:
    for _, fields in given:
        for field in (*_SHAPES, "vocab_size"):
            said = fields.get(field)
            if said is not None and field in shapes and said.value != shapes[field]:
                raise SettingsConflict(
                    f"{said.source} is {shown(said.value)}, but the weights' shapes give {shapes[field]}; "
                    "is this the config of another model?"
                )


def _taps(pick: _Picker, sources: Sequence[Fields], shapes: Mapping[str, int], structure: Structure) -> tuple[int, ...]:
    """z-lab tap ids (0-based blocks) of the first source that gives either spelling."""
    for fields in sources:
        plain, shifted = fields.get("taps"), fields.get("speculators_taps")
        if plain is None and shifted is None:
            continue
        if plain is not None and fields is sources[-1] and "verifier_name_or_path" in (structure.args or {}):
            pick.missing.append("taps")
            pick.sources["taps"] = f"{plain.source} is ambiguous"
            return ()
        ids = _ids(plain) if plain is not None else ()
        if shifted is not None:
            converted = _from_speculators(shifted, fields.get("num_target_layers"), shapes.get("num_taps"))
            if plain is not None and converted != ids:
                raise SettingsConflict(
                    f"{plain.source} is {list(ids)}, but {shifted.source} means {list(converted)} in the same numbering"
                )
            ids = converted
        pick.sources["taps"] = (plain or shifted or Said(None, "")).source
        return ids
    pick.missing.append("taps")
    return ()


def _ids(said: Said) -> tuple[int, ...]:
    value = said.value
    if not isinstance(value, (list, tuple)) or not value or not all(type(item) is int and item >= -1 for item in value):
        raise SettingsConflict(f"{said.source} is {shown(value)}, expected a list of target layer ids")
    return tuple(value)


def _from_speculators(said: Said, layers: Said | None, count: int | None) -> tuple[int, ...]:
    """speculators counts states (0 = embedding output), so its id is z-lab's plus one; an id equal to the number of
    target layers is the final state, which is stored with the taps and not fed to fc."""
    ids = _ids(said)
    if layers is not None and layers.value in ids:
        ids = tuple(item for item in ids if item != layers.value)
    elif count is not None and len(ids) == count + 1 and ids[-1] == max(ids):
        ids = ids[:-1]
    return tuple(item - 1 for item in ids)


def _check_taps(
    taps: tuple[int, ...],
    pick: _Picker,
    parts: Mapping[str, Part],
    shapes: Mapping[str, int],
    sources: Sequence[Fields],
) -> None:
    fc = parts.get("fc.weight")
    if fc is None or len(fc.shape) != 2:
        return
    stated = next((fields["target_hidden_size"].value for fields in sources if "target_hidden_size" in fields), None)
    width = stated or shapes.get("hidden_size")
    if type(width) is int and len(taps) * width != fc.shape[1]:
        raise SettingsConflict(
            f"{pick.sources['taps']} names {len(taps)} taps of width {width}, but fc.weight has {fc.shape[1]} columns"
        )


def _check_anchor_layout(pick: _Picker, configs: Configs) -> None:
    """DFlash drafts in slots 1…B−1. A layout that drafts from slot 0 is refused, declared or implied by DeepSpec."""
    said = pick.find("sample_from_anchor")
    if said is not None:
        if said.value is not False:
            raise CheckpointUnsupported(
                f"{said.source} is {shown(said.value)}: drafting from the anchor's slot can't be evaluated yet"
            )
        return
    for name, data in configs:
        architectures = data.get("architectures")
        if isinstance(architectures, list) and any("dspark" in str(item).lower() for item in architectures):
            raise CheckpointUnsupported(
                f"{name}: architectures is {architectures} without sample_from_anchor: DeepSpec trains such drafters "
                "to draft from the anchor's slot, which can't be evaluated yet; if this one does not, say so with "
                "sample_from_anchor = false under [drafter] in config.toml"
            )
        if declared_family(data) is not None:
            pick.sources["sample_from_anchor"] = f"{name}: architectures"
            return
    pick.sources["sample_from_anchor"] = "the DFlash layout: slot 0 is the anchor"


def _check_mask_token(values: Mapping[str, Any], pick: _Picker) -> None:
    if values["mask_token_id"] >= values["vocab_size"]:
        raise SettingsConflict(
            f"{pick.sources['mask_token_id']} is {values['mask_token_id']}, "
            f"but the vocabulary has {values['vocab_size']} tokens"
        )


def _check_biases(biased: bool, pick: _Picker) -> None:
    said = pick.find("attention_bias")
    if said is not None and said.value is not biased:
        raise SettingsConflict(
            f"{said.source} is {shown(said.value)}, but the weights {'have' if biased else 'have no'} attention "
            "biases; is this the config of another model?"
        )
    pick.sources["attention_bias"] = "weights"


def _draft_vocabulary(pick: _Picker, shapes: Mapping[str, int], vocabulary: int) -> int | None:
    """Size of a reduced draft vocabulary; None for the full one."""
    said = pick.find("draft_vocab_size")
    stored = shapes.get("draft_vocab_size")
    if said is not None and stored is not None and said.value != stored:
        raise SettingsConflict(f"{said.source} is {shown(said.value)}, but the weights' draft vocabulary has {stored}")
    if stored is not None:
        pick.sources["draft_vocab_size"] = "weights"
        return stored
    if said is None or said.value == vocabulary:
        return None
    if type(said.value) is not int or not 0 < said.value < vocabulary:
        raise SettingsConflict(f"{said.source} is {shown(said.value)}, expected 1 … {vocabulary}")
    return int(said.value)


def _missing_sentence(structure: Structure, fields: Sequence[str], configs: Configs) -> str:
    looked = [name for name, _ in configs] or ["no config beside it"]
    names = ", ".join(fields)
    return (
        f"{structure.files[0]}: nothing says its {names} (looked in {', '.join(looked)}, [drafter] of {CONFIG} and "
        f"the checkpoint's own args); give {'it' if len(fields) == 1 else 'them'} under [drafter] in {CONFIG}, or "
        'name the drafter\'s config there: config = "PATH"'
    )
