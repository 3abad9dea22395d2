"""A config as commented TOML: what it says, what else each of its tables could say, and what every key means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dflash_tui.config.content import Config, ConfigError
from dflash_tui.config.keys import ABOUT, CONFIG_VERSION, TABLES, Shape
from dflash_tui.config.schema import defaults

_COMMENT_AT = 44  # column; what is longer has its comment right behind it
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}

_HEAD = (
    "# The config of dflash-tui. `dflash-tui check` tries everything that is named here.",
    "# An editor that knows TOML checks and completes it with: dflash-tui config schema > config.schema.json",
)


def config_text(config: Config) -> str:
    """The file's text; reading it gives an equal config. Raises ConfigError for a name that is not UTF-8."""
    text = "\n".join(_lines(config)) + "\n"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = text[max(0, error.start - 20) : error.end + 20]
        raise ConfigError(f"{config.path}: found {found!r}: a name that is not UTF-8 can't stand in TOML") from None
    return text


def toml_value(value: Any) -> str:
    """A value as TOML: a string, a number, a truth, a list or a table of strings."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_ESCAPES.get(char, char) if _plain(char) else _escape(char) for char in value) + '"'
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(name)} = {toml_value(item)}" for name, item in value.items()) + " }"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    return repr(value)


def toml_key(name: str) -> str:
    """A key as TOML: bare where it may be."""
    return name if _BARE.fullmatch(name) else toml_value(name)


def spoken(table: str, record: Any) -> dict[str, Any]:
    """The values of a table's record that differ from the defaults, and those that are needed, in the keys' order."""
    known = defaults(table)
    return {
        key: getattr(record, key)
        for key, described in TABLES[table].items()
        if described.needed or getattr(record, key) != known.get(key, ...)
    }


def headed(config: Config) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every table that the file has, in its order: its name under TABLES, its heading, its values."""
    yield "training", "[training]", spoken("training", config.training)
    if config.evaluation is not None:
        yield "evaluation", "[evaluation]", spoken("evaluation", config.evaluation)
    for name, host in config.hosts.items():
        yield "hosts", f"[hosts.{toml_key(name)}]", spoken("hosts", host)
    if config.drafter:
        yield "drafter", "[drafter]", dict(config.drafter)
    for baseline in config.baselines:
        yield "baseline", "[[baseline]]", spoken("baseline", baseline)
    if config.harness is not None:
        yield "harness", "[harness]", spoken("harness", config.harness)
    if moving := spoken("transfer", config.transfer):
        yield "transfer", "[transfer]", moving
    if look := spoken("interface", config):
        yield "interface", "[interface]", look


def _lines(config: Config) -> Iterator[str]:
    yield from _HEAD
    yield f"version = {CONFIG_VERSION}"
    explained: set[str] = set()
    for table, heading, values in headed(config):
        yield ""
        yield _commented(heading, ABOUT[table] if table not in explained else "")
        yield from _body(table, values, fully=table not in explained)
        explained.add(table)
    for table in TABLES:
        if table not in explained:
            yield ""
            yield _commented(f"# [[{table}]]" if table == "baseline" else f"# [{_example(table)}]", ABOUT[table])


def _body(table: str, values: Mapping[str, Any], *, fully: bool) -> Iterator[str]:
    """A table's lines; `fully`: with what each key means, and with the keys that it does not use, commented out."""
    for key, described in TABLES[table].items():
        if key in values:
            yield _commented(f"{key} = {_said(described.shape, values[key])}", described.means if fully else "")
    for key, described in TABLES[table].items():
        if key not in values and fully:
            default = defaults(table).get(key)
            shown = f" = {toml_value(default)}" if default not in (None, "", (), {}) else ""
            yield _commented(f"# {key}{shown}", described.means)


def _said(shape: Shape, value: Any) -> str:
    """A value as TOML; a list of one stands alone where its key may be a single value."""
    return toml_value(value[0] if shape.single and len(value) == 1 else value)


def _example(table: str) -> str:
    return "hosts.NAME" if table == "hosts" else table


def _commented(text: str, comment: str) -> str:
    return f"{text:{_COMMENT_AT}}  # {comment}" if comment else text


def _plain(char: str) -> bool:
    return (char >= " " and char != "\x7f") or char in "\n\t"


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}"
