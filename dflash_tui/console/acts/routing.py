"""Which way a transfer's bytes take, and what was measured of the ways before."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from dflash_tui.console import events as happened
from dflash_tui.hosts.base import Host
from dflash_tui.transfer.choice import RouteChooser, Wanted, make_chooser
from dflash_tui.transfer.direct import reachable
from dflash_tui.transfer.engine import Route

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

_RATES = "rates.json"
_VERSION = 2
"""Of version 1 nobody knows which speeds were those of a limit."""

Known = dict[tuple[str, str], dict[Route, float]]
"""Bytes per second by route, by (source, destination)."""


def wanted_route(console: Console, route: Wanted | None) -> Wanted:
    """What was asked for, else what the config says."""
    return route or cast("Wanted", console.config.transfer.route)


@asynccontextmanager
async def chosen(
    console: Console, source: Host, destination: Host, folder: str, route: Wanted | None
) -> AsyncIterator[RouteChooser]:
    """What chooses the engines of a transfer into `folder`; what it measured is kept for the next one between these
    hosts, and what it dropped is told where another way than through here was asked for."""
    wanted = wanted_route(console, route)
    item = console.config.hosts.get(destination.name)
    find = partial(reachable, source, destination, folder, item.direct if item is not None else "")
    path = console.store.state / _RATES
    known = _read(path)
    chooser = make_chooser(source, destination, wanted, find, known, console.pace.undisturbed)
    try:
        yield chooser
    finally:
        await chooser.close()
        if wanted != "relay":
            for note in dict.fromkeys(chooser.notes):
                console.emit(happened.Noticed("info", note))
        _keep(path, (source.name, destination.name), chooser.rates)


def _read(path: Path) -> Known:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        ways = data["ways"] if data["version"] == _VERSION else []
        routes = get_args(Route)
        return {
            (str(way["source"]), str(way["destination"])): {
                route: float(rate) for route, rate in way["rates"].items() if route in routes and float(rate) > 0
            }
            for way in ways
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}  # it only spares a trial


def _keep(path: Path, hosts: tuple[str, str], rates: dict[Route, float]) -> None:
    known = _read(path)  # another console may have kept something meanwhile
    if not rates or known.get(hosts) == rates:
        return
    known[hosts] = rates
    ways = [{"source": one, "destination": other, "rates": kept} for (one, other), kept in known.items()]
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"version": _VERSION, "ways": ways}, indent=1), encoding="utf-8")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
