"""The machine a training runs on, lightly: its load, memory, GPUs and the space where checkpoints go."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dflash_tui.hosts.base import Host, HostError, HostKeyRefused, HostUnreachable
from dflash_tui.watch.numbers import number

_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")
_MEMORY = re.compile(r"^(MemTotal|MemAvailable):\s*(\d{1,15}) kB", re.MULTILINE)
_LOAD = re.compile(r"^(\d{1,9}\.\d{1,4}) \d")


@dataclass(frozen=True)
class Gpu:
    """One GPU: share of time with a kernel running (percent), memory in MiB. None: the driver does not tell."""

    busy: float | None
    memory_used: float | None
    memory_total: float | None


@dataclass(frozen=True)
class Machine:
    """What could be read; None where it could not. `load`: runnable processes, one-minute mean. Memory and `free` in
    bytes. `gpus` is a line for a person, also where there is none to be seen; `gpu` holds each."""

    host: str
    load: float | None
    memory_total: int | None
    memory_available: int | None
    gpu: tuple[Gpu, ...]
    gpus: str | None
    free: int | None


async def read_machine(host: Host, path: str = "/") -> Machine:
    """Look once; `free` is of the filesystem of `path`. Raises HostUnreachable and HostKeyRefused only."""
    told = await _output(host, ("cat", "/proc/loadavg", "/proc/meminfo"))
    memory = {name: int(kibibytes) * 1024 for name, kibibytes in _MEMORY.findall(told)}
    load = _LOAD.match(told)
    answer = await _output(host, _QUERY)
    gpu = tuple(found for line in answer.splitlines() if (found := _gpu(line)) is not None)
    try:
        free: int | None = (await host.free_space(path)).bytes
    except (HostUnreachable, HostKeyRefused):
        raise
    except HostError:
        free = None
    return Machine(
        host=host.name,
        load=float(load[1]) if load is not None else None,
        memory_total=memory.get("MemTotal"),
        memory_available=memory.get("MemAvailable"),
        gpu=gpu,
        gpus=_line(gpu) if gpu else f"no GPU to be seen on {host.name}: nvidia-smi is missing there or tells nothing",
        free=free,
    )


async def _output(host: Host, argv: tuple[str, ...]) -> str:
    try:
        done = await host.run(argv, timeout=20, check=False)
    except (HostUnreachable, HostKeyRefused):
        raise
    except HostError:
        return ""
    return done.text if done.status == 0 else ""


def _gpu(line: str) -> Gpu | None:
    fields = [number(field) for field in line.split(",")]
    if len(fields) != 3:
        return None
    busy, used, total = (None if value is None or not math.isfinite(value) else value for value in fields)
    return None if busy is None and total is None else Gpu(busy, used, total)


def _line(gpu: tuple[Gpu, ...]) -> str:
    busy = [item.busy for item in gpu if item.busy is not None]
    used = [item.memory_used for item in gpu if item.memory_used is not None]
    total = [item.memory_total for item in gpu if item.memory_total is not None]
    parts = [f"{len(gpu)} GPU" + ("s" if len(gpu) > 1 else "")]
    if busy:
        parts.append(f"{sum(busy) / len(busy):.0f} %")
    if used and len(used) == len(total):
        parts.append(f"{sum(used) / 1024:.0f} of {sum(total) / 1024:.0f} GiB")
    return " · ".join(parts)
