"""What the keys of a config must be to each other: hosts that exist, chains that end, paths that are absolute."""

from __future__ import annotations

import difflib
import re

from dflash_tui.config.content import Config, ConfigError, EvaluationConfig, HarnessConfig, HostConfig, TransferConfig
from dflash_tui.config.keys import LARGEST_BLOCK, MODES, ROUTES
from dflash_tui.config.rates import read_rate

DIRECT = r"([^@\s-][^@\s]*@)?(\[[0-9A-Fa-f:.%a-z]+\]|[^@:\s\[\]-][^@:\s\[\]]*)(:[1-9][0-9]{0,4})?"
"""How a host reaches another one: host, user@host, user@host:port, user@[v6]:port."""

_PIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # a baseline is pinned under its name


def check(config: Config) -> None:
    """Raise ConfigError for the first thing that can't be."""
    _check_hosts(config)
    _check_values(config)


def _check_hosts(config: Config) -> None:
    path = config.path
    for key, name, worked in (
        ("training.host", config.training.host, True),
        *((("evaluation.host", config.evaluation.host, True),) if config.evaluation else ()),
        *((f"hosts.{host.name}.via", host.via, True) for host in config.hosts.values() if host.via),
        *((f"hosts.{host.name}.jump", host.jump, False) for host in config.hosts.values() if host.jump),
        *((f"baseline.{item.name}.host", item.host, True) for item in config.baselines if item.host),
    ):
        if name != "local" and name not in config.hosts:
            known = ["local", *config.hosts]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"{path}: {key}: found {name!r}, which no [hosts.{name}] describes; {hint}")
        if worked and name != "local" and config.hosts[name].jump_only:
            raise ConfigError(
                f"{path}: {key}: JUMP_ONLY: found {name!r}, which may be hopped through and nothing else "
                f"(hosts.{name}.jump_only); name another host"
            )
        if not worked and (name == "local" or config.hosts[name].container):
            raise ConfigError(f"{path}: {key}: found {name!r}, expected a host that is reached over SSH")
    for host in config.hosts.values():
        _check_host(path, host)
        _check_chain(config, host)


def _check_host(path: str, host: HostConfig) -> None:
    if not host.name:
        raise ConfigError(f"{path}: hosts: found an empty name, expected [hosts.NAME]")
    if host.name == "local":
        raise ConfigError(f"{path}: hosts.local: the name means this machine; call that host otherwise")
    for key in ("ssh", "jump"):
        if getattr(host, key) and host.container:
            raise ConfigError(
                f"{path}: hosts.{host.name}.{key}: found {getattr(host, key)!r} beside `container`; a container is "
                "reached by its launcher alone"
            )
    if bool(host.container) != bool(host.via):
        raise ConfigError(
            f"{path}: hosts.{host.name}: `container` and `via` go together: the launcher's argv, and the host it runs "
            "on"
        )
    if host.container and host.jump_only:
        raise ConfigError(f"{path}: hosts.{host.name}.jump_only: a container can't be hopped through")
    if host.direct and not re.fullmatch(DIRECT, host.direct):
        raise ConfigError(
            f"{path}: hosts.{host.name}.direct: found {host.direct!r}, expected user@host:port, by which other hosts "
            "reach it over SSH"
        )
    if host.direct and host.jump_only:
        raise ConfigError(f"{path}: hosts.{host.name}.direct: no file goes to a host that is jump_only")
    if host.attached and not host.container:
        raise ConfigError(f"{path}: hosts.{host.name}.attached: only what a `container` launcher starts ends with it")


def _check_chain(config: Config, host: HostConfig) -> None:
    seen = {host.name}
    key, after = ("via", host.via) if host.via else ("jump", host.jump)
    while after and after != "local":
        if after in seen:
            raise ConfigError(f"{config.path}: hosts.{host.name}.{key}: the chain comes back to {after!r}")
        seen.add(after)
        following = config.hosts.get(after)
        after = (following.via or following.jump) if following else ""


def _check_values(config: Config) -> None:
    name = config.training.name
    if "/" in name or name in ("", ".", ".."):
        raise ConfigError(f"{config.path}: training.name: found {name!r}, expected a name that can be a folder's")
    if config.evaluation is not None:
        _check_evaluation(config.path, config.evaluation)
    _check_baselines(config)
    _check_transfer(config.path, config.transfer)
    if config.harness is not None:
        _check_harness(config, config.harness)
    for key in ("log", "checkpoints"):
        _absolute(config.path, f"training.{key}", getattr(config.training, key))
    for key, value in (
        ("training.arguments", config.training.arguments),
        ("drafter.config", config.drafter.get("config", "")),
    ):
        if value:
            _absolute(config.path, key, value)


def _check_evaluation(path: str, evaluation: EvaluationConfig) -> None:
    size = evaluation.block_size
    if size == 1 or size > LARGEST_BLOCK:
        raise ConfigError(
            f"{path}: evaluation.block_size: found {size}, expected 0 (the drafter's own) or 2 to {LARGEST_BLOCK}"
        )
    for key in ("root", "target", "prompts"):
        _absolute(path, f"evaluation.{key}", getattr(evaluation, key))
    folders = evaluation.hidden_states
    if not folders:
        raise ConfigError(f"{path}: evaluation.hidden_states: found an empty list, expected a folder or several")
    for folder in folders:
        _absolute(path, "evaluation.hidden_states", folder)
    if twice := next((folder for folder in folders if folders.count(folder) > 1), None):
        raise ConfigError(f"{path}: evaluation.hidden_states: {twice!r} is named twice")


def _check_baselines(config: Config) -> None:
    path, names = config.path, [item.name for item in config.baselines]
    if (odd := next((name for name in names if not _PIN_NAME.fullmatch(name)), None)) is not None:
        raise ConfigError(
            f"{path}: baseline.name: found {odd!r}, expected up to 64 letters, digits, '.', '_' or '-', a letter or "
            "digit first"
        )
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{path}: baseline: two are called {twice!r}; give each a name of its own")
    for item in config.baselines:
        where = f"{path}: baseline.{item.name}"
        if bool(item.file) == bool(item.drafter):
            found = "both" if item.file else "neither"
            raise ConfigError(f"{where}: found {found} of `file` and `drafter`, expected a result file or a drafter")
        if item.drafter and config.evaluation is None:
            raise ConfigError(f"{where}.drafter: a drafter is evaluated, which takes [evaluation]")
        if item.config and not item.drafter:
            raise ConfigError(f"{where}.config: belongs to a `drafter`; a result file has none")
        for key in ("file", "drafter", "config"):
            if value := getattr(item, key):
                _absolute(path, f"baseline.{item.name}.{key}", value)


def _check_transfer(path: str, transfer: TransferConfig) -> None:
    for key, found, known in (("mode", transfer.mode, MODES), ("route", transfer.route, ROUTES)):
        if found not in known:
            raise ConfigError(f"{path}: transfer.{key}: found {found!r}, expected {' or '.join(map(repr, known))}")
    if transfer.limit:
        try:
            read_rate(transfer.limit)
        except ValueError as error:
            raise ConfigError(f"{path}: transfer.limit: {error}") from None


def _check_harness(config: Config, harness: HarnessConfig) -> None:
    where = f"{config.path}: harness"
    if config.evaluation is None:
        raise ConfigError(f"{where}: your script runs on the evaluation host, which takes [evaluation]")
    if not harness.command or not harness.command[0]:
        raise ConfigError(f"{where}.command: found no program, expected its argv")
    for result in harness.results:
        if not result or ".." in result.split("/"):
            raise ConfigError(
                f"{where}.results: found {result!r}, expected an absolute path or one in the run directory"
            )
    if not harness.progress:
        return
    try:
        groups = re.compile(harness.progress).groupindex
    except re.error as error:
        raise ConfigError(f"{where}.progress: found {harness.progress!r}, no regular expression: {error}") from error
    if missing := {"done", "total"} - set(groups):
        raise ConfigError(
            f"{where}.progress: found no group {' or '.join(sorted(missing))} in {harness.progress!r}, expected "
            r"something like (?P<done>\d+)/(?P<total>\d+)"
        )


def _absolute(path: str, key: str, value: str) -> None:
    if not value.startswith("/"):
        raise ConfigError(f"{path}: {key}: found {value!r}, expected an absolute path on its host")
