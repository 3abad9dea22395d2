"""The hosts that `init` has been told of so far: named, described for the config, opened to look at them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from dflash_tui.config import Config, ConfigError, HostConfig, TrainingConfig
from dflash_tui.console.acts.init_source import Source
from dflash_tui.console.discovery.containers import Container, list_containers
from dflash_tui.console.errors import ConsoleError
from dflash_tui.console.links import make_hosts
from dflash_tui.hosts.address import parse_target
from dflash_tui.hosts.asking import Ask, Asker
from dflash_tui.hosts.base import Host, HostError, HostKeyUnknown
from dflash_tui.hosts.launchers import parse_prefix

T = TypeVar("T")

LOCAL = "local"


class InitHosts:
    """`known` is what goes under [hosts]. `ask` is shown unknown host keys (None: they are refused). `aliases` mean the
    hosts that ssh knows by them: no container is called so, unless a person does."""

    def __init__(
        self, source: Source, ask: Ask | None, told: Callable[[str], None], aliases: Sequence[str] = ()
    ) -> None:
        self.known: dict[str, HostConfig] = {}
        self._source, self._told, self._aliases = source, told, frozenset(aliases)
        self._asker = Asker(ask) if ask is not None else None
        self._opened: dict[tuple[HostConfig | None, ...], Host] = {}
        self._made: list[Host] = []
        self._looked: dict[tuple[object, ...], Any] = {}

    def machine(self, target: str, flag: str) -> str:
        """The name of a host that is reached over SSH, or of this machine. Raises ConfigError."""
        if target == LOCAL or target in self.known:
            return target
        if trouble := wrong_host(target):
            raise ConfigError(f"{flag}: {trouble}")
        if same := next((name for name, host in self.known.items() if host.ssh == target), ""):
            return same
        name = self._free_name(parse_target(target).host)
        self.known[name] = HostConfig(name, ssh=target)
        return name

    def container(self, name: str, via: str, prefix: tuple[str, ...], flag: str, *, named: str = "") -> str:
        """The name of a container on a host that is known already: `named` by a person, else like `name`. Raises
        ConfigError for a launcher that can't be used."""
        name = self._free_name(named) if named else self._free_name(name, self._aliases)
        try:
            attached = not parse_prefix(prefix, name).detaches
        except HostError as error:
            raise ConfigError(f"{flag}: {error}") from error
        self.known[name] = HostConfig(name, via=via, container=prefix, attached=attached)
        return name

    async def containers(self, via: str, *, must: bool = False) -> tuple[Container, ...]:
        """What is listed on a host."""
        nothing: tuple[Container, ...] = ()
        return await self.look(via, "for containers", list_containers, nothing, must=must)

    async def look(
        self, name: str, what: str, find: Callable[[Host], Coroutine[Any, Any, T]], nothing: T, *, must: bool = False
    ) -> T:
        """Look at a host; `what` for is told, where it takes a while. One that can't be looked at raises HostError, or
        is told and shows nothing, as the source of answers has it; `must`: the answer depends on it. Raises
        ConsoleError for a key that nobody accepted. What took a while is not looked for twice."""
        seen = (*self._way(name), what)
        if what and seen in self._looked and not must:
            found: T = self._looked[seen]
            return found
        if what:
            self._told(f"looking on {name} {what} …")
        try:
            self._looked[seen] = found = await find(self._open(name))
            return found
        except HostKeyUnknown as error:
            # There is no config yet, so `dflash-tui trust` knows no host of this name.
            offer = error.offer
            raise ConsoleError(
                f"{offer.shown} ({offer.address}) is not known yet; it shows the {offer.key_type} key "
                f"{offer.fingerprint}. Run init on a terminal, where it can be compared and accepted, or log in with "
                "ssh once"
            ) from error
        except HostError as error:
            if must or not self._source.forgives:
                raise
            self._told(f"{name} can't be looked at, so nothing is offered: {error}")
            self._looked[seen] = nothing
            return nothing

    def forget(self) -> None:
        """The hosts are told anew; what was opened and found is kept."""
        self.known = {}

    async def close(self) -> None:
        """Close every connection, and take back questions."""
        if self._asker is not None:
            await self._asker.close()
        for host in self._made:
            with suppress(HostError):
                await host.close()

    def _open(self, name: str) -> Host:
        way = self._way(name)
        if way not in self._opened:
            nowhere = TrainingConfig(name="", host=LOCAL, log="", checkpoints="")
            made = make_hosts(Config("", nowhere, None, self.known), self._asker)
            self._made += made.values()
            for each, host in made.items():
                self._opened.setdefault(self._way(each), host)
        return self._opened[way]

    def _way(self, name: str) -> tuple[HostConfig | None, ...]:
        """A host and what it is reached through: what it is, whatever is called so later."""
        own = self.known.get(name)
        return (own,) if own is None or not own.via else (own, *self._way(own.via))

    def _free_name(self, wanted: str, aliases: Collection[str] = ()) -> str:
        """A name that no host has: "root@pve1.example.org" is called pve1."""
        short = wanted if re.fullmatch(r"[\d.]+|.*:.*", wanted) else wanted.split(".")[0]
        taken = {LOCAL, *self.known, *aliases}
        return next(name for at in range(1, 1000) if (name := short if at == 1 else f"{short}-{at}") not in taken)


def wrong_host(target: str) -> str:
    """What is wrong with a host as a person names it; "" when nothing is."""
    if target == LOCAL:
        return ""
    try:
        parse_target(target)
    except HostError as error:
        return str(error)
    return ""


def launcher_of(text: str, flag: str) -> tuple[str, ...]:
    """The words of a launcher from one text. Raises ConfigError."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"{flag}: found {text!r}: {error}") from error


def container_name(prefix: tuple[str, ...]) -> str:
    """A name for the container that a launcher leads to: its last word that is no option; ct200 for a number of pct."""
    words = [word for word in prefix if not word.startswith("-")]
    last = words[-1] if words else "container"
    if prefix[0].rsplit("/", 1)[-1] == "srun":
        return next((f"job{word.partition('=')[2]}" for word in prefix if word.startswith("--jobid=")), "job")
    return f"ct{last}" if last.isdecimal() else last.rsplit("/", 1)[-1]
