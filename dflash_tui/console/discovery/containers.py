"""The containers, pods and allocations on a host, as its own tools list them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dflash_tui.hosts.base import Host, HostError, HostKeyRefused, HostUnreachable, LoginRefused

LIST_SECONDS = 15.0


@dataclass(frozen=True)
class Container:
    """`id` is what the tool calls it, `name` what people do; `prefix` the launcher that runs a command in it."""

    tool: str
    id: str
    name: str
    running: bool
    state: str
    prefix: tuple[str, ...]

    @property
    def suggested(self) -> str:
        """A name for it under [hosts]."""
        return f"ct{self.id}" if self.tool == "pct" else self.name or self.id

    @property
    def text(self) -> str:
        """The container in one line."""
        other = f" ({self.name})" if self.name not in ("", self.id) else ""
        return f"{self.tool} {self.id}{other}: {self.state}"


@dataclass(frozen=True)
class _Tool:
    """`listed` turns the fields of one line into id, name, state; `prefix` an id into a launcher."""

    name: str
    argv: tuple[str, ...]
    separator: str | None
    listed: Callable[[Sequence[str]], tuple[str, str, str]]
    prefix: Callable[[str], tuple[str, ...]]


def _docker(name: str) -> _Tool:
    argv = (name, "ps", "--format", "{{.Names}}|{{.State}}|{{.Image}}")
    return _Tool(name, argv, "|", lambda f: (f[0], f[2], f[1]), lambda which: (name, "exec", which))


def _incus(name: str) -> _Tool:
    argv = (name, "list", "--format", "csv", "-c", "ns")
    return _Tool(name, argv, ",", lambda f: (f[0], "", f[1]), lambda which: (name, "exec", which, "--"))


_TOOLS = (
    _Tool(
        "pct",
        ("pct", "list"),
        None,
        lambda f: (f[0], f[-1] if len(f) > 2 else "", f[1]),
        lambda which: ("pct", "exec", which, "--"),
    ),
    _docker("docker"),
    _docker("podman"),
    _incus("incus"),
    _incus("lxc"),
    _Tool(
        "kubectl",
        ("kubectl", "get", "pods", "--no-headers", "--request-timeout=10s"),
        None,
        lambda f: (f[0], "", f[2]),
        lambda which: ("kubectl", "exec", which, "--"),
    ),
    _Tool(
        "squeue",
        ("squeue", "-h", "-o", "%i|%T|%j", "-u"),
        "|",
        lambda f: (f[0], f[2], f[1]),
        lambda which: ("srun", f"--jobid={which}", "--overlap"),
    ),
)
_FIND_TOOLS = 'for tool; do command -v "$tool"; done; id -un'


async def list_containers(host: Host) -> tuple[Container, ...]:
    """What each tool on the host lists, running ones first. A tool that refuses lists nothing. Raises HostUnreachable
    and what a person has to act on first."""
    names = [tool.name for tool in _TOOLS]
    found = await host.run(["sh", "-c", _FIND_TOOLS, "sh", *names], timeout=LIST_SECONDS, check=False)
    lines = found.text.splitlines()
    there = {line.rsplit("/", 1)[-1] for line in lines[:-1]}
    containers: list[Container] = []
    for tool in _TOOLS:
        if tool.name not in there:
            continue
        argv = [*tool.argv, lines[-1]] if tool.name == "squeue" else list(tool.argv)
        try:
            done = await host.run(argv, timeout=LIST_SECONDS, check=False)
        except (HostUnreachable, HostKeyRefused, LoginRefused):
            raise
        except HostError:
            continue
        if done.status == 0:
            containers += _containers(tool, done.text)
    return tuple(sorted(containers, key=lambda item: not item.running))


def _containers(tool: _Tool, text: str) -> Iterator[Container]:
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(tool.separator)]
        try:
            which, name, state = tool.listed(fields)
        except IndexError:
            continue
        if which and not which.startswith("-") and which != "VMID":
            yield Container(tool.name, which, name, state.lower() == "running", state.lower(), tool.prefix(which))
