from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from jsonschema import Draft202012Validator

from dflash_tui.config import Config, ConfigError, parse_config
from dflash_tui.config.keys import TABLES
from dflash_tui.config.schema import json_schema
from dflash_tui.config.writing import config_text, toml_value
from tests.config.made import configs, near_configs

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SCHEMA = Draft202012Validator(json_schema())

ONLY_READING_TELLS = re.compile(
    r"which no \[hosts\.|JUMP_ONLY|expected a host that is reached over SSH|the chain comes back|two are called"
    r"|no regular expression|found no group"
)
"""What depends on names elsewhere in the file, or on more than a schema can say."""


def refused(data: dict[str, Any]) -> str:
    """Why reading refuses a file with this data; "" when it accepts it."""
    try:
        parse_config(_toml(data), "config.toml")
    except ConfigError as error:
        return str(error)
    return ""


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema())


def test_every_key_has_its_meaning() -> None:
    described = json_schema()["properties"]
    for table, keys in TABLES.items():
        place = described[table]
        place = place.get("items") or (place["additionalProperties"] if table == "hosts" else place)
        assert {key: value["description"] for key, value in place["properties"].items()} == {
            key: value.means for key, value in keys.items()
        }


def test_the_examples_of_the_readme_are_valid() -> None:
    whole, *parts = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    for text in (whole, *(part if "[training]" in part else whole + part for part in parts)):
        parse_config(text, "README.md")
        assert list(SCHEMA.iter_errors(tomllib.loads(text))) == []


@given(configs())
def test_what_is_written_is_valid(config: Config) -> None:
    assert list(SCHEMA.iter_errors(tomllib.loads(config_text(config)))) == []


@settings(max_examples=600)
@given(near_configs())
def test_the_schema_and_reading_agree(data: dict[str, Any]) -> None:
    sentence, valid = refused(data), SCHEMA.is_valid(data)
    if not sentence:
        assert valid, list(SCHEMA.iter_errors(data))
    elif not ONLY_READING_TELLS.search(sentence):
        assert not valid, sentence


def _toml(data: dict[str, Any]) -> str:
    return "".join(f"{toml_value(key)} = {_inline(value)}\n" for key, value in data.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_value(key)} = {_inline(item)}" for key, item in value.items()) + "}"
    return f"[{', '.join(map(_inline, value))}]" if isinstance(value, list) else toml_value(value)
