"""What this machine leaves us: memory, cores, and a place behind everybody else's work."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from pathlib import Path

NICENESS = 10
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""cgroup v1 says "no limit" as a number of about 2⁶³."""

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "ppc64le": 273}
_THIS_PROCESS, _IDLE = 1, 3 << 13


def step_aside() -> None:
    """Run at nice 10, and where the kernel takes it read and write only when nobody else does."""
    os.nice(max(0, NICENESS - os.nice(0)))
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):  # no such libc: then nice alone has to do
            ctypes.CDLL(None).syscall(number, _THIS_PROCESS, 0, _IDLE)


def memory_total(proc: Path = PROC) -> int | None:
    """The machine's memory in bytes; None where the system does not tell."""
    return _meminfo(proc).get("MemTotal")


def memory_limit(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """The smallest memory limit of the control groups that hold this process (v2 and v1), bytes; None without one."""
    return min((limit for limit, _ in _limits(proc, cgroups)), default=None)


def memory_left(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """What a process may still take without anything being killed: what the machine has available, and no more than
    every control group's limit leaves beside what it holds and can't give back."""
    left = [limit - held for limit, held in _limits(proc, cgroups)]
    available = _meminfo(proc).get("MemAvailable")
    if available is not None:
        left.append(available)
    return max(0, min(left)) if left else None


def cpus_usable(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Cores that this process may keep busy: its affinity, and no more than a control group's quota pays for."""
    quotas = [int(quota) for quota in _quotas(proc, cgroups)]
    return max(1, min([len(os.sched_getaffinity(0)), *quotas]))


def _limits(proc: Path, cgroups: Path) -> Iterator[tuple[int, int]]:
    """Limit, and what of it is held for good (files' pages are given back), of every group that limits memory."""
    for group in _groups(proc, cgroups, "memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _number(group / limit_name), _number(group / used_name)
            if limit is not None and limit < _NO_LIMIT:
                yield limit, max(0, (used or 0) - _given_back(group / "memory.stat"))


def _given_back(stat: Path) -> int:
    """Bytes of files' pages; in v1 the `total_` figures are the ones that hold the groups below, too."""
    found = dict(line.split(maxsplit=1) for line in _text(stat).splitlines() if " " in line)
    total = "total_" if "total_inactive_file" in found else ""
    return sum(int(found.get(f"{total}{name}", 0)) for name in ("inactive_file", "active_file"))


def _quotas(proc: Path, cgroups: Path) -> Iterator[float]:
    for group in _groups(proc, cgroups, "cpu"):
        quota, _, period = _text(group / "cpu.max").strip().partition(" ")
        if not quota:
            quota, period = (_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and int(period):  # "max" and "-1": no quota
            yield int(quota) / int(period)


def _groups(proc: Path, cgroups: Path, controller: str) -> Iterator[Path]:
    """The folders of the control groups that this process is in, from the innermost out to the mount's own.

    Inside a container the path that /proc tells may be the host's; what it leads to is not there then, and the mount's
    own folder is the container's group.
    """
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        mount = cgroups / controller if names else cgroups
        inside = mount / path.lstrip("/")
        yield from (folder for folder in (inside, *inside.parents) if folder == mount or mount in folder.parents)


def _meminfo(proc: Path) -> dict[str, int]:
    """MemTotal and MemAvailable in bytes; what the system does not tell is left out."""
    found: dict[str, int] = {}
    for line in _text(proc / "meminfo").splitlines():
        key, _, rest = line.partition(":")
        if key in ("MemTotal", "MemAvailable"):
            found[key] = int(rest.split()[0]) * 1024
    return found


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None  # "max" is no limit


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
