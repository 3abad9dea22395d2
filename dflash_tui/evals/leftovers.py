"""What is left of us on an evaluation host beside run directories and what is in use; asked and taken away there."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_tui.evals.sent import ask
from dflash_tui.evals.ship import harness_file
from dflash_tui.hosts.base import Host
from dflash_tui.records.leftovers import CleanRequest, Leftovers
from dflash_tui.records.pruning import PruneRequest

CLEAN_SECONDS = 600.0


async def clean(
    host: Host, python: str, root: str, features: Sequence[str], *, checkpoints: bool, remove: bool
) -> Leftovers:
    """Look at `root`, and with `remove` take away what nobody uses; with `checkpoints` fetched ones, too. Nothing is
    installed for it there. Raises EvaluationError, HostError."""
    request = CleanRequest(root, harness_file().name, tuple(features), checkpoints, remove)
    return await ask(host, python, ("looking", "leftovers"), request, "leftovers", CLEAN_SECONDS)


async def prune(host: Host, python: str, request: PruneRequest) -> Leftovers:
    """Look at a training's fetched checkpoints, and take away old ones when that is asked. Nothing is installed for it
    there. Raises EvaluationError, HostError."""
    return await ask(host, python, ("looking", "pruning"), request, "fetched checkpoints", CLEAN_SECONDS)
