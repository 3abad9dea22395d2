"""The whole command line: every command, its options, and what runs it. Nothing is loaded until a command runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dflash_tui import __version__
from dflash_tui.cli import check, commands, faces, setup, transfer, trust


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="dflash-tui",
        description="Watch a drafter train, move its newest checkpoint, evaluate it, and know how far to believe it. "
        "Without a command: the app.",
    )
    parser.add_argument("--version", action="version", version=f"dflash-tui {__version__}")
    places: tuple[tuple[str, str], ...] = (
        ("--config", "config file (default: config.toml in the user's config folder)"),
        ("--state", "folder that keeps runs and pins (default: the user's state folder)"),
    )
    for option, text in places:
        parser.add_argument(option, type=Path, help=text)
    parser.add_argument("--theme", help="theme of the app")
    parser.set_defaults(run=faces.app, json=False, lines=False)
    listed = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, data: bool = True) -> Any:
        sub = listed.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        for option, meaning in places:  # said after the command, too; not said there, what was said before it stays
            sub.add_argument(option, type=Path, default=argparse.SUPPRESS, help=meaning)
        if data:
            sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    init = command("init", setup.init, "write a config from flags, from what is found on your hosts, and from answers")
    setup.init_options(init)
    config = command("config", setup.config, "the config: where it is, what it amounts to, its JSON schema")
    config.add_argument("what", choices=("path", "show", "schema"), help="which of these to print")
    command("check", check.check, "try every host, path, program and permission of the config, and say what to do")
    trust.trust_options(command("trust", trust.trust, "add a host's key to known_hosts, after a look at it"))
    command("status", commands.online("status"), "the training as it is now")
    command("checkpoints", commands.online("checkpoints"), "the training's checkpoints, newest last")
    fetch = command("fetch", transfer.fetch, "move a checkpoint to the evaluation host, or to another")
    transfer.fetch_options(fetch, _step)
    evaluate = command("eval", commands.online("eval"), "fetch and evaluate the newest complete checkpoint")
    extent = evaluate.add_mutually_exclusive_group()
    extent.add_argument("--preset", choices=("quick", "full"), help="3 prompts × 15 blocks (default), or 10 × 30")
    extent.add_argument(
        "--like",
        metavar="BASELINE",
        help="measured as this run, pin, baseline or result file was: its prompts, blocks, block size, anchors, cache",
    )
    which = evaluate.add_mutually_exclusive_group()
    which.add_argument("--step", type=_step, help="this step instead of the newest")
    which.add_argument(
        "--model",
        metavar="HOST:PATH",
        help="a drafter of no watched training instead: its folder or weights file (without HOST: evaluation host)",
    )
    evaluate.add_argument(
        "--drafter-config", metavar="PATH", help="its config.json on the evaluation host, where none lies beside it"
    )
    evaluate.add_argument("--block-size", type=_block_size, default=0, help="tokens in a block, anchor included")
    evaluate.add_argument("--again", action="store_true", help="evaluate even if the same request was answered before")
    evaluate.add_argument("--external", action="store_true", help="by your own script, which [harness] names")
    evaluate.add_argument("--against", help="run id, pin, baseline or result file to compare with")
    command("capture", commands.online("capture"), "make the hidden states that are missing, from the target")
    stop = command("stop", commands.online("stop"), "stop an evaluation that runs; what it has measured is kept")
    stop.add_argument("result", metavar="RUN", help="run id, or the unique beginning of one")
    clean = command("clean", commands.online("clean"), "remove what is left on the evaluation host beside its runs")
    clean.add_argument("--dry-run", action="store_true", help="print what would go, and remove nothing")
    clean.add_argument("--checkpoints", action="store_true", help="fetched checkpoints, too: they can be fetched again")
    prune = command(
        "prune", commands.online("prune"), "remove old fetched checkpoints of the training: first say which"
    )
    prune.add_argument("--keep", type=_kept, metavar="N", help="the N newest stay (default 3; 1 with --older-than)")
    prune.add_argument("--older-than", type=_days, metavar="DAYS", help="those that were saved later stay")
    prune.add_argument("--yes", action="store_true", help="remove them; without it nothing is removed")
    command("runs", commands.offline("runs"), "runs and pins kept on this workstation")
    show = command(
        "show", commands.kept_run("show"), "one result with its caveats; of a run that still runs, when it ends"
    )
    show.add_argument("result", metavar="RUN", help="run id, pin name or result file")
    logs = command("logs", commands.logs, "a run's log, or the training's")
    logs.add_argument("result", metavar="RUN", nargs="?", help="run id; without it the training's log")
    logs.add_argument("-n", "--lines", type=_lines, default=50, help="how many last lines (default 50)")
    load = command("import", commands.load, "pin a result file of any known shape")
    load.add_argument("file", metavar="FILE", help="a result file here, or HOST:PATH on a host of the config")
    load.add_argument("--as", dest="name", help="name of the pin (default: the file's name)")
    load.add_argument("--replace", action="store_true", help="let the name mean this file from now on")
    pin = command("pin", commands.offline("pin"), "pin a result as a baseline")
    pin.add_argument("result", metavar="RUN", help="run id or result file; with --remove a pin's name")
    pin.add_argument("--as", dest="name", help="name of the pin")
    ways = pin.add_mutually_exclusive_group()
    ways.add_argument("--replace", action="store_true", help="let the name mean this result from now on")
    ways.add_argument("--remove", action="store_true", help="forget the pin of this name; what it kept stays")
    compare = command(
        "compare", commands.offline("compare"), "compare two results, and say how far that can be believed"
    )
    compare.add_argument("current", metavar="A", help="run id, pin name or result file")
    compare.add_argument("--common", action="store_true", help="on the common prompts and the common horizon only")
    compare.add_argument("previous", metavar="B", help="run id, pin name or result file")
    report = command("report", commands.report, "the Markdown report of a run")
    report.add_argument("result", metavar="RUN", help="run id, pin name or result file")
    report.add_argument("--with", dest="others", metavar="RUN", action="append", default=[], help="shown beside it")
    report.add_argument("--against", metavar="BASELINE", help="run id, pin name or result file")
    demo = command("demo", faces.demo, "everything for real, small, on this machine alone")
    demo.add_argument("--headless", action="store_true", help="no app: evaluate checkpoints, print them, end")
    demo.add_argument("--block-size", type=_block_size, default=0, help="evaluate at this block size instead of 16")
    demo.add_argument("--capture", action="store_true", help="with --headless: capture all ten prompts first")
    command("keys", commands.keys, "the app's keys")
    return parser


def _block_size(text: str) -> int:
    return _whole(text, 2, 256)


def _lines(text: str) -> int:
    return _whole(text, 1, 1_000_000)


def _kept(text: str) -> int:
    return _whole(text, 1, 1_000_000)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days <= 36500:
        raise argparse.ArgumentTypeError(f"found {text[:40]!r}, expected a number of days from 0 to 36500")
    return days


def _step(text: str) -> int:
    return _whole(text.removeprefix("step_"), 0, 10**15)


def _whole(text: str, least: int, most: int) -> int:
    value = int(text) if text.isdecimal() and len(text) < 20 else -1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"found {text[:40]!r}, expected a whole number from {least} to {most}")
    return value
