"""The commands of a demo host that tell about the machine, and the one that runs a real program: Python."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import site
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dflash_tui.demo.commands import REFUSED, Answer, Call, Command, Short, Writer
from dflash_tui.demo.confine import Folder
from dflash_tui.demo.reaper import MARK
from dflash_tui.hosts.running import together

_PASSED_ON = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Without these the interpreter that runs us may not start; nothing else of the user's environment is passed on."""


def environment(root: str, home: str) -> dict[str, str]:
    """The whole environment of a demo's process: `root` is the demo's folder (its mark), `home` the side's."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if site.ENABLE_USER_SITE:
        # HOME moves, and torch may be installed for the user only.
        passed["PYTHONUSERBASE"] = site.getuserbase()
    return passed | {
        MARK: root,
        "HOME": home,
        "TMPDIR": os.path.join(home, "tmp"),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        # As the `date` below: stamps in logs and the clock that dates them must be of one zone.
        "TZ": "UTC",
        # OpenMP's threads spin: two of them on two busy cores are twenty times slower than one.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def python(root: str) -> Command:
    """`python3 ARCHIVE.pyz [ARGUMENT]...`: a real process of this Python, for archives below the side's folder only."""

    async def command(call: Call) -> int:
        if not call.argv[1:] or not call.argv[1].endswith(".pyz"):
            await call.complain("the demo's host runs only .pyz archives that lie in its folder")
            return REFUSED
        for word in call.argv[1:]:
            if word.startswith("/"):
                try:
                    call.side.folder.resolve(word)
                except PermissionError:
                    await call.complain(f"{word}: Permission denied")
                    return REFUSED
        archive = Path(call.side.folder.resolve(call.argv[1]))
        if not await asyncio.to_thread(archive.is_file):
            await call.complain(f"can't open file '{call.argv[1]}': [Errno 2] No such file or directory")
            return 2
        argv = [sys.executable, str(archive), *call.argv[2:]]
        return await process(call, argv, environment(root, call.side.folder.root))

    return command


async def process(call: Call, argv: list[str], env: Mapping[str, str]) -> int:
    """Run a process in a session of its own between the call's streams. It ends with the call, unless it detached."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=call.side.folder.root,
        env=env,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    feeding = asyncio.create_task(_feed(call, process.stdin))
    try:
        await together(_forward(process.stdout, call.stdout), _forward(process.stderr, call.stderr))
        status = await process.wait()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return status if status >= 0 else 128 - status


async def _feed(call: Call, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while data := await call.stdin.read(1 << 16):
            sink.write(data)
            await sink.drain()
        sink.close()


async def _forward(source: asyncio.StreamReader, sink: Writer) -> None:
    while data := await source.read(1 << 16):
        await sink.write(data)


def date(folder: Folder, words: Sequence[str]) -> Answer:
    """`date [-u] [+FORMAT]`, with `%N`; the demo's hosts live in UTC."""
    form = next((word[1:] for word in words if word.startswith("+")), "%a %b %e %H:%M:%S UTC %Y")
    seconds, rest = divmod(time.time_ns(), 10**9)
    form = form.replace("%N", f"{rest:09d}").replace("%s", str(seconds)).replace("%z", "+0000")
    return Answer(time.strftime(form, time.gmtime(seconds)) + "\n")


def uname(folder: Folder, words: Sequence[str]) -> Answer:
    """`uname [-s] [-r] [-m] [-a]`"""
    system = os.uname()
    parts = {"s": system.sysname, "r": system.release, "m": system.machine}
    asked = "".join(word.lstrip("-") for word in words) or "s"
    return Answer(" ".join(text for key, text in parts.items() if key in asked or "a" in asked) + "\n")


def nproc(folder: Folder, words: Sequence[str]) -> Answer:
    """`nproc`"""
    return Answer(f"{os.cpu_count() or 1}\n")


def true(folder: Folder, words: Sequence[str]) -> Answer:
    """`true`"""
    return Answer()


MACHINE: dict[str, Short] = {
    "date": date,
    "nproc": nproc,
    "true": true,
    "uname": uname,
}
