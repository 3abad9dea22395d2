"""Who brings files into a folder now: one transfer at a time, and none waits for one that is no more.

A transfer keeps a claim in its destination's folder and touches it every few seconds. Who finds a claim waits as long
as it is alive, then finds the files there. It is dead when its process, known by kernel, process id and start, is not
on this machine any more; when it gave up its token; and when nobody touched it for a minute, whatever machine it was.
Then the claim is taken over, which its old owner notices at its next touch, and only then are writers that still have a
part open ended: they are orphans, because nobody without the claim starts one. Taking, touching and giving back compare
and set under a lock that lasts for that one command, so that of two who see the same dead claim one gets it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import posixpath
import secrets
import time
from dataclasses import dataclass

from dflash_tui.hosts.base import Host, HostError
from dflash_tui.transfer.errors import NoSpace, TransferError

CLAIM = ".transfer.claim"
BEAT_SECONDS = 10.0
LIVE_SECONDS = 60.0

_TRIES = 20
_OTHER, _GONE = 75, 76
_LOOK = """
claim=$1
[ -e "$claim" ] || exit 0
text=$(dd if="$claim" bs=4096 count=1 2>&-)
at=$(stat -c %Y "$claim" 2>&- || stat -f %m "$claim") || exit 0
echo "$(($(date +%s) - at)) $at"
printf '%s\\n' "$text"
"""
"""The words are read before the time: new words must never look as old as those before them."""
_SET = f"""
claim=$1 expected=$2 mine=$3
[ -n "$mine" ] || [ -e "$claim" ] || exit 0
exec 9>>"$claim" || exit 4
if [ -n "$(command -v flock)" ]; then flock 9 || exit 4; fi
held=$(stat -L -c %i /proc/self/fd/9 2>&-)
[ -z "$held" ] || [ "$held" = "$(stat -c %i "$claim" 2>&-)" ] || exit {_GONE}
[ "$(cat "$claim")" = "$expected" ] || exit {_OTHER}
if [ -z "$mine" ]; then exec rm -f "$claim"; fi
if [ "$mine" = "$expected" ]; then exec touch "$claim"; fi
printf '%s\\n' "$mine" >"$claim"
"""

_tokens: set[str] = set()
"""Of the transfers of this process that go on."""


@dataclass(frozen=True)
class Holder:
    """Who claims a folder; `nbytes` is what is to lie there in the end."""

    token: str
    machine: str
    kernel: str
    pid: int
    start: int
    nbytes: int

    @property
    def ended(self) -> bool:
        """Whether it is certain that it does not go on: it was of this machine, and is no more."""
        if not self.kernel or self.kernel != _kernel():
            return False
        if self.pid == os.getpid() and self.start == _start(self.pid):
            return self.token not in _tokens
        return self.start != _start(self.pid)


def parse_claim(text: str) -> Holder | None:
    """The holder that a claim's text names, None for one that can't be read."""
    try:
        match json.loads(text):
            case {
                "token": str(token), "machine": str(machine), "kernel": str(kernel),
                "pid": int(pid), "start": int(start), "bytes": int(nbytes),
            }:  # fmt: skip
                return Holder(token, machine, kernel, pid, start, nbytes)
    except (ValueError, RecursionError):
        return None
    return None


class Claim:
    """Our claim to a folder of a host."""

    def __init__(self, host: Host, folder: str, nbytes: int) -> None:
        self._host = host
        self._path = posixpath.join(folder, CLAIM)
        self._token = secrets.token_hex(8)
        pid = os.getpid()
        body = {
            "token": self._token, "machine": platform.node(), "kernel": _kernel(),
            "pid": pid, "start": _start(pid), "bytes": nbytes,
        }  # fmt: skip
        self._text = json.dumps(body)
        self._seen = ("", 0.0)
        self.held = False

    async def take(self) -> str:
        """Take it if nobody who lives has it: "" then, else who has, for a sentence. Raises TransferError, NoSpace."""
        for _ in range(_TRIES):
            age, at, text = await self._look()
            if text == self._text:
                self.held = True
            if text and text != self._text and self._lives(age, f"{at} {text}", parse_claim(text)):
                self.held = False
                return _shown(parse_claim(text))
            _tokens.add(self._token)
            if await self._set(text, self._text):
                self.held = True
                return ""
        return "somebody"

    def _lives(self, age: float, seen: str, holder: Holder | None) -> bool:
        """A clock that is ahead there makes a dead claim look fresh: hence what was seen here counts too."""
        if holder is not None and holder.ended:
            return False
        now = time.monotonic()
        if self._seen[0] != seen:
            self._seen = (seen, now)
        return age < LIVE_SECONDS and now - self._seen[1] < LIVE_SECONDS

    async def touch(self) -> bool:
        """Show that we go on: whether the claim is still ours."""
        self.held = self.held and await self._set(self._text, self._text)
        return self.held

    async def give_back(self) -> None:
        """Let others have it. A host that can't be reached keeps a claim whose token nobody has."""
        _tokens.discard(self._token)
        for _ in range(2 if self.held else 0):
            self.held = False
            with contextlib.suppress(HostError, TransferError):
                await self._set(self._text, "")
                return

    async def _look(self) -> tuple[float, float, str]:
        done = await self._host.run(["sh", "-c", _LOOK, "dflash", self._path], timeout=30, check=False)
        head, _, text = done.text.partition("\n")
        words = head.split()
        if len(words) != 2 or not all(word.lstrip("-").isdecimal() for word in words):
            return 0.0, 0.0, ""
        return float(words[0]), float(words[1]), text.rstrip("\n")

    async def _set(self, expected: str, mine: str) -> bool:
        argv = ["sh", "-c", _SET, "dflash", self._path, expected, mine]
        done = await self._host.run(argv, timeout=30, check=False)
        if done.status == 0:
            return True
        if done.status in (_OTHER, _GONE):
            return False
        said = done.stderr.strip().splitlines()
        reason = said[-1] if said else f"status {done.status}"
        full = "No space left" in reason or "quota" in reason.lower()
        raise (NoSpace if full else TransferError)(
            f"{self._host.name}:{self._path} can't be written: {reason}; free room there or name another folder"
        )


def _shown(holder: Holder | None) -> str:
    return f"process {holder.pid} on {holder.machine}" if holder is not None else "somebody"


def _kernel() -> str:
    """What tells one set of process ids from every other; "" where nothing does."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start(pid: int) -> int:
    """When a process began, in its kernel's ticks; -1 where there is none of that id."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return -1
