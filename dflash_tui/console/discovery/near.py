"""JSON files that lie in a folder or beside it and that a config may name: older results, configs of drafters."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dflash_tui.console.discovery.evaluation import describes_drafter, json_object
from dflash_tui.console.discovery.offers import Offer
from dflash_tui.console.discovery.searching import head, search
from dflash_tui.hosts.base import Host
from dflash_tui.results.errors import ResultError
from dflash_tui.results.importers import read_content

_DEPTH = 2  # folders below
_MOST_READ = 40
_OFFERED = 6
_BYTES = 4 << 20
_OWN = ("/runs/", "/checkpoints/", "/hidden_states/")


@dataclass(frozen=True)
class FoundNear:
    """Offers, newest first."""

    drafters: tuple[Offer, ...] = ()
    results: tuple[Offer, ...] = ()


async def find_near(host: Host, root: str, also: Sequence[str] = ()) -> FoundNear:
    """Look in a folder, in the one that it lies in, and in those of `also`. Raises HostError when the host can't be
    asked."""
    above = posixpath.dirname(root.rstrip("/"))
    places = [place for place in (root, above) if place not in ("", "/")]
    seen, _ = await search(host, places, ("*.json",), named=also, depth=_DEPTH)
    drafters, results = [], []
    for item in [item for item in seen if not any(part in item.path for part in _OWN)][:_MOST_READ]:
        data = await head(host, item, _BYTES)
        found = json_object(data)
        if describes_drafter(found):
            drafters.append(Offer(item.path, "describes a drafter"))
        elif found and _is_result(item.path, data):
            results.append(Offer(item.path, "a result"))
    return FoundNear(tuple(drafters[:_OFFERED]), tuple(results[:_OFFERED]))


def _is_result(path: str, data: bytes) -> bool:
    try:
        read_content(Path(path), data, "found")
    except ResultError:
        return False
    return True
