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
from dflash_tui.transfer.destination import is_a_folder
from dflash_tui.transfer.errors import NoSpace, TransferError
from dflash_tui.transfer.locks import LOCK

CLAIM = ".transfer.claim"
BEAT_SECONDS = 10.0
LIVE_SECONDS = 60.0

_TRIES = 20
_OTHER, _GONE, _FOREIGN, _FOLDER = 75, 76, 77, 78
_LOOK = """
claim=$1 probe=$2
[ ! -d "$claim" ] || { echo folder; exit 0; }
[ -e "$claim" ] || exit 0
text=$(dd if="$claim" bs=4096 count=1 2>&-)
at=$(stat -c %Y "$claim" 2>&- || stat -f %m "$claim") || exit 0
now=
if (: >"$probe") 2>&1; then
  now=$(stat -c %Y "$probe" 2>&- || stat -f %m "$probe")
  rm -f "$probe"
fi >&2
echo "$((${now:-$(date +%s)} - at)) $at"
printf '%s\\n' "$text"
"""
"""The words are read before the time: new words must never look as old as those before them. A file server has a clock
of its own: what time it is there is told by a file that is made now."""
_SET = (
    LOCK
    + f"""
claim=$1 expected=$2 mine=$3 new=$4
fill() {{
  said=$(printf '%s\\n' "$mine" | dd of="$new" bs=4096 2>&1) || {{ rm -f "$new"; echo "$said" >&2; exit 4; }}
}}
[ ! -d "$claim" ] || exit {_FOLDER}
if [ ! -e "$claim" ]; then
  [ -n "$mine" ] || exit 0
  [ "$mine" != "$expected" ] || exit {_GONE}
  fill
  said=$(ln "$new" "$claim" 2>&1) || {{
    [ ! -e "$claim" ] || {{ rm -f "$new"; exit {_OTHER}; }}
    mv -n "$new" "$claim"
  }}
  [ ! -e "$new" ] || rm -f "$new"
  [ "$(cat "$claim")" = "$mine" ] || exit {_OTHER}
  exit 0
fi
if [ -w "$claim" ]; then exec 9<>"$claim"; elif [ -r "$claim" ]; then exec 9<"$claim"; else exit {_FOREIGN}; fi
lock || exit {_OTHER}
still_named "$claim" || exit {_GONE}
[ "$(cat "$claim")" = "$expected" ] || exit {_OTHER}
if [ -z "$mine" ]; then exec rm -f "$claim"; fi
if [ "$mine" = "$expected" ]; then exec touch "$claim"; fi
fill
said=$(mv -f "$new" "$claim" 2>&1) || {{ rm -f "$new"; [ -O "$claim" ] || exit {_FOREIGN}; echo "$said" >&2; exit 4; }}
"""
)
"""A claim comes into being whole, by a rename or a link: a disk that is full leaves none that says nothing."""

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
        self._seen: tuple[float, str] | None = None
        self._since = 0.0
        self._touched = False
        self.held = False

    async def take(self) -> str:
        """Take it if nobody who lives has it: "" then, else who has, for a sentence. Raises TransferError, NoSpace."""
        for _ in range(_TRIES):
            there, age, at, text = await self._look()
            if text == self._text:
                self.held = True
            elif there and self._lives(age, at, text):
                self.held = False
                return _shown(parse_claim(text))
            _tokens.add(self._token)
            if await self._set(text, self._text):
                self.held = True
                return ""
        return "somebody"

    async def loss(self) -> str:
        """What became of a claim that is not ours any more, for a sentence. Raises HostError, TransferError."""
        there, _, _, text = await self._look()
        if not there:
            return f"{self._host.name}:{self._path} was removed while this transfer went on; it is taken again"
        return f"{self._host.name}: another console ({_shown(parse_claim(text))}) went on with this transfer"

    def _lives(self, age: float, at: float, text: str) -> bool:
        """A clock that is ahead there makes a dead claim look fresh, one that is behind a living one old: hence what
        was seen here counts too. One that was touched since it was first looked at lives, however old it says it is."""
        holder = parse_claim(text)
        if holder is not None and holder.ended:
            return False
        now = time.monotonic()
        if self._seen != (at, text):
            self._touched = self._seen is not None and at > self._seen[0]
            self._seen, self._since = (at, text), now
        return (self._touched or age < LIVE_SECONDS) and now - self._since < LIVE_SECONDS

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

    async def _look(self) -> tuple[bool, float, float, str]:
        """Whether there is a claim, its age, its time and its text ("" for one that can't be read)."""
        argv = ["sh", "-c", _LOOK, "dflash", self._path, self._new()]
        done = await self._host.run(argv, timeout=30, check=False)
        head, _, text = done.text.partition("\n")
        words = head.split()
        if words == ["folder"]:
            raise self._folder()
        if len(words) != 2 or not all(word.lstrip("-").isdecimal() for word in words):
            return False, 0.0, 0.0, ""
        return True, float(words[0]), float(words[1]), text.rstrip("\n")

    async def _set(self, expected: str, mine: str) -> bool:
        argv = ["sh", "-c", _SET, "dflash", self._path, expected, mine, self._new()]
        done = await self._host.run(argv, timeout=30, check=False)
        if done.status == 0:
            return True
        if done.status in (_OTHER, _GONE):
            return False
        if done.status == _FOLDER:
            raise self._folder()
        if done.status == _FOREIGN:
            owner = (await self._host.run(["stat", "-c", "%U", self._path], timeout=30, check=False)).text.strip()
            able = "root" if owner == "root" else f"{owner or 'that user'} or root"
            raise TransferError(
                f"{self._host.name}:{self._path} is left over from a transfer of user {owner or 'somebody else'} that "
                f"goes on no more, and only {able} can remove it; ask for that, or name another folder"
            )
        said = done.stderr.strip().splitlines()
        full = (line for line in said if "No space" in line or "quota" in line.lower())
        reason = next(full, said[-1] if said else "")
        where = f"{self._host.name}:{self._path} can't be written: {reason or f'status {done.status}'}"
        if "No space left" in reason or "quota" in reason.lower():
            raise NoSpace(f"{where}; free room there or name another folder")
        raise TransferError(f"{where}; name a folder that this user can write")

    def _new(self) -> str:
        """Something beside the claim, of nobody else."""
        return f"{self._path}.{secrets.token_hex(6)}.tmp"

    def _folder(self) -> TransferError:
        return is_a_folder(self._host, self._path, "whoever brings files there keeps a claim under that name")


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
