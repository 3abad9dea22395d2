"""Is it alive: the link, the log and the training, in one status word."""

from __future__ import annotations

from dflash_tui.console.state import State
from dflash_tui.tui import formats
from dflash_tui.tui.lines import Line, line
from dflash_tui.watch.progress import condition, line_age, step_age


def status(state: State) -> Line:
    """One status: the worst of link and log. Words before hue."""
    host = state.hosts.get(state.training.host)
    progress = state.training.progress
    if host is not None and host.link == "lost":
        if host.retry_at is None:
            return line(("✖ link lost" if host.answered_at is not None else "✖ no link", "bad"))
        return line(("○ reconnecting" if host.answered_at is not None else "○ not reached", "warn"))
    if progress is None:
        return line(("○ connecting" if host is None or host.link == "connecting" else "○ waiting for the log", "muted"))
    if progress.waiting:
        return line(("○ no log", "warn"))
    silent = formats.age(step_age(progress, state.now))
    match condition(progress, state.now):
        case "finished":
            return line(("■ finished", "strong"))
        case "failed":
            return line(("✖ failed", "bad"))
        case "presumed dead":
            return line((f"✖ presumed dead, silent {silent}", "bad"))
        case "stale":
            return line((f"◐ stale {silent}", "warn"))
        case "waiting":
            return line(("● live", "ok"), (f" {progress.phase}", "muted"))
        case _:
            return line(("● live", "ok"))


def trip(state: State) -> Line | None:
    """The host's name and its last round trip: ct200 38 ms."""
    host = state.hosts.get(state.training.host)
    if host is None:
        return line((state.training.host, "muted")) if state.training.host else None
    if host.milliseconds is None or host.link != "live":
        return line((host.name, "muted"))
    return line((f"{host.name} {host.milliseconds:.0f} ms", "muted"))


def data_age(state: State) -> Line | None:
    """How old the newest log line is: 2 s ago."""
    if state.training.progress is None:
        return None
    seconds = line_age(state.training.progress, state.now)
    return None if seconds is None else line((f"{formats.age(seconds)} ago", "muted"))
