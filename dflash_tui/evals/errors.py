"""Why an evaluation did not happen, as sentences."""

from __future__ import annotations


class EvaluationError(Exception):
    """An evaluation could not be planned, started or followed; the message says what was found and what to do."""


class EvaluationRefused(EvaluationError):
    """Preflight found something that makes the evaluation impossible or its numbers worthless."""
