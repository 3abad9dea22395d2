"""What is left of us on an evaluation host beside run directories and what is in use; asked and taken away there."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from dflash_tui.evals.errors import EvaluationError
from dflash_tui.evals.ship import harness_file
from dflash_tui.hosts.base import CommandFailed, Host
from dflash_tui.records.codec import RecordError, dumps, loads
from dflash_tui.records.leftovers import CleanRequest, Leftovers

CLEAN_SECONDS = 600.0


async def clean(
    host: Host, python: str, root: str, features: Sequence[str], *, checkpoints: bool, remove: bool
) -> Leftovers:
    """Look at `root`, and with `remove` take away what nobody uses; with `checkpoints` fetched ones, too. Nothing is
    installed for it there. Raises EvaluationError, HostError."""
    program = (files("dflash_tui") / "harness" / "leftovers.py").read_bytes()
    request = dumps(CleanRequest(root, harness_file().name, tuple(features), checkpoints, remove))
    try:
        done = await host.run([python, "-", request], stdin=program, timeout=CLEAN_SECONDS)
    except CommandFailed as error:
        if error.status in (126, 127):
            raise EvaluationError(
                f"{host.name}: {python} can't be run; set evaluation.python to a Python ≥ 3.10"
            ) from error
        raise EvaluationError(f"{host.name}: looking for leftovers failed: {error}") from error
    try:
        return loads(Leftovers, done.stdout, f"{host.name}: leftovers")
    except RecordError as error:
        raise EvaluationError(str(error)) from error
