"""Looking at an evaluation host before anything is created there."""

from __future__ import annotations

from dflash_tui.evals.errors import EvaluationError
from dflash_tui.hosts.base import CommandFailed, Host
from dflash_tui.records.codec import RecordError, dumps, loads
from dflash_tui.records.requests import SurveyRequest
from dflash_tui.records.survey import Survey

SURVEY_SECONDS = 900.0  # the identity of a 15 GB checkpoint's weights is hashed on a cold disk


async def survey(host: Host, python: str, harness: str, request: SurveyRequest) -> Survey:
    """Ask the shipped harness what is there. Raises EvaluationError when no usable Python answers, HostError."""
    try:
        answer = await host.run([python, harness, "survey"], stdin=dumps(request).encode(), timeout=SURVEY_SECONDS)
    except CommandFailed as error:
        raise EvaluationError(_no_python(host.name, python, error)) from error
    try:
        return loads(Survey, answer.stdout, f"{host.name}: survey")
    except RecordError as error:
        raise EvaluationError(f"{error}; the harness and this dflash-tui disagree") from error


def _no_python(host: str, python: str, error: CommandFailed) -> str:
    lines = [line for line in error.stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else str(error)
    if error.status in (126, 127):
        return f"{host}: {python} can't be run ({last}); set evaluation.python to a Python ≥ 3.10 that has torch"
    if "SyntaxError" in error.stderr or "ModuleNotFoundError" in error.stderr:
        return f"{host}: {python} is too old for the harness ({last}); set evaluation.python to a Python ≥ 3.10"
    return f"{host}: the survey failed: {last}"
