"""The command that adds a host's key to known_hosts, after a person or a fingerprint has said yes."""

from __future__ import annotations

import argparse
from typing import Any

from dflash_tui.cli.asking import terminal_ask
from dflash_tui.cli.exits import DONE
from dflash_tui.cli.printing import print_answer
from dflash_tui.cli.running import config_path, run_async


def trust_options(parser: Any) -> None:
    """The options of `trust`."""
    parser.add_argument("host", metavar="HOST", help="a name under [hosts]; jumps on the way are meant too")
    parser.add_argument(
        "--fingerprint",
        metavar="SHA256:…",
        action="append",
        help="add the key without a question if it is this one exactly; once for each jump on the way",
    )


def trust(arguments: argparse.Namespace) -> int:
    """Ask about each unknown key on the way to a host, or go by the fingerprints that were given."""
    from dflash_tui.config import load_config
    from dflash_tui.console.acts import trust as act

    config = load_config(config_path(arguments))
    given = arguments.fingerprint
    ask = act.only(given) if given else terminal_ask() or act.nobody

    async def work() -> int:
        print_answer(await act.trust(config, arguments.host, ask), arguments)
        return DONE

    return run_async(work())
