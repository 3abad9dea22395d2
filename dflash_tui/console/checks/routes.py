"""By which ways checkpoints can come from the training's host to the one that evaluates: tried, with a few bytes."""

from __future__ import annotations

from dflash_tui.console.checks.items import Group, Items, Reached, bounded
from dflash_tui.console.console import Console
from dflash_tui.transfer.direct import reachable
from dflash_tui.transfer.joined import unusable

GROUP = Group("evaluation")
SECONDS = 60.0


async def look(console: Console, source: Reached) -> Items:
    """The way through this machine, and the direct one where the config allows it or says how it goes."""
    if source.cause:
        return [GROUP.skip("route", source.cause)]
    if console.training_host.name == console.evaluation_host.name:
        return [GROUP.ok("route", "training and evaluation are on one host: checkpoints are linked there")]
    items = await bounded(GROUP, "route", lambda: _relay(console), SECONDS)
    if console.config.transfer.route != "relay" or _target(console):
        items += await bounded(GROUP, "direct route", lambda: _direct(console), SECONDS)
    return items


def _target(console: Console) -> str:
    item = console.config.hosts.get(console.evaluation_host.name)
    return item.direct if item is not None else ""


async def _relay(console: Console) -> Items:
    source, destination = console.training_host, console.evaluation_host
    why_not = await unusable(source, destination)
    how = f"by one process ({why_not})" if why_not else "by one process, or by two ssh and a pipe where that is faster"
    return [GROUP.ok("route", f"{source.name} to {destination.name} through this machine, {how}")]


async def _direct(console: Console) -> Items:
    source, destination, wanted = console.training_host, console.evaluation_host, console.config.transfer.route
    found = await reachable(source, destination, console.evaluation.root, _target(console))
    if not isinstance(found, str):
        unused = "; transfer.route = 'relay' leaves it unused" if wanted == "relay" else ""
        return [GROUP.ok("direct route", f"{source.name} reaches {found.target} itself{unused}")]
    if wanted == "direct":
        return [GROUP.fail("direct route", f"{found}; transfer.route = 'direct' allows no other, 'auto' or 'relay' do")]
    return [GROUP.warn("direct route", f"{found}; checkpoints go through this machine")]
