"""A training on a host, found by looking: its log, the folder that it saves in, its arguments."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dflash_tui.checkpoints.layouts import holds_weights
from dflash_tui.checkpoints.listing import Candidate, Listed, candidates, is_part
from dflash_tui.checkpoints.opening import WEIGHT_SUFFIXES
from dflash_tui.console.discovery.offers import Offer
from dflash_tui.console.discovery.processes import Work, look_at_work
from dflash_tui.console.discovery.searching import Seen, home_of, look_at, search, tail, usual_places
from dflash_tui.console.quantities import ago, counted
from dflash_tui.hosts.base import Host
from dflash_tui.watch.arguments import read_arguments, training_facts
from dflash_tui.watch.clock import HostClock, read_clock
from dflash_tui.watch.fold import Fold
from dflash_tui.watch.lines import LineSplitter
from dflash_tui.watch.progress import Progress

_LOGS = ("*.log", "*.out", "*.err", "*.txt", "*.jsonl")
_WEIGHTS = (*(f"*{suffix}" for suffix in (*WEIGHT_SUFFIXES, ".index.json", ".distcp")), ".metadata")
_ARGUMENTS = ("*args*.json", "*arguments*.json")
_TAIL = 64 << 10
_MOST_LOGS = 16
_MOST_ARGUMENTS = 4
_OFFERED = 6


@dataclass(frozen=True)
class FoundTraining:
    """Offers for each key of [training], the likeliest first. `whole` is False when a limit ended the search."""

    logs: tuple[Offer, ...] = ()
    checkpoints: tuple[Offer, ...] = ()
    arguments: tuple[Offer, ...] = ()
    whole: bool = True


async def find_training(host: Host, also: Sequence[str] = ()) -> FoundTraining:
    """Look around on a host; what lies in the folders `also` comes first. Raises HostError when it can't be asked."""
    clock = await read_clock(host)
    work = await look_at_work(host)
    places = (*work.folders, *usual_places(await home_of(host)))
    seen, whole = await search(host, places, (*_LOGS, *_WEIGHTS, *_ARGUMENTS), named=also)
    logs = await _logs(host, seen, work, clock)
    log = logs[0].value if logs else ""
    checkpoints = checkpoint_folders(seen, clock, beside=log)
    folder = checkpoints[0].value if checkpoints else ""
    arguments = await _arguments(host, seen, {posixpath.dirname(path) for path in (log, folder) if path} | {folder})
    return FoundTraining(logs, checkpoints, arguments, whole)


async def _logs(host: Host, seen: Sequence[Seen], work: Work, clock: HostClock) -> tuple[Offer, ...]:
    """Files whose end names a training step; those that a process has open come first, then the newest."""
    held = work.outputs | work.files
    unseen = sorted(work.outputs - {item.path for item in seen})
    likely = [item for item in (*await look_at(host, unseen), *seen) if _may_be_log(item, work)]
    likely.sort(key=lambda item: (not item.named, item.path not in held, -item.mtime))
    offers = []
    for item in likely[:_MOST_LOGS]:
        data, begin = await tail(host, item, _TAIL)
        progress = _progress(data, begin)
        if progress.step is not None:
            total = f" of {progress.total:,}" if progress.total else ""
            running = ", open in a process" if item.path in held else ""
            offers.append(Offer(item.path, f"step {progress.step:,}{total}, written {_age(item, clock)}{running}"))
    return tuple(offers[:_OFFERED])


def _may_be_log(item: Seen, work: Work) -> bool:
    named = item.name.endswith(tuple(pattern[1:] for pattern in _LOGS))
    return item.size > 0 and (named or item.path in work.outputs)


def _progress(data: bytes, begin: int) -> Progress:
    fold, splitter = Fold(), LineSplitter(begin, None, partial_head=begin > 0)
    for line in splitter.feed(data, None):
        fold.add(line)
    if last := splitter.close():
        fold.add_unfinished(last)
    return fold.snapshot(time.time())


def checkpoint_folders(seen: Iterable[Seen], clock: HostClock, *, beside: str = "") -> tuple[Offer, ...]:
    """The folders that numbered checkpoints lie in; those below the folder of `beside` first, then the newest."""
    inside: dict[str, list[Seen]] = {}
    for item in seen:
        if holds_weights(item.name) or item.name.endswith((".index.json", ".distcp", ".metadata")):
            inside.setdefault(item.folder, []).append(item)
    roots = {root for folder in inside for root in _roots(folder) if root != "/"}
    found = {root: _numbered(root, inside) for root in roots}
    parts = {item.path for items in found.values() for item in items}  # a checkpoint itself is no folder of them
    near = f"{posixpath.dirname(beside).rstrip('/')}/" if beside else ""
    offers = []
    for root, items in found.items():
        if items and root not in parts:
            newest = max(items, key=lambda item: item.mtime)
            step = f"step {newest.step:,}" if newest.step is not None else newest.name
            age = ago(max(0.0, time.time() - clock.here(newest.mtime)))
            far = not near or not f"{root}/".startswith(near)
            why = f"{counted(len(items), 'checkpoint')}, newest {step}, saved {age}"
            offers.append((far, newest.step is None, -newest.mtime, root, why))
    return tuple(Offer(root, why) for *_, root, why in sorted(offers)[:_OFFERED])


def _roots(folder: str) -> Iterator[str]:
    """The folders that checkpoints may lie in when weights lie in this one: it, those above what is inside one, and the
    one above."""
    yield folder
    while is_part(posixpath.basename(folder)):
        folder = posixpath.dirname(folder)
        yield folder
    yield posixpath.dirname(folder)


def _numbered(root: str, inside: Mapping[str, Sequence[Seen]]) -> list[Candidate]:
    """The numbered checkpoints below a folder, as its listing would tell them."""
    below: dict[str, set[str]] = {}
    for path in inside:
        while path != root and path.startswith(f"{root}/"):
            above = posixpath.dirname(path)
            if above == root or is_part(posixpath.basename(path)):
                below.setdefault(above, set()).add(posixpath.basename(path))
            path = above

    def listing(path: str) -> list[Listed]:
        folders = [Listed(name, "folder") for name in sorted(below.get(path, ()))]
        return [*folders, *(Listed(item.name, "file", mtime=item.mtime) for item in inside.get(path, ()))]

    found = candidates(root, listing(root), listing)
    return [item for item in found if item.path != root and (item.step is not None or item.order >= 0)]


async def _arguments(host: Host, seen: Sequence[Seen], folders: set[str]) -> tuple[Offer, ...]:
    """The trainer's arguments beside the log or the checkpoints; those that name a block size first."""
    offers = []
    likely = [item for item in seen if item.folder in folders and item.name.endswith(".json") and "arg" in item.name]
    for item in likely[:_MOST_ARGUMENTS]:
        read = await read_arguments(host, item.path)
        if read is not None and not read.problem:
            facts = training_facts(host.name, "", None, (), read, now=time.time())
            sizes = [fact.value for fact in facts if fact.kind == "train.block_size"]
            offers.append(Offer(item.path, f"block size {sizes[0]}" if sizes else "names no block size"))
    return tuple(sorted(offers, key=lambda offer: offer.why.startswith("names no")))


def _age(item: Seen, clock: HostClock) -> str:
    return ago(max(0.0, time.time() - clock.here(item.mtime)))
