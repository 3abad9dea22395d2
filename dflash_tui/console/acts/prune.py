"""Take old fetched checkpoints of the watched training from the evaluation host; never one that is referred to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dflash_tui.evals import leftovers
from dflash_tui.records.leftovers import Leftovers
from dflash_tui.records.pruning import Protected, PruneRequest
from dflash_tui.results.evaluation import read_manifest

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

KEEP = 3
"""How many of the newest stay where neither a number nor an age is asked for."""

DAY = 86400.0


async def prune(
    console: Console, *, keep: int | None = None, older_than_days: float | None = None, remove: bool = False
) -> Leftovers:
    """What goes (without `remove`: would go), and what stays with the reason. `keep` newest ones stay, and with
    `older_than_days` those that were saved later; the newest always does. Raises TROUBLE."""
    settings = console.evaluation
    if keep is None:
        keep = KEEP if older_than_days is None else 1
    request = PruneRequest(
        settings.root,
        console.config.training.name,
        keep,
        None if older_than_days is None else older_than_days * DAY,
        tuple(_protected(console)),
        remove,
    )
    return await leftovers.prune(console.evaluation_host, settings.python, request)


def _protected(console: Console) -> Iterator[Protected]:
    """What pins and the config refer to. A pin that can't be read is an error: what it refers to is not known then."""
    here = console.evaluation_host.name
    pins = console.store.pins
    for name, pin in pins.entries().items():
        why, evaluation = f"pin {name} is of it", pins.load(name)
        if (pins.folder / pin.sha256 / "manifest.json").exists():
            of = read_manifest(pins.folder / pin.sha256).checkpoint
            yield Protected(why, host=of.host, source=of.path)
            if of.host == here:  # it may be the fetched copy itself that was evaluated
                yield Protected(why, path=of.path)
        elif evaluation.checkpoint_path:
            yield Protected(why, path=evaluation.checkpoint_path)
    for baseline in console.config.baselines:
        if baseline.drafter:
            why, host = f"baseline {baseline.name} names it", baseline.host or here
            at = {"path": baseline.drafter} if host == here else {"host": host, "source": baseline.drafter}
            yield Protected(why, **at)
    if config := console.config.drafter.get("config"):
        yield Protected("[drafter] names its config", path=str(config))
