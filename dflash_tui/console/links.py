"""The hosts of a config as `Host` objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dflash_tui.config import Config, ConfigError
from dflash_tui.hosts.address import SshAddress, parse_target
from dflash_tui.hosts.asking import Asker, AskingHost
from dflash_tui.hosts.base import Host, HostError
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.gate import GateHost
from dflash_tui.hosts.launchers import parse_prefix
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.ssh import SshHost


def make_hosts(config: Config, asker: Asker | None = None) -> Mapping[str, Host]:
    """Every host that the config names, and "local". Nothing connects yet. `asker` is asked about unknown host keys."""
    hosts: dict[str, Host] = {"local": LocalHost("local")}
    for name in config.hosts:
        _make(config, name, hosts)
    if asker is None:
        return hosts
    # Around containers too, not below them: their time limits shall not run while a person thinks.
    return {name: host if name == "local" else AskingHost(host, asker) for name, host in hosts.items()}


def check_launchers(config: Config) -> None:
    """Raise ConfigError for a container whose launcher prefix can't be used, naming what to take out of it."""
    for name, item in config.hosts.items():
        if item.container:
            try:
                parse_prefix(item.container, f"{config.path}: hosts.{name}.container")
            except HostError as error:
                raise ConfigError(str(error)) from error


def ssh_address(config: Config, name: str) -> SshAddress:
    """How the host `name`, or the one that a container's launcher runs on, is reached over SSH, through the hosts that
    it is behind. Raises HostError for this machine itself."""
    item = config.hosts.get(name)
    if item is None:
        raise HostError(f"{name} is this machine itself; no key stands between")
    if item.container:
        return ssh_address(config, item.via)
    return replace(parse_target(item.ssh or name), jump=ssh_address(config, item.jump) if item.jump else None)


def _make(config: Config, name: str, hosts: dict[str, Host]) -> Host:
    if name in hosts:
        return hosts[name]
    item = config.hosts[name]
    if item.container:
        inner = _make(config, item.via, hosts)
        hosts[name] = ContainerHost(inner, item.container, name, attached=item.attached)
    elif item.jump_only:
        hosts[name] = GateHost(name)
    else:
        hosts[name] = SshHost(name, ssh_address(config, name))
    return hosts[name]
