"""``config.toml``: which training is watched, where evaluation happens, how hosts are reached."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONFIG_VERSION = 1
_PIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # a baseline is pinned under its name
LARGEST_BLOCK = 256  # tokens, anchor included


class ConfigError(Exception):
    """A config that can't be used; the sentence names the file, the key, what was found and what was expected."""


@dataclass(frozen=True)
class HostConfig:
    """How a host is reached: over `ssh` (an alias of ~/.ssh/config, or user@host:port), or as a container whose
    launcher (`container`, an argv prefix such as ``pct exec 200 --``) runs on the host named `via`. Neither: over SSH,
    by its own name. This machine is always called "local"."""

    name: str
    ssh: str = ""
    via: str = ""
    container: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingConfig:
    """The watched training: `log` and `checkpoints` (and optionally the trainer's arguments, JSON) on `host`."""

    name: str
    host: str
    log: str
    checkpoints: str
    arguments: str = ""


@dataclass(frozen=True)
class EvaluationConfig:
    """Where evaluation happens. `root` receives runs/, checkpoints/ and the harness; `block_size` 0 = the drafter's
    own; `threads` 0 = every core but one."""

    host: str
    root: str
    target: str
    prompts: str
    hidden_states: str
    python: str = "python3"
    block_size: int = 0
    threads: int = 0


@dataclass(frozen=True)
class BaselineConfig:
    """A baseline by name: a result file (`file`) on `host` ("" = this workstation)."""

    name: str
    file: str
    host: str = ""


@dataclass(frozen=True)
class Config:
    """The whole file. `evaluation` is None for a console that only watches. `drafter` holds what raw weights can't
    tell: `config` (a JSON path on the evaluation host) and single fields by their canonical names."""

    path: str
    training: TrainingConfig
    evaluation: EvaluationConfig | None
    hosts: Mapping[str, HostConfig]
    drafter: Mapping[str, Any] = field(default_factory=dict)
    baselines: tuple[BaselineConfig, ...] = ()
    theme: str = "harbour"


@dataclass(frozen=True)
class _Shape:
    """What a value may be: one of `kinds` (a bool is no number), or a list of them. `said` is that in words."""

    kinds: tuple[type, ...]
    said: str
    listed: bool = False

    def fits(self, value: Any) -> bool:
        """Whether a value has this shape."""
        if self.listed:
            return isinstance(value, list) and all(type(item) in self.kinds for item in value)
        return type(value) in self.kinds


_TEXT = _Shape((str,), "a string")
_NUMBER = _Shape((int,), "a whole number")
_REAL = _Shape((int, float), "a number")
_TRUTH = _Shape((bool,), "true or false")
_WORDS = _Shape((str,), "a list of strings", listed=True)
_NUMBERS = _Shape((int,), "a list of whole numbers", listed=True)

_SHAPES: dict[str, dict[str, tuple[_Shape, bool]]] = {
    "training": {
        "name": (_TEXT, False),
        "host": (_TEXT, True),
        "log": (_TEXT, True),
        "checkpoints": (_TEXT, True),
        "arguments": (_TEXT, False),
    },
    "evaluation": {
        "host": (_TEXT, True),
        "root": (_TEXT, True),
        "target": (_TEXT, True),
        "prompts": (_TEXT, True),
        "hidden_states": (_TEXT, True),
        "python": (_TEXT, False),
        "block_size": (_NUMBER, False),
        "threads": (_NUMBER, False),
    },
    "hosts": {"ssh": (_TEXT, False), "via": (_TEXT, False), "container": (_WORDS, False)},
    "baseline": {"name": (_TEXT, True), "file": (_TEXT, True), "host": (_TEXT, False)},
    "interface": {"theme": (_TEXT, False)},
    "drafter": {
        "config": (_TEXT, False),
        "block_size": (_NUMBER, False),
        "mask_token_id": (_NUMBER, False),
        "taps": (_NUMBERS, False),
        "rope_theta": (_REAL, False),
        "rms_norm_eps": (_REAL, False),
        "layer_types": (_WORDS, False),
        "sliding_window": (_NUMBER, False),
        "is_causal": (_TRUTH, False),
        "num_attention_heads": (_NUMBER, False),
        "sample_from_anchor": (_TRUTH, False),
    },
}
_TOP = ("version", "training", "evaluation", "hosts", "drafter", "baseline", "interface")


def load_config(path: Path) -> Config:
    """Read and check a config file. Raises ConfigError, also when the file is missing."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; write one as the README shows, or try everything first with: dflash-tui demo"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read ({error})") from error
    return parse_config(text, str(path))


def parse_config(text: str, path: str) -> Config:
    """A config from its TOML text; `path` is for the sentences of ConfigError."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    _known(path, "", data, _TOP)
    version = data.get("version", CONFIG_VERSION)
    if version != CONFIG_VERSION:
        raise ConfigError(f"{path}: version: found {version!r}, this dflash-tui knows {CONFIG_VERSION}")
    training = _table(path, data, "training")
    evaluation = _table(path, data, "evaluation") if "evaluation" in data else None
    hosts = _hosts(path, data.get("hosts", {}))
    drafter = _checked(path, "drafter.", data.get("drafter", {}), _SHAPES["drafter"])
    baselines = data.get("baseline", [])
    if not isinstance(baselines, list):
        raise ConfigError(f"{path}: baseline: found a single value, expected [[baseline]] tables")
    config = Config(
        path=path,
        training=TrainingConfig(**{"name": _training_name(training), **training}),
        evaluation=EvaluationConfig(**evaluation) if evaluation is not None else None,
        hosts=hosts,
        drafter=drafter,
        baselines=tuple(
            BaselineConfig(**_checked(path, f"baseline[{i}].", item, _SHAPES["baseline"]))
            for i, item in enumerate(baselines)
        ),
        **_checked(path, "interface.", data.get("interface", {}), _SHAPES["interface"]),
    )
    _check_hosts(config)
    _check_values(config)
    return config


def _training_name(training: Mapping[str, Any]) -> str:
    """A training without a name is called after the folder that holds its checkpoints' folder."""
    parts = [part for part in str(training["checkpoints"]).split("/") if part]
    return parts[-2] if len(parts) > 1 else [*parts, "training"][0]


def _hosts(path: str, data: Any) -> dict[str, HostConfig]:
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: hosts: found {data!r}, expected tables [hosts.NAME]")
    hosts = {}
    for name, item in data.items():
        values = _checked(path, f"hosts.{name}.", item, _SHAPES["hosts"])
        values["container"] = tuple(values.get("container", ()))
        hosts[name] = HostConfig(name=name, **values)
    return hosts


def _check_hosts(config: Config) -> None:
    for key, name in (
        ("training.host", config.training.host),
        *((("evaluation.host", config.evaluation.host),) if config.evaluation else ()),
        *((f"hosts.{host.name}.via", host.via) for host in config.hosts.values() if host.via),
        *((f"baseline.{item.name}.host", item.host) for item in config.baselines if item.host),
    ):
        if name != "local" and name not in config.hosts:
            known = ", ".join(["local", *config.hosts])
            raise ConfigError(
                f"{config.path}: {key}: found {name!r}, which no [hosts.{name}] describes; known: {known}"
            )
    for host in config.hosts.values():
        if host.name == "local":
            raise ConfigError(f"{config.path}: hosts.local: the name means this machine; call that host otherwise")
        if host.ssh and host.container:
            raise ConfigError(
                f"{config.path}: hosts.{host.name}.ssh: found {host.ssh!r} beside `container`; a container is reached "
                "by its launcher alone"
            )
        if bool(host.container) != bool(host.via):
            raise ConfigError(
                f"{config.path}: hosts.{host.name}: `container` and `via` go together: the launcher's argv, and the "
                "host it runs on"
            )
        _check_chain(config, host)


def _check_values(config: Config) -> None:
    name = config.training.name
    if "/" in name or name in ("", ".", ".."):
        raise ConfigError(f"{config.path}: training.name: found {name!r}, expected a name that can be a folder's")
    if config.evaluation is not None:
        _check_evaluation(config.path, config.evaluation)
    names = [item.name for item in config.baselines]
    if odd := next((name for name in names if not _PIN_NAME.fullmatch(name)), None):
        raise ConfigError(
            f"{config.path}: baseline.name: found {odd!r}, expected up to 64 letters, digits, '.', '_' or '-', a "
            "letter or digit first"
        )
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{config.path}: baseline: two are called {twice!r}; give each a name of its own")
    for key in ("log", "checkpoints"):
        _absolute(config.path, f"training.{key}", getattr(config.training, key))
    for key, value in (
        ("training.arguments", config.training.arguments),
        ("drafter.config", config.drafter.get("config", "")),
        *((f"baseline.{item.name}.file", item.file) for item in config.baselines),
    ):
        if value:
            _absolute(config.path, key, value)


def _check_evaluation(path: str, evaluation: EvaluationConfig) -> None:
    size = evaluation.block_size
    if size == 1 or size > LARGEST_BLOCK:
        raise ConfigError(
            f"{path}: evaluation.block_size: found {size}, expected 0 (the drafter's own) or 2 to {LARGEST_BLOCK}"
        )
    for key in ("root", "target", "prompts", "hidden_states"):
        _absolute(path, f"evaluation.{key}", getattr(evaluation, key))


def _check_chain(config: Config, host: HostConfig) -> None:
    seen = {host.name}
    via = host.via
    while via and via != "local":
        if via in seen:
            raise ConfigError(f"{config.path}: hosts.{host.name}.via: the chain comes back to {via!r}")
        seen.add(via)
        via = config.hosts[via].via if via in config.hosts else ""


def _absolute(path: str, key: str, value: str) -> None:
    if not value.startswith("/"):
        raise ConfigError(f"{path}: {key}: found {value!r}, expected an absolute path on its host")


def _table(path: str, data: Mapping[str, Any], name: str) -> dict[str, Any]:
    if name not in data:
        raise ConfigError(f"{path}: [{name}] is missing; the README shows a whole config")
    return _checked(path, f"{name}.", data[name], _SHAPES[name])


def _checked(path: str, prefix: str, data: Any, shape: Mapping[str, tuple[_Shape, bool]]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: {prefix.rstrip('.')}: found {data!r}, expected a table")
    _known(path, prefix, data, tuple(shape))
    for key, (kind, needed) in shape.items():
        if key not in data:
            if needed:
                raise ConfigError(f"{path}: {prefix}{key} is missing")
            continue
        value = data[key]
        if not kind.fits(value):
            raise ConfigError(f"{path}: {prefix}{key}: found {value!r}, expected {kind.said}")
        if kind is _NUMBER and value < 0:
            raise ConfigError(f"{path}: {prefix}{key}: found {value}, expected 0 or more")
    return dict(data)


def _known(path: str, prefix: str, data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            raise ConfigError(f"{path}: {prefix}{key}: unknown key{hint}")
