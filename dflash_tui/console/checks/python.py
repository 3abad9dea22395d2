"""Whether the evaluation host's Python can run the harness: its age, and torch."""

from __future__ import annotations

import json
import shlex
from typing import Any

from dflash_tui.console.answers import CheckItem
from dflash_tui.console.checks.items import Group, Items
from dflash_tui.console.console import Console
from dflash_tui.hosts.base import Completed, HostError

GROUP = Group("evaluation")
OLDEST = (3, 10)
START_SECONDS = 30.0
IMPORT_SECONDS = 150.0  # torch from a cold network disk takes minutes
WANTED = "expected 3.10 or newer with torch: set evaluation.python to one"

# Any Python since 2.6 says how old it is.
_VERSION = (
    "import sys; sys.stdout.write('dflash %d.%d.%d %s\\n' % (sys.version_info[:3] + (sys.executable or 'python',)))"
)
_PACKAGES = """
import importlib.metadata as metadata, json
found = {}
try:
    found["torch"] = metadata.version("torch")
except metadata.PackageNotFoundError:
    found["torch"] = ""
try:
    import torch
    found["torch"], found["broken"] = torch.__version__, ""
except BaseException as error:
    found["broken"] = "%s: %s" % (type(error).__name__, error)
print("dflash " + json.dumps(found))
"""


async def look(console: Console) -> Items:
    """The interpreter, then its packages."""
    host, python = console.evaluation_host, console.evaluation.python
    done = await host.run([python, "-c", _VERSION], check=False, timeout=START_SECONDS)
    version = _version(done)
    if version is None:
        said = _last(done)
        if done.status in (126, 127):
            return [GROUP.fail("python", f"{host.name}: {python} can't be run ({said}); {WANTED}")]
        return [
            GROUP.fail(
                "python", f"{host.name}: {python} is no Python that works (status {done.status}: {said}); {WANTED}"
            )
        ]
    number, executable = version
    shown = ".".join(map(str, number))
    if number[:2] < OLDEST:
        return [GROUP.fail("python", f"{host.name}: {python} is Python {shown} ({executable}), {WANTED}")]
    itself = f" ({executable})" if executable != python else ""
    items = [GROUP.ok("python", f"{host.name}: {python} is Python {shown}{itself}")]
    try:
        found = _packages(await host.run([python, "-c", _PACKAGES], check=False, timeout=IMPORT_SECONDS))
    except HostError as error:
        return [*items, GROUP.fail("torch", f"{error}; expected torch to be imported")]
    return [*items, _judged(host.name, python, shown, found)]


def _judged(host: str, python: str, version: str, found: dict[str, Any]) -> CheckItem:
    install = shlex.join([python, "-m", "pip", "install"])
    broken = str(found.get("broken", "it said nothing"))
    if not found.get("torch"):
        return GROUP.fail(
            "torch",
            f"{host}: {python} (Python {version}) has no torch, expected one: install it with "
            f"`{install} torch --index-url https://download.pytorch.org/whl/cpu`, or set evaluation.python to a "
            "Python that has it",
        )
    if broken:
        return GROUP.fail(
            "torch",
            f"{host}: torch {found['torch']} can't be imported by {python} ({broken}); install it anew, or set "
            "evaluation.python to a Python whose torch works",
        )
    return GROUP.ok("torch", f"{host}: torch {found['torch']}")


def _version(done: Completed) -> tuple[tuple[int, ...], str] | None:
    for line in done.text.splitlines():
        words = line.split(None, 2)
        if len(words) == 3 and words[0] == "dflash" and words[1].replace(".", "").isdecimal():
            return tuple(map(int, words[1].split("."))), words[2]
    return None


def _packages(done: Completed) -> dict[str, Any]:
    for line in done.text.splitlines():
        if line.startswith("dflash {"):
            found = json.loads(line.removeprefix("dflash "))
            if isinstance(found, dict):
                return found
    return {"torch": "", "broken": _last(done)} if done.status == 0 else {"torch": "?", "broken": _last(done)}


def _last(done: Completed) -> str:
    lines = [line.strip() for line in (done.stderr or done.text).splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"status {done.status}"
