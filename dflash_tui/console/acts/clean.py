"""Take from the evaluation host what we have left there and nobody uses; never a run directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_tui.evals import leftovers
from dflash_tui.records.leftovers import Leftovers

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


async def clean(console: Console, *, checkpoints: bool = False, dry_run: bool = False) -> Leftovers:
    """Remove unfinished pieces, temporary files and harness files of other versions, and with `checkpoints` fetched
    checkpoints; what may be in use stays, and is told with the reason. `dry_run` removes nothing. Raises TROUBLE."""
    settings = console.evaluation
    return await leftovers.clean(
        console.evaluation_host,
        settings.python,
        settings.root,
        settings.hidden_states,
        checkpoints=checkpoints,
        remove=not dry_run,
    )
