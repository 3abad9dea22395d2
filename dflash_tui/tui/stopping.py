"""The question before something is stopped: what it is, by its name, and who started it."""

from __future__ import annotations

from collections.abc import Mapping

from dflash_tui.console.state import State, TransferPane
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.tui import formats
from dflash_tui.tui.lines import Line, clean, line

RUNNING = ("planning", "running", "capturing")


def stopping(state: State) -> tuple[str, tuple[Line, ...], str]:
    """The question, what it means, and the host that stands out: of the transfer, else of the plan or run."""
    transfer, pane = state.transfer, state.evaluation
    if transfer.state == "running":
        host = transfer.route[-1] if transfer.route else ""
        said = [line("the transfer ends"), line(_kept(transfer))]
        if state.beside:
            said.append(line(f"{others(state)} {'goes' if len(state.beside) == 1 else 'go'} on"))
        return f"Stop moving {clean(transfer.name)}?", tuple(said), host
    what = clean(pane.subject or pane.label)
    if not pane.run_id:
        return f"Stop what is planned: {what}, {pane.preset}?", (line("nothing has been started yet"),), pane.host
    by = pane.begun or "started here"
    told = (
        line((clean(pane.run_id), "strong")),
        line(f"{what} ({pane.preset}), {by}"),
        line("it ends; what it measured is kept"),
    )
    return "Stop this run?", told, pane.host


def stopped_job(state: State) -> Mapping[str, str]:
    """What tells the console which transfer was asked about: another may be shown by the time of the answer."""
    return {"job": state.transfer.job} if state.transfer.state == "running" else {}


def others(state: State) -> str:
    """The transfers beside the one that is shown: "step_4000 to ct129"."""
    return ", ".join(f"{clean(pane.name)} to {clean(pane.route[-1] if pane.route else '')}" for pane in state.beside)


def _kept(pane: TransferPane) -> str:
    """What a later transfer would go on from; pieces that are not whole are sent again."""
    kept = pane.continuable
    if kept:
        return f"about {formats.byte_size(kept)} of it are kept, and t goes on from there"
    return f"nothing is kept of it yet: whole pieces of {CHUNK >> 20} MiB are"
