"""Programs of ours that are sent to a Python on a host as they are, with nothing installed there."""

from __future__ import annotations

from importlib.resources import files

from dflash_tui.evals.errors import EvaluationError
from dflash_tui.hosts.base import CommandFailed, Host
from dflash_tui.records.codec import RecordError, dumps, loads
from dflash_tui.records.leftovers import Leftovers

_ROOM = "dflash_tui.harness"
_LOADER = """import sys, types
for name in ("dflash_tui", "dflash_tui.harness"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, text in {sources!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main(sys.argv[1])
"""


def program(*names: str) -> bytes:
    """Modules of the harness, each with those it imports before it, as one program that runs the last one's `main`."""
    room = files("dflash_tui") / "harness"
    sources = [(f"{_ROOM}.{name}", (room / f"{name}.py").read_text(encoding="utf-8")) for name in names]
    return _LOADER.format(sources=sources).encode()


async def ask(
    host: Host, python: str, names: tuple[str, ...], request: object, about: str, seconds: float
) -> Leftovers:
    """What the program answers to a request. Raises EvaluationError naming what to set, HostError."""
    try:
        done = await host.run([python, "-", dumps(request)], stdin=program(*names), timeout=seconds)
    except CommandFailed as error:
        if error.status in (126, 127):
            raise EvaluationError(
                f"{host.name}: {python} can't be run; set evaluation.python to a Python ≥ 3.10"
            ) from error
        raise EvaluationError(f"{host.name}: looking for {about} failed: {error}") from error
    try:
        return loads(Leftovers, done.stdout, f"{host.name}: {about}")
    except RecordError as error:
        raise EvaluationError(str(error)) from error
