"""The hosts of a config as `Host` objects."""

from __future__ import annotations

from collections.abc import Mapping

from dflash_tui.config import Config
from dflash_tui.hosts.address import parse_target
from dflash_tui.hosts.base import Host
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.ssh import SshHost


def make_hosts(config: Config) -> Mapping[str, Host]:
    """Every host that the config names, and "local". Nothing connects yet."""
    hosts: dict[str, Host] = {"local": LocalHost("local")}
    for name in config.hosts:
        _make(config, name, hosts)
    return hosts


def _make(config: Config, name: str, hosts: dict[str, Host]) -> Host:
    if name in hosts:
        return hosts[name]
    item = config.hosts[name]
    if item.container:
        hosts[name] = ContainerHost(_make(config, item.via, hosts), item.container, name)
    else:
        hosts[name] = SshHost(name, parse_target(item.ssh or name))
    return hosts[name]
