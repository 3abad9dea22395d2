"""Whether each host of a config can be reached, as who, how fast, and with which clock."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping

from dflash_tui.config import Config, HostConfig
from dflash_tui.console.checks.items import Group, Items, Reached, bounded, failed
from dflash_tui.console.console import Console
from dflash_tui.console.links import ssh_address
from dflash_tui.hosts.asking import Asker
from dflash_tui.hosts.base import (
    CommandFailed,
    Host,
    HostError,
    HostKeyChanged,
    HostKeyUnknown,
    LoginRefused,
)
from dflash_tui.hosts.probe import Probe, probe
from dflash_tui.watch.clock import read_clock

GROUP = Group("hosts")
SKEW = 60.0  # seconds between two clocks that make ages misleading
SLOW = 5.0  # seconds to connect that are worth a word
_WORD = "here"  # what a container is asked to say
NO_FILES = "files go by commands instead, which is slower"

Looks = Mapping[str, "asyncio.Task[tuple[Items, Reached]]"]


def begin(console: Console, asker: Asker | None, say: Callable[[str], None]) -> Looks:
    """Look at every host at once; one behind another waits for that. The tasks are the caller's to await or cancel."""
    looks: dict[str, asyncio.Task[tuple[Items, Reached]]] = {}

    def look(name: str) -> asyncio.Task[tuple[Items, Reached]]:
        if name not in looks:
            item = console.config.hosts[name]
            before = item.via or item.jump
            waits = look(before) if before and before != "local" else None
            looks[name] = asyncio.create_task(_host(console, item, asker, waits, say))
        return looks[name]

    for name in console.config.hosts:
        look(name)
    return looks


async def _host(
    console: Console,
    item: HostConfig,
    asker: Asker | None,
    before: asyncio.Task[tuple[Items, Reached]] | None,
    say: Callable[[str], None],
) -> tuple[Items, Reached]:
    if before is not None:
        _, reached = await asyncio.shield(before)
        if reached.cause:
            return [GROUP.skip(item.name, reached.cause)], Reached(item.name, reached.cause)
    say(f"{item.name} …")
    if item.container:
        items = await bounded(GROUP, item.name, lambda: _container(console, item))
    else:
        items = await _ssh(console.config, item, asker)
    if failed(items, item.name, f"{item.name} host key", f"{item.name} login"):
        return items, Reached(item.name, f"{item.name} can't be reached")
    if item.jump_only:
        return items, Reached(item.name)
    host = console.host(item.name)
    if not item.container:
        shell = await bounded(GROUP, f"{item.name} shell", lambda: _shell(host), 30)
        if shell:
            return [*items, *shell], Reached(item.name, f"{item.name} does not run commands as they are")
    clock = await bounded(GROUP, f"{item.name} clock", lambda: _clock(host), 30)
    if clock and clock[0].state == "fail":  # it lets us in and runs nothing
        return [*items, *clock], Reached(item.name, f"{item.name} runs no commands")
    return [*items, *clock], Reached(item.name)


async def _ssh(config: Config, item: HostConfig, asker: Asker | None) -> Items:
    name = item.name
    try:
        found = await _probed(name, config, asker)
    except (HostKeyUnknown, HostKeyChanged) as error:
        return [GROUP.fail(f"{name} host key", str(error))]
    except LoginRefused as error:
        return [GROUP.fail(f"{name} login", str(error))]
    except HostError as error:
        return [GROUP.fail(name, str(error))]
    way = f" by way of {' and '.join(found.jumps)}" if found.jumps else ""
    sentence = f"{found.user}@{found.address}{way} in {found.seconds:.2f} s; {found.server}, host key {found.key} known"
    items = [GROUP.warn(name, f"{sentence}; slow to connect") if found.seconds > SLOW else GROUP.ok(name, sentence)]
    if not found.sftp and not item.jump_only:
        items.append(GROUP.warn(f"{name} files", f"{name} offers no SFTP; {NO_FILES}"))
    return items


async def _probed(name: str, config: Config, asker: Asker | None) -> Probe:
    """A connection; unknown keys on the way are asked about where there is somebody to ask."""
    seen: set[str] = set()
    while True:
        try:
            return await probe(name, ssh_address(config, name), jump_only=config.hosts[name].jump_only)
        except HostKeyUnknown as error:
            line = error.offer.line
            if asker is None or line in seen or not await asker.accepted(error.offer):
                raise
            seen.add(line)


async def _container(console: Console, item: HostConfig) -> Items:
    outside, program = console.host(item.via), item.container[0]
    found = await outside.run(["sh", "-c", 'command -v "$1"', "dflash", program], check=False, timeout=30)
    if found.status != 0:
        return [
            GROUP.fail(
                item.name,
                f"{outside.name} has no program {program!r}; expected the launcher of hosts.{item.name}.container "
                f"(`{shlex.join(item.container)}`): install it there, or give its full path",
            )
        ]
    host = console.host(item.name)
    try:
        await host.run(["true"], timeout=30)
    except CommandFailed as error:
        said = [line for line in error.stderr.splitlines() if line.strip()]
        return [
            GROUP.fail(
                item.name,
                f"`{shlex.join(item.container)} true` on {outside.name} ended with status {error.status}: "
                f"{said[-1] if said else 'it said nothing'}; expected 0 from hosts.{item.name}.container",
            )
        ]
    except HostError as error:
        return [GROUP.fail(item.name, str(error))]
    echoed = (await host.run(["sh", "-c", 'echo "$1"', "dflash", _WORD], check=False, timeout=30)).text
    if echoed != f"{_WORD}\n":
        return [
            GROUP.fail(
                item.name,
                f"`{shlex.join(item.container)}` on {outside.name} does not start a command as it is: `echo {_WORD}` "
                f"printed {echoed[:80]!r}; expected hosts.{item.name}.container to end before the command, without a "
                "shell such as `sh -c` of its own, and to print nothing",
            )
        ]
    return [GROUP.ok(item.name, f"runs on {outside.name}: `{shlex.join(item.container)}`")]


async def _shell(host: Host) -> Items:
    """What is wrong with the login shell: what it prints itself stands before every file that is read. One that runs
    nothing at all is no matter of this."""
    try:
        done = await host.run(["true"], check=False, timeout=30)
    except HostError:
        return []
    if done.status != 0 or not done.stdout:
        return []
    said = " ".join(done.text.split())[:80]
    return [
        GROUP.fail(
            f"{host.name} shell",
            f"the login shell of {host.name} prints `{said}` before each command's own output, expected nothing: let "
            "its ~/.bashrc (or the like) print only where somebody reads, after `case $- in *i*) ;; *) return ;; esac`",
        )
    ]


async def _clock(host: Host) -> Items:
    clock = await read_clock(host)
    name = f"{host.name} clock"
    if not clock.known:
        return [GROUP.warn(name, f"{host.name} does not tell its time (`date +%s`); ages of its files may be wrong")]
    if abs(clock.ahead) > SKEW + clock.uncertain:
        way = "ahead of" if clock.ahead > 0 else "behind"
        return [
            GROUP.warn(
                name,
                f"the clock of {host.name} is {abs(clock.ahead):.0f} s {way} this machine's, expected under {SKEW:.0f} "
                "s; ages are corrected by it, stamps in records are not: set the time on one of them (chrony, ntp)",
            )
        ]
    return [GROUP.ok(name, f"within {max(1.0, abs(clock.ahead)):.0f} s of this machine's")]
