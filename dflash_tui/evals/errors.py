"""Why an evaluation did not happen, as sentences."""

from __future__ import annotations

from dflash_tui.records.process import RunState


class EvaluationError(Exception):
    """An evaluation could not be planned, started or followed; the message says what was found and what to do."""


class EvaluationRefused(EvaluationError):
    """Preflight found something that makes the evaluation impossible or its numbers worthless."""


class EndedAtLogout(EvaluationError):
    """The host would end at logout what is left running there; nothing was begun."""


class RunEnded(EvaluationError):
    """A run that was started has ended without a result. `state` is failed, stopped or lost."""

    def __init__(self, run_id: str, state: RunState, reason: str | None) -> None:
        super().__init__(f"{run_id}: {ending(state, reason)}")
        self.run_id = run_id
        self.state: RunState = state


def ending(state: RunState, reason: str | None) -> str:
    """How a run ended and why; once, where the reason says the state itself ("stopped by SIGTERM")."""
    if reason and reason.startswith(f"{state} "):
        return reason
    return f"{state}: {reason or 'no reason was recorded; see its log'}"
