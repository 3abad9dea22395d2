"""The commands that answer: parse nothing, call an act, print what it answers."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_tui.cli.exits import DONE, NOT_COMPARABLE
from dflash_tui.cli.printing import print_answer
from dflash_tui.cli.running import config_path, open_console, open_store, run_async

if TYPE_CHECKING:
    from dflash_tui.records.result import Evaluation


def online(name: str) -> Callable[[argparse.Namespace], int]:
    """A command that needs hosts."""

    def run(arguments: argparse.Namespace) -> int:
        from dflash_tui.config import load_config
        from dflash_tui.console.acts import headless

        async def work() -> int:
            async with open_console(load_config(config_path(arguments)), open_store(arguments)) as console:
                answer = await headless.COMMANDS[name](console, arguments)
            print_answer(answer, arguments)
            return NOT_COMPARABLE if headless.blocked(answer, arguments) else DONE

        return run_async(work())

    return run


def offline(name: str) -> Callable[[argparse.Namespace], int]:
    """A command that needs only what this workstation keeps."""

    def run(arguments: argparse.Namespace) -> int:
        from dflash_tui.console.acts import kept

        answer = kept.COMMANDS[name](open_store(arguments), arguments)
        print_answer(answer, arguments)
        return NOT_COMPARABLE if kept.blocked(answer) else DONE

    return run


def report(arguments: argparse.Namespace) -> int:
    """The report of a run stands beside the configured baseline, as `eval` does, and says where its training is now,
    when the config still watches that training."""
    from dflash_tui.config import load_config
    from dflash_tui.console.acts import headless, kept, shown
    from dflash_tui.results.baselines import resolve

    store, path = open_store(arguments), config_path(arguments)
    live, previous = None, None
    if path.exists():
        config, trained = load_config(path), kept.trained_as(store, arguments.result)

        async def look() -> tuple[dict[str, Any] | None, Evaluation | None]:
            async with open_console(config, store) as console:
                found = None
                if not arguments.against:
                    found = shown.baseline_or_notice(console, resolve(store, arguments.result))
                watched = trained == config.training.name
                return await headless.live_now(console) if watched else None, found

        live, previous = asyncio.run(look())
    print_answer(kept.report(store, arguments, live, previous), arguments)
    return DONE


def logs(arguments: argparse.Namespace) -> int:
    """The log of a run, or of the training."""
    return (kept_run if arguments.result else online)("logs")(arguments)


def kept_run(name: str) -> Callable[[argparse.Namespace], int]:
    """A command about one run: where its end is not known here, its host is asked first."""

    def run(arguments: argparse.Namespace) -> int:
        from dflash_tui.config import load_config
        from dflash_tui.console.acts import headless, kept

        store, path = open_store(arguments), config_path(arguments)

        async def catch_up(run_id: str) -> None:
            async with open_console(load_config(path), store) as console:
                await headless.catch_up(console, run_id, to_the_end=name == "show")

        if path.exists() and (left := kept.unended(store, arguments.result)):
            asyncio.run(catch_up(left.run_id))
        return offline(name)(arguments)

    return run


def load(arguments: argparse.Namespace) -> int:
    """Pin a result file; one on a host is brought here first."""
    if _is_elsewhere(arguments.file):
        from dflash_tui.config import load_config
        from dflash_tui.console.acts import imported

        async def bring() -> str:
            async with open_console(load_config(config_path(arguments)), open_store(arguments)) as console:
                return str(await imported.brought(console, arguments.file))

        arguments.file = asyncio.run(bring())
    return offline("import")(arguments)


def _is_elsewhere(place: str) -> bool:
    """Whether a place is ``HOST:PATH``, rather than a file of this machine."""
    host, colon, path = place.partition(":")
    return bool(host and colon and path) and "/" not in host and not Path(place).exists()


def keys(arguments: argparse.Namespace) -> int:
    """The app's keys."""
    from dflash_tui.console.answers import Key
    from dflash_tui.tui.actions import ACTIONS

    print_answer(tuple(Key(item.id, item.keys, item.description, item.group) for item in ACTIONS), arguments)
    return DONE
