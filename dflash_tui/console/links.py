"""The hosts of a config as `Host` objects."""

from __future__ import annotations

from collections.abc import Mapping

from dflash_tui.config import Config
from dflash_tui.hosts.address import SshAddress, parse_target
from dflash_tui.hosts.asking import Asker, AskingHost
from dflash_tui.hosts.base import Host, HostError
from dflash_tui.hosts.container import ContainerHost
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


def ssh_address(config: Config, name: str) -> SshAddress:
    """How the host `name`, or the one that a container's launcher runs on, is reached over SSH. Raises HostError for
    this machine itself."""
    item = config.hosts.get(name)
    if item is None:
        raise HostError(f"{name} is this machine itself; no key stands between")
    return ssh_address(config, item.via) if item.container else parse_target(item.ssh or name)


def _make(config: Config, name: str, hosts: dict[str, Host]) -> Host:
    if name in hosts:
        return hosts[name]
    item = config.hosts[name]
    if item.container:
        hosts[name] = ContainerHost(_make(config, item.via, hosts), item.container, name)
    else:
        hosts[name] = SshHost(name, parse_target(item.ssh or name))
    return hosts[name]
