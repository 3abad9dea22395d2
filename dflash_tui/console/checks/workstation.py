"""Whether this machine is ready: a place for results, a terminal that can draw, keys to log in with."""

from __future__ import annotations

import locale
import os
import shutil
import sys
import tempfile
from pathlib import Path

from dflash_tui.config import Config
from dflash_tui.console.checks.items import Group, Items
from dflash_tui.hosts.base import HostError
from dflash_tui.hosts.probe import agent_keys
from dflash_tui.results.store import Store

GROUP = Group("workstation")
LEAST = (50, 12)  # columns and rows below which the app shows one figure only
OWN_KNOWN_HOSTS = Path("~/.ssh/known_hosts")


async def look(config: Config, store: Store) -> Items:
    """The state folder, the terminal, and where hosts are reached over SSH known_hosts and the agent."""
    items = [*_state(store.state), *_terminal()]
    if any(not host.container for host in config.hosts.values()):
        items += [*_known_hosts(), *await _agent()]
    return items


def _state(state: Path) -> Items:
    place = state
    while not os.path.exists(place):  # Path.exists raises where a name is too long, or may not be looked for
        place = place.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".dflash-check-", dir=place):
            pass
    except OSError as error:
        sentence = f"{state} can't be written ({error.strerror}), expected a folder for runs and pins"
        return [GROUP.fail("state", f"{sentence}: mend {place}, or name another with --state")]
    free = shutil.disk_usage(place).free
    made = "" if place == state else ", made when first needed"
    return [GROUP.ok("state", f"{state} keeps runs and pins{made}; {free / 1e9:.1f} GB free")]


def _terminal() -> Items:
    stream = sys.stderr
    if stream is None or not stream.isatty():
        return [GROUP.ok("terminal", "none here: commands work, the app needs one")]
    problems = []
    encoding = locale.getpreferredencoding(False)
    try:
        "⠙━▲τ".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        problems.append(f"{encoding} can't show curves and marks: set LANG to a UTF-8 locale such as C.UTF-8")
    kind, colours = os.environ.get("TERM", ""), os.environ.get("COLORTERM", "")
    if kind in ("", "dumb"):
        problems.append(f"TERM is {kind or 'not set'}: set it to what the terminal is, such as xterm-256color")
    size = os.get_terminal_size(stream.fileno())
    if size.columns < LEAST[0] or size.lines < LEAST[1]:
        problems.append(f"{size.columns} × {size.lines} is small: the app wants {LEAST[0]} × {LEAST[1]}")
    if problems:
        return [GROUP.warn("terminal", "; ".join(problems))]
    shown = "true colour" if colours in ("truecolor", "24bit") else "256 colours" if "256" in kind else "few colours"
    return [GROUP.ok("terminal", f"{kind}, {encoding}, {shown}, {size.columns} × {size.lines}")]


def _known_hosts() -> Items:
    path = OWN_KNOWN_HOSTS.expanduser()
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return [GROUP.ok("known_hosts", f"{path} is not there yet; it is made when the first key is accepted")]
    except OSError as error:
        sentence = f"{path} can't be read ({error.strerror}), expected the keys of known hosts"
        return [GROUP.fail("known_hosts", f"{sentence}: chmod u+r {path}")]
    keys = sum(bool(line.strip()) and not line.lstrip().startswith(b"#") for line in lines)
    return [GROUP.ok("known_hosts", f"{path} holds {keys} lines")]


async def _agent() -> Items:
    socket = os.environ.get("SSH_AUTH_SOCK", "")
    if not socket:
        return [GROUP.ok("ssh agent", "none; keys are read from the files that ~/.ssh/config names, or ssh's defaults")]
    try:
        count = await agent_keys(socket)
    except HostError as error:
        return [GROUP.warn("ssh agent", f"{error}; start it anew (ssh-agent) or unset SSH_AUTH_SOCK")]
    if not count:
        return [GROUP.warn("ssh agent", f"the agent at {socket} holds no keys; add one with ssh-add")]
    return [GROUP.ok("ssh agent", f"the agent at {socket} holds {count} key{'s' if count > 1 else ''}")]
