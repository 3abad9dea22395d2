"""The commands that make a set-up: write a config, show it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

from dflash_tui.cli.exits import DONE
from dflash_tui.cli.printing import narrate, print_answer
from dflash_tui.cli.running import config_path, run_async


def init_options(parser: Any) -> None:
    """The flags of `init`: one for everything that it would ask."""
    add = parser.add_argument
    add("--training-host", metavar="HOST", help="alias of ~/.ssh/config, user@host:port, or local")
    add(
        "--via",
        metavar="HOST",
        help="the host that the training's container runs on; --training-host names the container",
    )
    add("--container", metavar="ID", help="its id or name there, or a whole launcher: 'pct exec 200 --'")
    add("--log", metavar="PATH", help="the trainer's log")
    add("--checkpoints", metavar="FOLDER", help="where the training saves")
    add("--arguments", metavar="PATH", help="the trainer's arguments, JSON")
    add("--watch-only", action="store_true", help="evaluate nothing")
    add("--eval-host", metavar="HOST", help="alias, user@host:port, or local")
    add("--eval-container", metavar="ID", help="a container there, as --container")
    add("--root", metavar="FOLDER", help="receives runs, checkpoints and the harness on the evaluation host")
    add("--target", metavar="FOLDER", help="the target model there")
    add("--prompts", metavar="PATH", help="the prompts there")
    add("--hidden-states", metavar="FOLDER", action="append", help="the target's hidden states there; may be repeated")
    add("--python", metavar="PATH", help="a Python there that has torch")
    add("--drafter-config", metavar="PATH", help="the drafter's config.json there, for checkpoints without one")
    add(
        "--baseline",
        metavar="NAME=[HOST:]FILE",
        dest="baselines",
        action="append",
        help="a result file to compare with; repeatable",
    )
    add("--look", metavar="FOLDER", action="append", help="look there too, on either host; may be repeated")
    add("--yes", action="store_true", help="take what is found, newest first, and ask nothing")
    add("--output", metavar="PATH", type=Path, help="write there instead of the user's config folder")
    add("--replace", action="store_true", help="replace the config that is there; it is kept beside it")


def config(arguments: argparse.Namespace) -> int:
    """Where the config is, what it amounts to, or its schema."""
    from dflash_tui.config import parse_config
    from dflash_tui.config.reading import read_config
    from dflash_tui.config.resolved import resolve
    from dflash_tui.config.schema import json_schema
    from dflash_tui.console.answers import ConfigPath, ConfigShow

    path = config_path(arguments)
    if arguments.what == "schema":
        print(json.dumps(json_schema(), indent=1, ensure_ascii=False))
    elif arguments.what == "path":
        print_answer(ConfigPath(str(path), path.exists()), arguments)
    else:
        text = read_config(path)
        found = resolve(parse_config(text, str(path)), tomllib.loads(text))
        print_answer(ConfigShow(str(path), found.tables, found.defaults), arguments)
    return DONE


def init(arguments: argparse.Namespace) -> int:
    """Write a config."""
    from dflash_tui.cli.asking import terminal_ask
    from dflash_tui.cli.questions import Terminal
    from dflash_tui.console.acts.init import init as act
    from dflash_tui.console.acts.init_source import Nobody, Source, Taken
    from dflash_tui.console.acts.init_wishes import Wishes
    from dflash_tui.hosts.ssh_aliases import ssh_aliases

    ask, path = terminal_ask(), arguments.output or config_path(arguments)
    chosen = arguments.output or arguments.config
    program = shlex.join(["dflash-tui", "--config", str(path)]) if chosen else "dflash-tui"
    source: Source = Taken() if arguments.yes else Nobody() if ask is None else Terminal()
    given: dict[str, Any] = {
        item.name: tuple(value) if isinstance(value, list) else value
        for item in dataclasses.fields(Wishes)
        if (value := getattr(arguments, item.name, None)) is not None
    }

    async def work() -> int:
        answer = await act(
            path,
            Wishes(**given),
            source,
            aliases=ssh_aliases(),
            replace=arguments.replace,
            program=program,
            ask=ask,
            told=narrate,
        )
        print_answer(answer, arguments)
        return DONE

    return run_async(work())
