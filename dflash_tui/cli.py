"""The command line: parse, call an act, print. stdout is data, stderr is narration; exit codes mean something.

0 done · 1 failed · 2 usage or config · 3 not comparable, or a gate not met · 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_tui import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dflash_tui.config import Config
    from dflash_tui.console.console import Console
    from dflash_tui.console.session import Shown
    from dflash_tui.results.store import Store

DONE, FAILED, USAGE, NOT_COMPARABLE, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except _trouble() as error:  # looked up only now: the families cost imports
        return _failed(error)


def _trouble() -> tuple[type[Exception], ...]:
    """What is told as one sentence; anything else is a defect and keeps its traceback."""
    from dflash_tui.console.errors import TROUBLE

    return TROUBLE


def _failed(error: Exception) -> int:
    """The sentence may quote a host, so it is shown without control characters."""
    from dflash_tui.config import ConfigError

    sentence = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        sentence = f"{error.filename}: {error.strerror}"
    narrate(f"dflash-tui: {sentence}".replace("\n", " "))
    return USAGE if isinstance(error, ConfigError) else FAILED


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="dflash-tui",
        description="Watch a drafter train, move its newest checkpoint, evaluate it, and know how far to believe it. "
        "Without a command: the app.",
    )
    parser.add_argument("--version", action="version", version=f"dflash-tui {__version__}")
    parser.add_argument("--config", type=Path, help="config file (default: config.toml in the user's config folder)")
    parser.add_argument("--state", type=Path, help="folder that keeps runs and pins (default: the user's state folder)")
    parser.add_argument("--theme", help="theme of the app")
    parser.set_defaults(run=_app, json=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, data: bool = True) -> Any:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        if data:
            sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    command("status", _online("status"), "the training as it is now")
    command("checkpoints", _online("checkpoints"), "the training's checkpoints, newest last")
    fetch = command("fetch", _online("fetch"), "move the newest complete checkpoint to the evaluation host")
    fetch.add_argument("--step", type=_step, help="this step instead of the newest")
    evaluate = command("eval", _online("eval"), "fetch and evaluate the newest complete checkpoint")
    evaluate.add_argument("--preset", choices=("quick", "full"), default="quick")
    evaluate.add_argument("--step", type=_step, help="this step instead of the newest")
    evaluate.add_argument("--block-size", type=_block_size, default=0, help="tokens in a block, anchor included")
    evaluate.add_argument("--again", action="store_true", help="evaluate even if the same request was answered before")
    evaluate.add_argument("--against", help="run id, pin name or result file to compare with")
    command("capture", _online("capture"), "make the hidden states that are missing, from the target")
    stop = command("stop", _online("stop"), "stop an evaluation that runs; what it has measured is kept")
    stop.add_argument("result", metavar="RUN", help="run id, or the unique beginning of one")
    command("runs", _offline("runs"), "runs and pins kept on this workstation")
    show = command("show", _kept_run("show"), "one result with its caveats; of a run that still runs, when it ends")
    show.add_argument("result", metavar="RUN", help="run id, pin name or result file")
    logs = command("logs", _logs, "a run's log, or the training's")
    logs.add_argument("result", metavar="RUN", nargs="?", help="run id; without it the training's log")
    logs.add_argument("-n", "--lines", type=_lines, default=50, help="how many last lines (default 50)")
    load = command("import", _offline("import"), "pin a result file of any known shape")
    load.add_argument("file", type=Path)
    load.add_argument("--as", dest="name", help="name of the pin (default: the file's name)")
    load.add_argument("--replace", action="store_true", help="let the name mean this file from now on")
    pin = command("pin", _offline("pin"), "pin a result as a baseline")
    pin.add_argument("result", metavar="RUN", help="run id or result file")
    pin.add_argument("--as", dest="name", help="name of the pin")
    pin.add_argument("--replace", action="store_true", help="let the name mean this result from now on")
    compare = command("compare", _offline("compare"), "compare two results, and say how far that can be believed")
    compare.add_argument("current", metavar="A", help="run id, pin name or result file")
    compare.add_argument("--common", action="store_true", help="on the common prompts and the common horizon only")
    compare.add_argument("previous", metavar="B", help="run id, pin name or result file")
    report = command("report", _report, "the Markdown report of a run")
    report.add_argument("result", metavar="RUN", help="run id, pin name or result file")
    report.add_argument("--with", dest="others", metavar="RUN", action="append", default=[], help="shown beside it")
    report.add_argument("--against", metavar="BASELINE", help="run id, pin name or result file")
    demo = command("demo", _demo, "everything for real, small, on this machine alone")
    demo.add_argument("--headless", action="store_true", help="no app: evaluate checkpoints, print them, end")
    demo.add_argument("--block-size", type=_block_size, default=0, help="evaluate at this block size instead of 16")
    demo.add_argument("--capture", action="store_true", help="with --headless: capture all ten prompts first")
    command("keys", _keys, "the app's keys")
    return parser


def _block_size(text: str) -> int:
    return _whole(text, 2, 256)


def _lines(text: str) -> int:
    return _whole(text, 1, 1_000_000)


def _step(text: str) -> int:
    return _whole(text, 0, 10**15)


def _whole(text: str, least: int, most: int) -> int:
    value = int(text) if text.isdecimal() and len(text) < 20 else -1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"found {text[:40]!r}, expected a whole number from {least} to {most}")
    return value


def config_path(arguments: argparse.Namespace) -> Path:
    """The config file that is used."""
    from platformdirs import user_config_path

    return arguments.config or user_config_path("dflash-tui") / "config.toml"


def open_store(arguments: argparse.Namespace) -> Store:
    """The workstation's runs and pins."""
    from platformdirs import user_state_path

    from dflash_tui.results.store import Store

    return Store(arguments.state or user_state_path("dflash-tui"))


@asynccontextmanager
async def open_console(config: Config, store: Store) -> AsyncIterator[Console]:
    """A console over the config's hosts, narrating on stderr, closed at the end."""
    from dflash_tui.console.console import Console
    from dflash_tui.console.narration import narrator

    console = Console(config, store, told=narrator(narrate))
    try:
        yield console
    finally:
        await console.close()


def narrate(sentence: str) -> None:
    """A line for the person who watches a headless command."""
    from dflash_tui.console.words import plain

    print(plain(sentence), file=sys.stderr, flush=True)


def run_async(work: Awaitable[int]) -> int:
    """Run to the end; an interrupt cancels the work, which cleans up, and comes out as KeyboardInterrupt."""

    async def run() -> int:
        return await work

    return asyncio.run(run())


def _print(answer: Any, arguments: argparse.Namespace) -> None:
    from dflash_tui.console.words import as_json, as_text

    encoding = (sys.stdout and sys.stdout.encoding) or "utf-8"
    if arguments.json:
        print(as_json(answer, encoding), flush=True)
    else:  # a terminal without τ still shows the rest
        print(as_text(answer).encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _online(name: str) -> Callable[[argparse.Namespace], int]:
    """A command that needs hosts."""

    def run(arguments: argparse.Namespace) -> int:
        from dflash_tui.config import load_config
        from dflash_tui.console.acts import headless

        async def work() -> int:
            async with open_console(load_config(config_path(arguments)), open_store(arguments)) as console:
                answer = await headless.COMMANDS[name](console, arguments)
            _print(answer, arguments)
            return NOT_COMPARABLE if headless.blocked(answer, arguments) else DONE

        return run_async(work())

    return run


def _offline(name: str) -> Callable[[argparse.Namespace], int]:
    """A command that needs only what this workstation keeps."""

    def run(arguments: argparse.Namespace) -> int:
        from dflash_tui.console.acts import kept

        answer = kept.COMMANDS[name](open_store(arguments), arguments)
        _print(answer, arguments)
        return NOT_COMPARABLE if kept.blocked(answer) else DONE

    return run


def _report(arguments: argparse.Namespace) -> int:
    """The report of a run says where its training is now, when the config still watches that training."""
    from dflash_tui.config import load_config
    from dflash_tui.console.acts import headless, kept

    store, path = open_store(arguments), config_path(arguments)
    live = None
    if path.exists() and kept.trained_as(store, arguments.result) == (config := load_config(path)).training.name:

        async def look() -> dict[str, Any] | None:
            async with open_console(config, store) as console:
                return await headless.live_now(console)

        live = asyncio.run(look())
    _print(kept.report(store, arguments, live), arguments)
    return DONE


def _logs(arguments: argparse.Namespace) -> int:
    return (_kept_run if arguments.result else _online)("logs")(arguments)


def _kept_run(name: str) -> Callable[[argparse.Namespace], int]:
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
        return _offline(name)(arguments)

    return run


def _keys(arguments: argparse.Namespace) -> int:
    from dflash_tui.console.answers import Key
    from dflash_tui.tui.actions import ACTIONS

    _print(tuple(Key(item.id, item.keys, item.description, item.group) for item in ACTIONS), arguments)
    return DONE


def _app(arguments: argparse.Namespace) -> int:
    from dflash_tui.config import load_config
    from dflash_tui.tui.terminal import refusal

    if sentence := refusal():
        print(sentence, file=sys.stderr)
        return USAGE
    from dflash_tui.console.session import Session
    from dflash_tui.console.state import State, TrainingPane

    config = load_config(config_path(arguments))
    session = Session(config, open_store(arguments))
    named = State(training=TrainingPane(name=config.training.name, host=config.training.host))
    return run_async(_face(session, theme=arguments.theme or config.theme, state=named))


async def _face(shown: Shown, **options: Any) -> int:
    """The app until it is quit; then what it was shown is closed."""
    from platformdirs import user_config_path

    from dflash_tui.tui.start import make_app

    app = make_app(connect=shown.connect, themes=(user_config_path("dflash-tui") / "themes",), **options)
    try:
        await app.run_async()
    finally:
        await shown.close()
    return app.return_code or DONE


def _demo(arguments: argparse.Namespace) -> int:
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
        _print(answer, arguments)
        return DONE

    return run_async(work())
