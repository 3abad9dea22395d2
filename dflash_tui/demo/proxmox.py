"""`pct`, the container command of a Proxmox host, as far as someone who only reads and runs things needs it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dflash_tui.demo.commands import NOT_FOUND, Call, Command, Side, run

_DIED = 255
"""Status of a `die` without an errno, as Perl gives it."""


@dataclass
class Container:
    """A container of the host: what is inside, and whether it runs."""

    vmid: int
    side: Side
    running: bool = True


def pct(node: str, containers: Sequence[Container]) -> Command:
    """The command for a node with these containers."""
    by_id = {container.vmid: container for container in containers}

    async def command(call: Call) -> int:
        words = call.argv[1:]
        if not words or words[0] not in (*_ACTIONS, "list"):
            what = f"unknown command 'pct {words[0]}'" if words else "no command specified"
            await call.stderr.write(f"ERROR: {what}\n{_USAGE}".encode())
            return _DIED
        if words[0] == "list":
            return await _list(call, by_id)
        if len(words) < 2 or not words[1].isdecimal():
            got = f"vmid: type check ('integer') failed - got '{words[1]}'" if len(words) > 1 else "vmid: not given"
            await call.stderr.write(f"400 Parameter verification failed.\n{got}\n{_USAGE}".encode())
            return _DIED
        container = by_id.get(int(words[1]))
        if container is None:
            lost = f"Configuration file 'nodes/{node}/lxc/{words[1]}.conf' does not exist\n"
            await call.stderr.write(lost.encode())
            return errno.ENOENT
        return await _ACTIONS[words[0]](call, container, words[2:])

    return command


async def _list(call: Call, containers: Mapping[int, Container]) -> int:
    rows = [("VMID", "Status", "Lock", "Name")] if containers else []
    rows += [(str(vmid), _state(container), "", container.side.name) for vmid, container in sorted(containers.items())]
    text = "".join(f"{vmid:<10} {state:<10} {lock:<12} {name:<20}\n" for vmid, state, lock, name in rows)
    await call.stdout.write(text.encode())
    return 0


async def _status(call: Call, container: Container, words: Sequence[str]) -> int:
    text = f"status: {_state(container)}\n"
    if "--verbose" in words or "-verbose" in words:
        text = f"name: {container.side.name}\n{text}type: lxc\nvmid: {container.vmid}\n"
    await call.stdout.write(text.encode())
    return 0


async def _config(call: Call, container: Container, words: Sequence[str]) -> int:
    lines = ("arch: amd64", "cores: 1", f"hostname: {container.side.name}", "ostype: debian", "unprivileged: 1")
    await call.stdout.write("".join(f"{line}\n" for line in lines).encode())
    return 0


async def _exec(call: Call, container: Container, words: Sequence[str]) -> int:
    """The command's words are handed on as they are, its streams too; its status becomes ours."""
    words = list(words)
    while words and words[0] in ("--keep-env", "-keep-env"):
        del words[:2]
    if words and words[0] == "--":
        del words[0]
    if not words:
        await call.stderr.write(f"400 not enough arguments\n{_USAGE}".encode())
        return _DIED
    if not container.running:
        await call.stderr.write(f"container '{container.vmid}' not running!\n".encode())
        return _DIED
    if words[0] not in container.side.commands:
        lost = f'lxc-attach: {container.vmid}: attach.c: {os.strerror(errno.ENOENT)} - Failed to exec "{words[0]}"\n'
        await call.stderr.write(lost.encode("utf-8", "surrogateescape"))
        return NOT_FOUND
    return await run(replace(call, side=container.side, argv=tuple(words)))


async def _pull(call: Call, container: Container, words: Sequence[str]) -> int:
    """Copies a file out. The real one opens the destination first, and ends with 0 when the copy failed."""
    if len(words) != 2:
        await call.stderr.write(f"400 not enough arguments\n{_USAGE}".encode())
        return _DIED
    if not container.running:
        await call.stderr.write(b"can only pull files from a running VM\n")
        return _DIED
    target = call.side.folder.resolve(words[1])

    def copy() -> None:
        with open(target, "wb") as sink, open(container.side.folder.resolve(words[0]), "rb") as source:
            while data := source.read(1 << 20):
                sink.write(data)

    try:
        await asyncio.to_thread(copy)
    except OSError as error:
        await call.stderr.write(f"failed to open {words[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
    return 0


def _state(container: Container) -> str:
    return "running" if container.running else "stopped"


_ACTIONS: Mapping[str, Callable[[Call, Container, Sequence[str]], Awaitable[int]]] = {
    "status": _status,
    "config": _config,
    "exec": _exec,
    "pull": _pull,
}
_USAGE = "USAGE: pct <list|status|config|exec|pull> [ARGS] [OPTIONS]\n"
