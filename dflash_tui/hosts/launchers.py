"""Launchers: what stands before a command so that it runs in a container, pod or allocation, and what each does.

| launcher | stdin is opened by | a program that is silent when the launcher is killed | what it leaves running |
|---|---|---|---|
| pct exec ID -- | always open | dies with the launcher's process group | stays |
| docker, podman, nerdctl exec | -i | lives on | stays |
| kubectl, oc exec … -- | -i | lives on | stays |
| incus, lxc exec -T … -- | always open | is killed by newer servers, lives on with older ones | stays |
| srun --jobid=J | always open | dies with its step | is killed with its step |

From the tools' manuals and their reports of programs that outlive their launcher (moby 9098, podman 19486,
kubernetes 89031, lxd 9578); lxc-attach 5.0 (all that `pct exec` is), podman 4.3 and Slurm 22.05 were tried. What a
step leaves running stays only where Slurm tracks processes without cgroups.

None of them may have a terminal: it changes bytes and mixes stderr into stdout. srun passes on whole lines, so answers
must end one; its --unbuffered is left to its user: the program gets a pseudo terminal for it, its output untouched.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dflash_tui.hosts.base import HostError, HostUnreachable, PermissionRefused

_TERMINAL = "a terminal changes the bytes that pass"


@dataclass(frozen=True)
class Trouble:
    """What a launcher says when it can't start anything. `means` goes on from the container's name; {tool} is the
    launcher with its own options, {target} its last word, {where} the host that it runs on."""

    words: re.Pattern[str]
    means: str
    refused: bool = False


@dataclass(frozen=True)
class Launcher:
    """One kind. `exec`: it does so only after that word. `opens_stdin`: the options that do (the first is added).
    `needed`: what is added unless an option of the group is there. `valued`: its short options that take a value.
    `dashes`: whether `--` must ("+") or must not ("-") stand before the command. `noise`: lines that it adds to a
    program's stderr. `in_group`: its program shares its process group. `steps`: it kills what its program leaves."""

    names: tuple[str, ...]
    troubles: tuple[Trouble, ...]
    exec: bool = True
    opens_stdin: tuple[str, ...] = ()
    needed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    refused: Mapping[str, str] | None = None
    valued: str = ""
    dashes: str = ""
    noise: re.Pattern[str] | None = None
    in_group: bool = False
    steps: bool = False


def _trouble(words: str, means: str, *, refused: bool = False) -> Trouble:
    return Trouble(re.compile(words, re.MULTILINE), means, refused)


_NO_SHELL = _trouble(
    r'exec: "sh": executable file not found', "has no `sh`, without which nothing can be followed or ended in it"
)

LAUNCHERS = (
    Launcher(
        ("pct",),
        (
            _trouble(r"container '[^']*' not running", "is stopped; start it with `{tool} start {target}` on {where}"),
            _trouble(
                r"Configuration file '[^']*' does not exist",
                "does not exist on that node; see `{tool} list` on {where}",
            ),
        ),
        dashes="+",
        in_group=True,
    ),
    Launcher(
        ("docker", "podman", "nerdctl"),
        (
            _trouble(
                r"(?i)container \S+ is not running|can only create exec sessions on running containers"
                r"|cannot exec in a stopped (?:state|container)|no running task found",
                "is stopped; start it with `{tool} start {target}` on {where}",
            ),
            _trouble(r"(?i)container \S+ is paused", "is paused; wake it with `{tool} unpause {target}` on {where}"),
            _trouble(r"(?i)container \S+ is restarting", "is being restarted; it is tried again"),
            _trouble(
                r"(?i)no such container|no container with name or ID", "does not exist; see `{tool} ps -a` on {where}"
            ),
            _trouble(
                r"(?i)permission denied while trying to connect to the docker (?:daemon|API)",
                "can't be reached: this user may not use {tool} on {where}; be added to its group there, or put "
                "`sudo -n` first",
                refused=True,
            ),
            _trouble(
                r"(?i)cannot connect to (?:the docker daemon|podman)",
                "can't be reached: {tool} does not run on {where}",
            ),
            _NO_SHELL,
        ),
        opens_stdin=("-i", "--interactive"),
        refused={
            "-t": _TERMINAL,
            "--tty": _TERMINAL,
            "-d": "the output of what it starts is lost",
            "--detach": "the output of what it starts is lost",
        },
        valued="euwcH",
        dashes="-",
    ),
    Launcher(
        ("kubectl", "oc"),
        (
            _trouble(
                r"container not found|cannot exec into a container in a completed pod|pod \S+ is not running"
                r"|does not have a host assigned",
                "does not run; see `{tool} get pods` on {where}",
            ),
            _trouble(
                r'(?:pods|namespaces) "[^"]*" not found|pod does not exist|container \S+ is not valid for pod',
                "does not exist; see `{tool} get pods` on {where}",
            ),
            _trouble(
                r"(?i)error from server \(Forbidden\)", "can't be reached: this user may not exec there", refused=True
            ),
            _trouble(
                r"[Uu]nable to connect to the server|connection to the server \S+ was refused",
                "can't be reached: the cluster does not answer {where}",
            ),
            _NO_SHELL,
        ),
        opens_stdin=("-i", "--stdin"),
        refused={"-t": _TERMINAL, "--tty": _TERMINAL},
        valued="cnfsv",
        dashes="+",
        noise=re.compile(r"^(?:command terminated with exit code \d+|Defaulted container .*)\n?", re.MULTILINE),
    ),
    Launcher(
        ("incus", "lxc"),
        (
            _trouble(
                r"[Ii]nstance is not running|[Cc]ontainer is not running",
                "is stopped; start it with `{tool} start {target}` on {where}",
            ),
            _trouble(r"[Ii]nstance is frozen", "is paused; wake it with `{tool} start {target}` on {where}"),
            _trouble(r"[Ii]nstance not found|^Error: not found", "does not exist; see `{tool} list` on {where}"),
            _trouble(r"^Error: Command not found", "has no `sh`, without which nothing can be followed or ended in it"),
        ),
        needed=(("-T", ("-T", "--force-noninteractive", "--mode")),),
        refused={
            "-t": _TERMINAL,
            "--force-interactive": _TERMINAL,
            "--mode=interactive": _TERMINAL,
            "-n": "nothing can be written through it then",
            "--disable-stdin": "nothing can be written through it then",
        },
        dashes="+",
    ),
    Launcher(
        ("srun",),
        (
            _trouble(
                r"Invalid job id specified|Slurm job \d+ has expired",
                "does not exist: no such job, or it has ended; see `squeue --me` on {where} and name its number",
            ),
            _trouble(
                r"Job/step already completing or completed",
                "has ended: the job is over; see `squeue --me` on {where} and name another",
            ),
            _trouble(r"Job is pending execution|Job violates", "does not run yet; see `squeue --me` on {where}"),
            _trouble(r"Access/permission denied", "can't be reached: the job is another user's", refused=True),
            _trouble(r"Unable to contact slurm controller", "can't be reached: Slurm does not answer {where}"),
        ),
        exec=False,
        needed=(("--ntasks=1", ("-n", "--ntasks")), ("--overlap", ("--overlap",))),
        refused={
            "--pty": _TERMINAL,
            "-l": "it puts the task's number into the bytes that pass",
            "--label": "it puts the task's number into the bytes that pass",
            "-o": "the output of what it starts is lost",
            "--output": "the output of what it starts is lost",
            "--exclusive": "one command would wait for another",
        },
        valued="ABCDGJLMNPSTUVWabcdegijmnoprtwxy",
        noise=re.compile(
            r"^srun: error: [^\n]*: tasks? [\d,-]+: [^\n]*\n?|^srun: (?:Force Terminated|Terminating) [^\n]*\n?"
            r"|^slurmstepd[^\n:]*: error: \*\*\* [^\n]*\n?",
            re.MULTILINE,
        ),
        steps=True,
    ),
)
_BY_NAME = {name: launcher for launcher in LAUNCHERS for name in launcher.names}
_OWN = Launcher((), (), exec=False)
"""For a prefix that nobody knows: its words and its manners are its user's."""


@dataclass(frozen=True)
class _Part:
    """One launcher in a prefix: its words, the word that names it, and where `exec` stands in them."""

    launcher: Launcher
    words: tuple[str, ...]
    named: int
    exec_at: int

    @property
    def name(self) -> str:
        """The launcher's name without its folder."""
        return self.words[self.named].rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Prefix:
    """A launcher prefix that may be used: what goes before a command, and what to expect of it."""

    parts: tuple[_Part, ...]

    def argv(self, *, stdin: bool) -> list[str]:
        """The words before a command, with stdin open where it is fed."""
        found: list[str] = []
        for part in self.parts:
            words = list(part.words)
            opening = part.launcher.opens_stdin
            if stdin and opening and not any(option in opening for option in _options(part)):
                words.insert(part.exec_at + 1, opening[0])
            found += words
        return found

    @property
    def tool(self) -> str:
        """The innermost launcher's name."""
        return self.parts[-1].name

    @property
    def detaches(self) -> bool:
        """Whether a program can be left running behind every launcher."""
        return not any(part.launcher.steps for part in self.parts)

    @property
    def in_group(self) -> bool:
        """Whether killing the launcher's process group ends the program: `sudo` may start a session of its own."""
        return all(part.launcher.in_group and part.named == 0 for part in self.parts)

    def status_command(self) -> list[str] | None:
        """What tells on the host itself whether the container runs; None where only a launch does."""
        part = self.parts[0]
        if len(self.parts) > 1 or "pct" not in part.launcher.names:
            return None
        return [*part.words[: part.exec_at], "status", part.words[part.exec_at + 1]]

    def trouble(self, stderr: str, where: str) -> tuple[type[HostError], str] | None:
        """What a launcher that started nothing means, from its words: the error, and what goes after the name."""
        for part in self.parts:
            for trouble in part.launcher.troubles:
                if match := trouble.words.search(stderr):
                    tool = shlex.join(
                        (*part.words[: part.named], part.name, *part.words[part.named + 1 : part.exec_at])
                    )
                    words = [word for word in part.words[part.exec_at + 1 :] if word != "--"]
                    means = trouble.means.format(tool=tool, target=words[-1] if words else "", where=where)
                    return PermissionRefused if trouble.refused else HostUnreachable, f"{means} ({match[0]})"
        return None

    def cleaned(self, stderr: str) -> str:
        """A program's own stderr, without what launchers add to it."""
        for part in self.parts:
            if part.launcher.noise is not None:
                stderr = part.launcher.noise.sub("", stderr)
        return stderr


def parse_prefix(words: Sequence[str], name: str) -> Prefix:
    """A prefix as it may be used, with what it lacks. Raises HostError naming what to take out of it."""
    if not words or not all(words):
        raise HostError(f"{name}: the prefix of a container is empty; expected one such as `pct exec 200 --`")
    if words[0].rsplit("/", 1)[-1] == "ssh":
        raise HostError(
            f"{name}: `{shlex.join(words)}`: ssh takes the words of a command apart; give that machine a [hosts.NAME] "
            "of its own and name it in `via`"
        )
    starts = list(_starts(words))
    if not starts:
        return Prefix((_Part(_OWN, tuple(words), 0, len(words)),))
    starts[0] = (0, *starts[0][1:])
    ends = [start for start, _, _ in starts[1:]] + [len(words)]
    parts = [
        _part(tuple(words[start:end]), named - start, exec_at - start, name)
        for (start, named, exec_at), end in zip(starts, ends, strict=True)
    ]
    return Prefix(tuple(parts))


def _starts(words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Where each launcher begins, where it is named, and where its `exec` stands (its own name without one)."""
    at = 0
    while at < len(words):
        launcher = _BY_NAME.get(words[at].rsplit("/", 1)[-1])
        if launcher is None or (launcher.exec and "exec" not in words[at + 1 :]):
            at += 1
            continue
        exec_at = words.index("exec", at + 1) if launcher.exec else at
        yield at, at, exec_at
        # The word after it may be the container's name, which may be a launcher's.
        at = exec_at + 2


def _part(words: tuple[str, ...], named: int, exec_at: int, name: str) -> _Part:
    launcher = _BY_NAME[words[named].rsplit("/", 1)[-1]]
    part = _Part(launcher, words, named, exec_at)
    shown = shlex.join(words)
    options = list(_options(part))
    for option in options:
        if why := (launcher.refused or {}).get(option):
            raise HostError(f"{name}: `{shown}`: take {option} out of the prefix: {why}")
    if launcher.dashes == "-" and words[-1] == "--":
        raise HostError(f"{name}: `{shown}`: take -- out of the prefix: {part.name} would look for a program called so")
    if launcher.steps and "--jobid" not in options:
        raise HostError(f"{name}: `{shown}`: without --jobid=N each command would ask for an allocation of its own")
    if launcher.exec and len([word for word in words[exec_at + 1 :] if not word.startswith("-")]) == 0:
        raise HostError(f"{name}: `{shown}`: names no container; expected its name after `exec`")
    added = [needed for needed, group in launcher.needed if not any(option in group for option in options)]
    end = ("--",) if launcher.dashes == "+" and "--" not in words else ()
    return _Part(launcher, (*words[: exec_at + 1], *added, *words[exec_at + 1 :], *end), named, exec_at)


def _options(part: _Part) -> Iterator[str]:
    """The options among a launcher's words: `--name` of `--name=value` (both for `--mode`), `-i` and `-t` of `-it`."""
    for word in part.words[part.named + 1 :]:
        if word == "--":
            return
        if word.startswith("--"):
            yield word.split("=", 1)[0] if word.split("=", 1)[-1] != "false" else ""
            yield word
        elif word.startswith("-"):
            for letter in word[1:]:
                yield f"-{letter}"
                if letter in part.launcher.valued:
                    break
