"""``config.toml`` from text to `Config`: which training is watched, where evaluation happens, how hosts are reached."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash_tui.config.checks import check
from dflash_tui.config.content import (
    BaselineConfig,
    Config,
    ConfigError,
    EvaluationConfig,
    HarnessConfig,
    HostConfig,
    TrainingConfig,
    TransferConfig,
)
from dflash_tui.config.keys import CONFIG_VERSION, NUMBER, TABLES, TOP, Key


def load_config(path: Path) -> Config:
    """Read and check a config file. Raises ConfigError, also when the file is missing."""
    return parse_config(read_config(path), str(path))


def read_config(path: Path) -> str:
    """A config file's text. Raises ConfigError, also when the file is missing."""
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors put a byte order mark first
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; write one with: dflash-tui init (or try everything first with: dflash-tui demo)"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read ({error})") from error


def parse_config(text: str, path: str) -> Config:
    """A config from its TOML text; `path` is for the sentences of ConfigError."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    _known(path, "", data, TOP)
    version = data.get("version", CONFIG_VERSION)
    if type(version) is not int or version != CONFIG_VERSION:
        raise ConfigError(f"{path}: version: found {version!r}, this dflash-tui knows {CONFIG_VERSION}")
    training = _table(path, data, "training")
    evaluation = _table(path, data, "evaluation") if "evaluation" in data else None
    harness = _table(path, data, "harness") if "harness" in data else None
    baselines = data.get("baseline", [])
    if not isinstance(baselines, list):
        raise ConfigError(f"{path}: baseline: found a single value, expected [[baseline]] tables")
    config = Config(
        path=path,
        training=TrainingConfig(**{"name": training_name(training["checkpoints"]), **training}),
        evaluation=EvaluationConfig(**_listed(evaluation, "hidden_states")) if evaluation is not None else None,
        hosts=_hosts(path, data.get("hosts", {})),
        drafter=_checked(path, "drafter.", data.get("drafter", {}), TABLES["drafter"]),
        baselines=tuple(
            BaselineConfig(**_checked(path, f"baseline[{i}].", item, TABLES["baseline"]))
            for i, item in enumerate(baselines)
        ),
        harness=HarnessConfig(**_listed(harness, "command", "results")) if harness is not None else None,
        transfer=TransferConfig(**_checked(path, "transfer.", data.get("transfer", {}), TABLES["transfer"])),
        **_checked(path, "interface.", data.get("interface", {}), TABLES["interface"]),
    )
    check(config)
    return config


def training_name(checkpoints: str) -> str:
    """A training without a name is called after the folder that holds its checkpoints' folder."""
    parts = [part for part in checkpoints.split("/") if part]
    return parts[-2] if len(parts) > 1 else [*parts, "training"][0]


def _listed(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The same values; those of `keys` are tuples, also where one was written without its list."""
    found = dict(values)
    for key in keys:
        if key in found:
            found[key] = tuple(found[key]) if isinstance(found[key], list) else (found[key],)
    return found


def _hosts(path: str, data: Any) -> dict[str, HostConfig]:
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: hosts: found {data!r}, expected tables [hosts.NAME]")
    return {
        name: HostConfig(name=name, **_listed(_checked(path, f"hosts.{name}.", item, TABLES["hosts"]), "container"))
        for name, item in data.items()
    }


def _table(path: str, data: Mapping[str, Any], name: str) -> dict[str, Any]:
    if name not in data:
        raise ConfigError(f"{path}: [{name}] is missing; the README shows a whole config")
    return _checked(path, f"{name}.", data[name], TABLES[name])


def _checked(path: str, prefix: str, data: Any, keys: Mapping[str, Key]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: {prefix.rstrip('.')}: found {data!r}, expected a table")
    _known(path, prefix, data, tuple(keys))
    for key, described in keys.items():
        if key not in data:
            if described.needed:
                raise ConfigError(f"{path}: {prefix}{key} is missing")
            continue
        value = data[key]
        if not described.shape.fits(value):
            raise ConfigError(f"{path}: {prefix}{key}: found {value!r}, expected {described.shape.said}")
        if described.shape is NUMBER and value < 0:
            raise ConfigError(f"{path}: {prefix}{key}: found {value}, expected 0 or more")
    return dict(data)


def _known(path: str, prefix: str, data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            raise ConfigError(f"{path}: {prefix}{key}: unknown key{hint}")
