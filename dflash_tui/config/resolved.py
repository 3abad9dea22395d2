"""What a config amounts to: every value that counts, and which of them the file does not say itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dflash_tui.config.content import BaselineConfig, Config, HostConfig
from dflash_tui.config.keys import TABLES

HIDDEN = "(set)"
"""What stands for the value of an environment variable: it may be a secret."""


@dataclass(frozen=True)
class Resolved:
    """`tables` as the file would have them (hosts by name, baselines in a list); `defaults` are the dotted keys of what
    the file leaves out. What says nothing (an empty text, no launcher) is in neither, unless the file has it."""

    tables: dict[str, Any]
    defaults: tuple[str, ...]


def resolve(config: Config, written: Mapping[str, Any]) -> Resolved:
    """The values of a config; `written` is the file's own data."""
    tables: dict[str, Any] = {}
    found: list[str] = []

    def place(table: str, record: Any, said: Mapping[str, Any], dotted: str, **filled: Any) -> dict[str, Any]:
        values = dict(_values(table, record, said, filled))
        found.extend(f"{dotted}.{key}" for key in values if key not in said)
        return values

    tables["training"] = place("training", config.training, written["training"], "training")
    if config.evaluation is not None:
        tables["evaluation"] = place("evaluation", config.evaluation, written["evaluation"], "evaluation")
    tables["hosts"] = {
        name: place("hosts", host, written["hosts"][name], f"hosts.{name}", ssh=_target(host))
        for name, host in config.hosts.items()
    }
    tables["drafter"] = dict(config.drafter)
    tables["baseline"] = [
        place("baseline", item, said, f"baseline.{item.name}", host=_place_of(config, item))
        for item, said in zip(config.baselines, written.get("baseline", ()), strict=True)
    ]
    if config.harness is not None:
        tables["harness"] = place("harness", _hidden(config), written["harness"], "harness")
    tables["transfer"] = place("transfer", config.transfer, written.get("transfer", {}), "transfer")
    tables["interface"] = place("interface", config, written.get("interface", {}), "interface")
    return Resolved({name: table for name, table in tables.items() if table}, tuple(found))


def _values(table: str, record: Any, said: Mapping[str, Any], filled: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in TABLES[table]:
        value = getattr(record, key)
        value = filled.get(key, value) if value in ("", ()) else value
        if key in said or value not in ("", (), {}):
            yield key, list(value) if isinstance(value, tuple) else value


def _target(host: HostConfig) -> str:
    """A host that names neither a target nor a launcher is reached by its own name."""
    return "" if host.container else host.name


def _place_of(config: Config, item: BaselineConfig) -> str:
    return "local" if item.file or config.evaluation is None else config.evaluation.host


def _hidden(config: Config) -> Any:
    assert config.harness is not None
    return dataclasses.replace(config.harness, environment=dict.fromkeys(config.harness.environment, HIDDEN))
