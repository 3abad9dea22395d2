"""The JSON Schema (draft 2020-12) of ``config.toml``, for editors: made from the keys, with what the checks demand of
one value or of values side by side. What is named elsewhere (hosts that exist, chains that end) only reading can tell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dflash_tui.config.checks import DIRECT
from dflash_tui.config.content import (
    BaselineConfig,
    Config,
    EvaluationConfig,
    HarnessConfig,
    HostConfig,
    TrainingConfig,
    TransferConfig,
)
from dflash_tui.config.keys import (
    ABOUT,
    CONFIG_VERSION,
    LARGEST_BLOCK,
    MODES,
    NEEDED_TABLES,
    NUMBER,
    ROUTES,
    TABLES,
    Key,
    Shape,
)
from dflash_tui.config.rates import RATE_PATTERN

DIALECT = "https://json-schema.org/draft/2020-12/schema"
RECORDS: dict[str, type] = {
    "training": TrainingConfig,
    "evaluation": EvaluationConfig,
    "hosts": HostConfig,
    "baseline": BaselineConfig,
    "harness": HarnessConfig,
    "transfer": TransferConfig,
    "interface": Config,
}
"""The record that each table's values become; those of [drafter] stay as they are."""

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_ABSOLUTE = {"pattern": "^/"}
_OPTIONAL_PATH = {"anyOf": [{"const": ""}, _ABSOLUTE]}
_RESULT = {"minLength": 1, "not": {"type": "string", "pattern": r"(^|/)\.\.(/|$)"}}

_DEMANDS: dict[tuple[str, str], dict[str, Any]] = {
    ("training", "name"): {"not": {"anyOf": [{"enum": ["", ".", ".."]}, {"pattern": "/"}]}},
    ("training", "log"): _ABSOLUTE,
    ("training", "checkpoints"): _ABSOLUTE,
    ("training", "arguments"): _OPTIONAL_PATH,
    ("evaluation", "root"): _ABSOLUTE,
    ("evaluation", "target"): _ABSOLUTE,
    ("evaluation", "prompts"): _ABSOLUTE,
    ("evaluation", "hidden_states"): {**_ABSOLUTE, "minItems": 1, "uniqueItems": True, "items": _ABSOLUTE},
    ("evaluation", "block_size"): {"anyOf": [{"const": 0}, {"minimum": 2, "maximum": LARGEST_BLOCK}]},
    ("drafter", "config"): _OPTIONAL_PATH,
    ("baseline", "name"): {"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
    ("baseline", "file"): _OPTIONAL_PATH,
    ("baseline", "drafter"): _OPTIONAL_PATH,
    ("baseline", "config"): _OPTIONAL_PATH,
    ("harness", "command"): {"minItems": 1, "prefixItems": [{"type": "string", "minLength": 1}]},
    ("harness", "results"): {**_RESULT, "items": _RESULT},
    ("hosts", "direct"): {"anyOf": [{"const": ""}, {"pattern": f"^({DIRECT})$"}]},
    ("transfer", "mode"): {"enum": list(MODES)},
    ("transfer", "route"): {"enum": list(ROUTES)},
    ("transfer", "limit"): {"anyOf": [{"const": ""}, {"pattern": f"^({RATE_PATTERN})$"}]},
}
"""What one value must be beyond its shape. Each keyword looks at its own kind of value only."""


def json_schema() -> dict[str, Any]:
    """The whole schema."""
    properties: dict[str, Any] = {
        "version": {"description": "the version of this file's format", "const": CONFIG_VERSION}
    }
    for name in TABLES:
        properties[name] = _place(name)
    return {
        "$schema": DIALECT,
        "title": "config.toml of dflash-tui",
        "type": "object",
        "properties": properties,
        "required": list(NEEDED_TABLES),
        "additionalProperties": False,
        "dependentRequired": {"harness": ["evaluation"]},
        "if": {"required": ["baseline"], "properties": {"baseline": {"contains": _told("drafter")}}},
        "then": {"required": ["evaluation"]},
    }


def defaults(table: str) -> Mapping[str, Any]:
    """The value that a key has where the file says nothing, for every key of the table that has one."""
    fields = dataclasses.fields(RECORDS[table]) if table in RECORDS else ()
    return {
        item.name: item.default if item.default is not dataclasses.MISSING else {}
        for item in fields
        if item.name in TABLES[table]
        and (item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING)
    }


def _place(name: str) -> dict[str, Any]:
    """A table as it stands in the file: alone, under names, or repeated."""
    about = {"description": ABOUT[name]}
    if name == "hosts":
        return {
            **about,
            "type": "object",
            "propertyNames": {"minLength": 1, "not": {"const": "local"}},
            "additionalProperties": {**_table(name), "allOf": _beside_each_other()},
        }
    if name == "baseline":
        one = {
            **_table(name),
            "oneOf": [_told("file"), _told("drafter")],
            "if": _told("config"),
            "then": _told("drafter"),
        }
        return {**about, "type": "array", "items": one}
    return {**about, **_table(name)}


def _table(name: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key: _value(name, key, described) for key, described in TABLES[name].items()},
        "required": [key for key, described in TABLES[name].items() if described.needed],
        "additionalProperties": False,
    }


def _value(table: str, key: str, described: Key) -> dict[str, Any]:
    shape, demands = _shape(described.shape), _DEMANDS.get((table, key), {})
    schema = {"description": described.means, **shape, **demands}
    if "items" in demands:
        schema["items"] = {**shape["items"], **demands["items"]}
    if described.shape is NUMBER:
        schema["minimum"] = 0
    default = defaults(table).get(key)
    if default not in (None, "", (), {}):
        schema["default"] = default
    return schema


def _shape(shape: Shape) -> dict[str, Any]:
    if shape.named:
        return {"type": "object", "additionalProperties": _kinds(shape)}
    if not shape.listed:
        return _kinds(shape)
    listed = {"type": "array", "items": _kinds(shape)}
    return {**listed, "type": ["array", *_names(shape)]} if shape.single else listed


def _kinds(shape: Shape) -> dict[str, Any]:
    names = _names(shape)
    return {"type": names[0] if len(names) == 1 else names}


def _names(shape: Shape) -> list[str]:
    return [_TYPES[kind] for kind in shape.kinds if not (kind is int and float in shape.kinds)]


def _beside_each_other() -> list[dict[str, Any]]:
    """What the keys of one host must be to each other."""
    contained = _told("container")
    return [
        {"if": contained, "then": _told("via"), "else": {"not": _told("via")}},
        {
            "if": contained,
            "then": {"not": {"anyOf": [_told("ssh"), _told("jump"), _true("jump_only")]}},
            "else": {"not": _true("attached")},
        },
        {"if": _true("jump_only"), "then": {"not": _told("direct")}},
    ]


def _told(key: str) -> dict[str, Any]:
    """The key is there and says something: an empty text or list counts as silence."""
    return {"required": [key], "properties": {key: {"minLength": 1, "minItems": 1}}}


def _true(key: str) -> dict[str, Any]:
    return {"required": [key], "properties": {key: {"const": True}}}
