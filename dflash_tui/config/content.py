"""What a config says, once it is read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dflash_tui.config.rates import read_rate


class ConfigError(Exception):
    """A config that can't be used; the sentence names the file, the key, what was found and what was expected."""


@dataclass(frozen=True)
class HostConfig:
    """How a host is reached: over `ssh` (an alias of ~/.ssh/config, or user@host:port), or as a container whose
    launcher (`container`, an argv prefix such as ``pct exec 200 --``) runs on the host named `via`. Neither: over SSH,
    by its own name. This machine is always called "local".

    `jump` names another host of the config that the connection goes through; a `jump_only` host is hopped through and
    nothing else. `attached`: what is started there ends with its launcher, so an evaluation is held open. `direct` is
    how other hosts reach it over SSH themselves (user@host:port), "" where they can't.
    """

    name: str
    ssh: str = ""
    via: str = ""
    container: tuple[str, ...] = ()
    jump: str = ""
    jump_only: bool = False
    attached: bool = False
    direct: str = ""


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
    """Where evaluation happens. `root` receives runs/, checkpoints/ and the harness; `hidden_states` are folders, the
    first receives what is captured when none holds anything yet; `block_size` 0 = the drafter's own; `threads` 0 =
    every core but one."""

    host: str
    root: str
    target: str
    prompts: str
    hidden_states: tuple[str, ...]
    python: str = "python3"
    block_size: int = 0
    threads: int = 0


@dataclass(frozen=True)
class TransferConfig:
    """How checkpoints are moved. `mode`: "slim" leaves behind what an evaluation does not read, "full" moves files as
    they are. `route`: "relay" goes through this machine, "direct" from host to host, "auto" whichever is faster.
    `limit` is a rate as people write it, "" for none."""

    mode: str = "slim"
    route: str = "relay"
    limit: str = ""

    @property
    def bytes_per_second(self) -> float | None:
        """The limit, None without one."""
        return read_rate(self.limit) if self.limit else None


@dataclass(frozen=True)
class HarnessConfig:
    """The user's own evaluation script: `command` is argv with placeholders; `results` are the paths (absolute, or
    relative to the run directory) where it writes, `progress` a regular expression with the groups `done` and `total`,
    `import_as` the importer that reads the results ("" = recognised), `environment` is added to the host's."""

    command: tuple[str, ...]
    results: tuple[str, ...] = ()
    progress: str = ""
    import_as: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BaselineConfig:
    """A baseline by name: either a result file (`file`) on `host` ("" = this workstation), or a `drafter` (folder or
    weights file) on `host` ("" = the evaluation host) that is evaluated beside each checkpoint. `config` is that
    drafter's JSON where none lies beside it, on the evaluation host."""

    name: str
    file: str = ""
    drafter: str = ""
    host: str = ""
    config: str = ""


@dataclass(frozen=True)
class Config:
    """The whole file. `evaluation` is None for a console that only watches, `harness` without a script of the user's
    own. `drafter` holds what raw weights can't tell: `config` (a JSON path on the evaluation host) and single fields by
    their canonical names."""

    path: str
    training: TrainingConfig
    evaluation: EvaluationConfig | None
    hosts: Mapping[str, HostConfig]
    drafter: Mapping[str, Any] = field(default_factory=dict)
    baselines: tuple[BaselineConfig, ...] = ()
    harness: HarnessConfig | None = None
    transfer: TransferConfig = TransferConfig()
    theme: str = "harbour"
