"""The engine that sends a source's bytes straight to the destination: the source itself runs `ssh` there.

Both hosts are told what to do over our own links; the bytes never come here. Whether one reaches the other is found
out by trying, with the keys and known hosts that the source has: nothing is ever added there.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dflash_tui.hosts.address import parse_target
from dflash_tui.hosts.base import CommandFailed, Completed, FileMissing, Host, HostError, HostUnreachable, Process
from dflash_tui.hosts.openssh import login_target, quiet_options
from dflash_tui.hosts.running import STDERR_TAIL, together
from dflash_tui.hosts.shell import asked_together
from dflash_tui.transfer.emission import BLOCK, Emission
from dflash_tui.transfer.engine import CHUNK, Leg, Passed, Route
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.pace import at_once
from dflash_tui.transfer.relaying import judge_destination, judge_source
from dflash_tui.transfer.token import token
from dflash_tui.transfer.unseen import (
    SSH_FAILED,
    STALL_SECONDS,
    Busy,
    check_arrived,
    cleared,
    destination_of,
    emission_of,
    free_part,
    last_words,
    source_of,
)
from dflash_tui.transfer.writing import BUSY, writing

_CONNECT_SECONDS = 5
_TRYING_SECONDS = 30.0
_LOOK_SECONDS = 1.0
_TURNS = 40
"""Times what passes at once that a login is worth under a limit."""
_FED = 1 << 18
_FREEING = (0.0, 0.5, 1.0, 2.0)
_OLD = re.compile(r"cipher spec|configuration option", re.IGNORECASE)
_UNKNOWN_KEY = re.compile(r"host key is known|key verification failed", re.IGNORECASE)
_NO_WAY = re.compile(
    r"No route to host|timed out|Connection refused|unreachable|not resolve|Name or service not known", re.IGNORECASE
)
_TOLD = re.compile(r"^dflash-read:(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class DirectRoute:
    """`login` are the words that log in from the source to the destination (or to where its launcher is started);
    `target` is that place in a sentence."""

    source: str
    destination: str
    target: str
    login: tuple[str, ...]


async def reachable(source: Host, destination: Host, folder: str, target: str = "") -> DirectRoute | str:
    """How the source reaches the destination, proven by a file that it reads there; else a sentence why it does not.

    `folder` is the destination's, absolute; where it isn't there yet, its nearest parent that is. `target`:
    `user@host:port` as the source is to be told, else what this workstation's configuration says of the destination.
    Raises HostError where one of the two does not answer us.
    """
    if not target:
        address = destination.ssh_address()
        if address is None:
            return f"{source.name} has no way to {destination.name}: it is this workstation; bytes come here anyway"
        target = await login_target(address)
    async with token(destination, await _existing(destination, folder)) as there:
        done = Completed(0, b"", "")
        for ciphers in (True, False):
            login = _login(target, ciphers=ciphers)
            command = destination.system_command(there.reading, login=login)
            if command is None:
                return f"{source.name} has no way to {destination.name}: it can't be said to ssh"
            try:
                done = await source.run(command, timeout=_TRYING_SECONDS, check=False)
            except HostUnreachable:
                raise
            except HostError as error:  # it did not end
                return f"{source.name} gets no answer from {target}: {error}"
            if done.text == there.text:
                return DirectRoute(source.name, destination.name, target, tuple(login))
            if not _OLD.search(done.stderr):  # an `ssh` that does not know all that it is told
                break
    if (await source.run(["sh", "-c", "command -v ssh"], timeout=_TRYING_SECONDS, check=False)).status != 0:
        return f"{source.name} has no ssh program, by which it would reach {destination.name} itself"
    return _why_not(source.name, destination.name, target, done)


def _why_not(source: str, destination: str, target: str, done: Completed) -> str:
    """What an `ssh` of the source that did not bring the token back means."""
    said = last_words(done)
    if done.status == SSH_FAILED:
        if "IDENTIFICATION HAS CHANGED" in done.stderr:
            return (
                f"{source} can't log in to {target}: the host key there is not the one that {source}'s known_hosts "
                f"holds ({said})"
            )
        if _UNKNOWN_KEY.search(done.stderr):
            return (
                f"{source} can't log in to {target}: its known_hosts does not hold the host key there ({said}); a "
                f"person adds it on {source}, none is added from here"
            )
        if "Permission denied" in done.stderr or "authentication failures" in done.stderr:
            return f"{source} can't log in to {target}: {source}'s keys are refused there ({said})"
        if _NO_WAY.search(done.stderr):
            return f"{source} does not reach {target}: {said}{_says_where(destination)}"
        return f"{source} can't log in to {target}: {said}"
    if done.status == 0 or "No such file" in done.stderr:
        return (
            f"{source} reaches {target}, but that is another machine: {destination}'s files are not there "
            f"(status {done.status}: {said}){_says_where(destination)}"
        )
    return (
        f"{source} reaches {target}, but does not get to {destination}'s files from there (status {done.status}: "
        f"{said}){_says_where(destination)}"
    )


def _says_where(destination: str) -> str:
    return f"; hosts.{destination}.direct in the config says where it is for other hosts"


def _login(target: str, *, ciphers: bool) -> list[str]:
    place = parse_target(target)
    words = quiet_options(_CONNECT_SECONDS, ciphers=ciphers)
    if place.port is not None:
        words += ["-p", str(place.port)]
    if place.username is not None:
        words += ["-l", place.username]
    return ["ssh", *words, "--", place.host]


async def _existing(host: Host, folder: str) -> str:
    while True:
        try:
            await host.stat(folder)
        except FileMissing:
            if folder == "/":
                raise
            folder = posixpath.dirname(folder.rstrip("/")) or "/"
        else:
            return folder


class DirectEngine:
    """Carries legs over a route that was proven. Limits are kept by carrying piece after piece: what is on its way
    between two others can't be slowed down."""

    route: Route = "direct"

    def __init__(self, way: DirectRoute) -> None:
        self.way = way

    async def carry(self, leg: Leg) -> Passed:
        """See `Engine.carry`."""
        at, nbytes = leg.start, _next(leg, leg.start)
        await leg.pace(nbytes)
        while at < leg.stop:
            stop = at + nbytes
            nbytes = _next(leg, stop)
            # What the next one waits for passes meanwhile: to log in takes a while each time.
            await together(self._carry(replace(leg, start=at, stop=stop)), leg.pace(nbytes))
            at = stop
        return Passed()

    async def _carry(self, leg: Leg) -> None:
        emission = emission_of(leg)
        for pause in _FREEING:
            carrying = _Carrying(leg, emission, self.way)
            try:
                return await carrying.carry()
            except Busy:
                carrying.count(leg.start)
                await asyncio.sleep(pause)
                await free_part(leg)
            except BaseException:
                # What the source runs has ended with its stream; the writer there ends with its own, or here.
                await cleared(free_part(leg))
                raise
        raise TransferError(
            f"{destination_of(leg)} is held open by another program that can't be ended; is it being fetched by "
            "another user?"
        )


def _next(leg: Leg, at: int) -> int:
    """How many bytes go by one login: all without a limit, else what passes in some seconds, in whole blocks."""
    left = leg.stop - at
    worth = at_once(leg.pace, left)
    if worth == left:
        return left
    return min(left, CHUNK, max(BLOCK, worth * _TURNS // BLOCK * BLOCK))


class _Carrying:
    """One attempt at a leg."""

    def __init__(self, leg: Leg, emission: Emission, way: DirectRoute) -> None:
        self._leg = leg
        self._counted = leg.start
        self._grown = 0.0
        command = leg.destination.system_command(writing(leg.part, leg.start, leg.size), stdin=True, login=way.login)
        if command is None:
            raise TransferError(f"{leg.source.name} has no way to {leg.destination.name}: it can't be said to ssh")
        self._script = _script(emission, command)

    def count(self, size: int) -> None:
        """The part has this size now."""
        now = max(self._leg.start, min(size, self._leg.stop))
        if now != self._counted:
            self._grown = asyncio.get_running_loop().time()
            self._leg.count(now - self._counted, now - self._counted)
            self._counted = now

    async def carry(self) -> None:
        """Raises Busy beside what `Engine.carry` does."""
        leg, told = self._leg, bytearray()
        self._grown = asyncio.get_running_loop().time()
        async with leg.source.stream(["sh"], stdin=True) as process:
            looking = asyncio.ensure_future(self._look())
            running = asyncio.ensure_future(together(self._feed(process), _collect(process, told)))
            try:
                await asyncio.wait({looking, running}, return_when=asyncio.FIRST_COMPLETED)
                if not running.done():
                    await looking  # raises that nothing moves
                await running
                done = await process.wait()
            finally:
                for task in (looking, running):
                    task.cancel()
                await asyncio.gather(looking, running, return_exceptions=True)
        self._judge(done, told.decode("utf-8", "replace"))
        await check_arrived(leg)
        self.count(leg.stop)

    async def _feed(self, process: Process) -> None:
        # A shell that ended early tells why by its status.
        with contextlib.suppress(CommandFailed):
            for at in range(0, len(self._script), _FED):
                await process.write(self._script[at : at + _FED])
            await process.close_stdin()

    async def _look(self) -> None:
        """Ask for the part's size every second. Raises HostUnreachable when it has not grown for long."""
        leg = self._leg
        async with asked_together(leg.destination) as host:
            while asyncio.get_running_loop().time() - self._grown < STALL_SECONDS:
                await asyncio.sleep(_LOOK_SECONDS)
                # A link of ours that breaks meanwhile does not stop the bytes.
                with contextlib.suppress(HostError):
                    self.count((await host.stat(leg.part)).size)
        raise HostUnreachable(f"{destination_of(leg)}: no byte arrived for {STALL_SECONDS:.0f} s")

    def _judge(self, done: Completed, told: str) -> None:
        leg = self._leg
        if done.status == BUSY:
            raise Busy
        if done.status == SSH_FAILED:
            raise HostUnreachable(f"{leg.source.name} lost {leg.destination.name}: {last_words(done)}")
        judge_destination(destination_of(leg), done)
        read = _TOLD.search(told)
        if read is None:
            raise HostUnreachable(f"{source_of(leg)}: the reading ended without a word")
        judge_source(source_of(leg), Completed(int(read[1]), b"", _TOLD.sub("", told)))


async def _collect(process: Process, told: bytearray) -> None:
    while data := await process.read():
        told += data
        del told[:-STDERR_TAIL]


def _script(emission: Emission, command: Sequence[str]) -> bytes:
    """For the source's shell: the emission into `ssh`, whose status and words are the shell's own; what the reading
    says, and its status at last, go to stdout, which nothing else uses."""
    line = shlex.join(["env", "LC_ALL=C", "SSH_ASKPASS_REQUIRE=never", *command]).encode("utf-8", "surrogateescape")
    return b"exec 3>&1\n{ (\n%b) 2>&3; echo dflash-read:$? >&3; } | %b 3>&-\n" % (emission.stdin, line)
