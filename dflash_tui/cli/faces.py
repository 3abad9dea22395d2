"""The app, and the demo with or without it."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from dflash_tui.cli.exits import DONE, FAILED, USAGE
from dflash_tui.cli.printing import narrate, print_answer
from dflash_tui.cli.running import config_path, open_store, run_async

if TYPE_CHECKING:
    from dflash_tui.console.session import Shown


def app(arguments: argparse.Namespace) -> int:
    """The app over the configured hosts."""
    from dflash_tui.config import load_config
    from dflash_tui.tui.terminal import refusal

    if sentence := refusal():
        print(sentence, file=sys.stderr)
        return USAGE
    from dflash_tui.console.links import check_launchers
    from dflash_tui.console.session import Session
    from dflash_tui.console.state import State, TrainingPane

    config = load_config(config_path(arguments))
    check_launchers(config)
    session = Session(config, open_store(arguments))
    named = State(training=TrainingPane(name=config.training.name, host=config.training.host))
    return run_async(_face(session, theme=arguments.theme or config.theme, state=named))


async def _face(shown: Shown, **options: Any) -> int:
    """The app until it is quit; then what it was shown is closed."""
    from platformdirs import user_config_path

    from dflash_tui.tui.start import make_app

    shown_app = make_app(connect=shown.connect, themes=(user_config_path("dflash-tui") / "themes",), **options)
    try:
        await shown_app.run_async()
    finally:
        await shown.close()
    return shown_app.return_code or DONE


def demo(arguments: argparse.Namespace) -> int:
    """The demo, in the app or headless."""
    if importlib.util.find_spec("torch") is None:
        print(
            "dflash-tui: the demo trains and evaluates, which needs torch; install it with: "
            f"{sys.executable} -m pip install 'dflash-tui[eval]'",
            file=sys.stderr,
        )
        return FAILED
    if arguments.headless:
        return _headless_demo(arguments)
    from dflash_tui.tui.terminal import refusal

    if sentence := refusal():
        print(sentence.replace("dflash-tui status", "dflash-tui demo --headless"), file=sys.stderr)
        return USAGE
    from dflash_tui.demo.session import DemoSession

    theme = {"theme": arguments.theme} if arguments.theme else {}
    return run_async(_face(DemoSession(block_size=arguments.block_size), **theme))


def _headless_demo(arguments: argparse.Namespace) -> int:
    from dflash_tui.demo.session import run_headless

    async def work() -> int:
        answer = await run_headless(narrate, block_size=arguments.block_size, all_prompts=arguments.capture)
        print_answer(answer, arguments)
        return DONE

    return run_async(work())
