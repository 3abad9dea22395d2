"""``config.toml``: one versioned file that says what is watched, where it is evaluated, and how hosts are reached."""

from __future__ import annotations

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
from dflash_tui.config.keys import CONFIG_VERSION
from dflash_tui.config.reading import load_config, parse_config

__all__ = [
    "CONFIG_VERSION",
    "BaselineConfig",
    "Config",
    "ConfigError",
    "EvaluationConfig",
    "HarnessConfig",
    "HostConfig",
    "TrainingConfig",
    "TransferConfig",
    "load_config",
    "parse_config",
]
