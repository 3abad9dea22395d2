"""The question before something is stopped: what it is, by its name, and who started it."""

from __future__ import annotations

from dflash_tui.console.state import State
from dflash_tui.tui.lines import Line, clean, line

RUNNING = ("planning", "running", "capturing")


def stopping(state: State) -> tuple[str, tuple[Line, ...], str]:
    """The question, what it means, and the host that stands out: of the transfer, else of the plan or run."""
    transfer, pane = state.transfer, state.evaluation
    if transfer.state == "running":
        host = transfer.route[-1] if transfer.route else ""
        kept = line("the transfer ends; what it moved is kept")
        return f"Stop moving {clean(transfer.name)}?", (kept,), host
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
