"""Try every host, path, program and permission of a config, and say of each what works and what to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dflash_tui.config import Config, ConfigError, load_config
from dflash_tui.console.answers import Check, CheckItem
from dflash_tui.console.checks import baselines, evaluation, harness, hosts, training, workstation
from dflash_tui.console.checks.items import GROUPS, Group, Items, Reached, failed
from dflash_tui.console.checks.training import Training
from dflash_tui.console.console import Console
from dflash_tui.console.links import make_hosts
from dflash_tui.hosts.asking import Ask, Asker
from dflash_tui.hosts.base import HostError
from dflash_tui.results.store import Store

T = TypeVar("T")
Say = Callable[[str], None]

CONFIG = Group("config")
OWN_HARNESS_NEEDS_NONE = ("torch", "hidden states", "drafter", "memory")


async def check(path: Path, store: Store, say: Say, ask: Ask | None = None) -> Check:
    """Look at all that the config at `path` names. `say` is told what is being tried, `ask` about unknown host keys.

    Nothing is left on any host but the harness file, which an evaluation would leave there too. What goes wrong is an
    item, never an exception.
    """
    began = time.monotonic()
    try:
        config = load_config(path)
        make_hosts(config)  # a launcher that can't be one is a mistake in the config
    except (ConfigError, HostError) as error:
        items = [CONFIG.fail("config", str(error))]
        items += [Group(name).skip(name, "the config can't be used") for name in GROUPS[1:]]
    else:
        items = [_config(config), *await _all(config, store, say, ask)]
    return _check(str(path), items, time.monotonic() - began)


def _config(config: Config) -> CheckItem:
    doing = "watches and evaluates" if config.evaluation is not None else "only watches: it has no [evaluation]"
    return CONFIG.ok("config", f"{config.path} can be read; it {doing}")


async def _all(config: Config, store: Store, say: Say, ask: Ask | None) -> Items:
    asker = Asker(ask) if ask is not None else None
    console = Console(config, store, make_hosts(config, asker))
    running: list[asyncio.Task[Any]] = []

    def begin(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        running.append(asyncio.create_task(work))
        return running[-1]

    try:
        looks = hosts.begin(console, asker, say)
        running += looks.values()
        reached = {name: begin(_reached(look)) for name, look in looks.items()}
        here = begin(_here())
        ready = begin(workstation.look(config, store))
        watched = begin(_training(console, reached.get(config.training.host, here), say))
        judged = begin(_evaluation(console, reached, here, watched, say))
        compared = begin(baselines.look(console, reached))
        items = [*await ready]
        for look in looks.values():
            items += (await look)[0]
        items += (await watched)[0].items
        return [*items, *await judged, *await compared]
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if asker is not None:
            await asker.close()
        await console.close()


async def _reached(look: asyncio.Task[tuple[Items, Reached]]) -> Reached:
    return (await asyncio.shield(look))[1]


async def _here() -> Reached:
    return Reached("local")


async def _training(console: Console, host: asyncio.Task[Reached], say: Say) -> tuple[Training, Reached]:
    reached = await asyncio.shield(host)
    if reached.cause:
        names = ("log", "checkpoints", *(("arguments",) if console.config.training.arguments else ()))
        return Training([training.GROUP.skip(name, reached.cause) for name in names]), reached
    say(f"{reached.name}: the training's log and checkpoints …")
    return await training.look(console), reached


async def _evaluation(
    console: Console,
    reached: dict[str, asyncio.Task[Reached]],
    here: asyncio.Task[Reached],
    watched: asyncio.Task[tuple[Training, Reached]],
    say: Say,
) -> Items:
    """Evaluation, and after it the user's own harness, which is looked at by the same file on that host."""
    if console.config.evaluation is None:
        return []
    host = await asyncio.shield(reached.get(console.config.evaluation.host, here))
    if not host.cause:
        say(f"{host.name}: Python, torch, target, prompts, hidden states …")
    items = await evaluation.look(console, host, watched)
    if console.config.harness is None:
        return items
    cause = "the evaluation host can't run the harness" if failed(items, "python", "root", "space") else ""
    own = await harness.look(console, host, cause)
    return [*(_needless(item) for item in items), *own]


def _needless(item: CheckItem) -> CheckItem:
    """A failure that a script of the user's own does not mind."""
    if item.state != "fail" or not item.name.startswith(OWN_HARNESS_NEEDS_NONE):
        return item
    return replace(item, state="warn", sentence=f"{item.sentence} (your own harness may not need it)")


def _check(path: str, items: Items, seconds: float) -> Check:
    order = {name: number for number, name in enumerate(GROUPS)}
    ordered = tuple(sorted(items, key=lambda item: order[item.group]))
    count = {state: sum(item.state == state for item in ordered) for state in ("fail", "warn")}
    return Check(path, ordered, count["fail"], count["warn"], round(seconds, 2))
