"""Whether an evaluation can run on a host, decided from a survey alone."""

from __future__ import annotations

from dataclasses import dataclass

from dflash_tui.records.survey import Survey, SurveyProblem

SPARE_DISK = 64 << 20  # records and log of a run, generously


@dataclass(frozen=True)
class Preflight:
    """`refusals` make the evaluation impossible; `warnings` are worth knowing. Sentences, in order of weight."""

    refusals: tuple[str, ...]
    warnings: tuple[str, ...]


def preflight(survey: Survey, host: str, wanted_threads: int) -> Preflight:
    """Judge what was surveyed: a shared host is a guest house, so memory and load are looked at first.

    Runs that work there now end before this one begins: memory that they hold is only waited for, and the harness looks
    at it again when its turn has come.
    """
    refusals = [_said(problem, host) for problem in survey.problems if problem.severity == "error"]
    warnings = [problem.sentence for problem in survey.problems if problem.severity == "warn"]
    machine = survey.host
    limits = [limit for limit in (machine.memory_available, machine.memory_limit) if limit is not None]
    if survey.memory_needed is not None and limits and min(limits) < survey.memory_needed:
        short = f"{host}: {_gib(min(limits))} of memory free, about {_gib(survey.memory_needed)} needed"
        if min(_once_alone(survey)) < survey.memory_needed:
            refusals.append(f"{short}; end something there or evaluate elsewhere")
        else:
            warnings.append(f"{short}; it will be there when {survey.working[0].run_id} has ended")
    if machine.free_bytes is not None and machine.free_bytes < SPARE_DISK:
        refusals.append(f"{host}: {machine.free_bytes >> 20} MiB free where runs are kept, {SPARE_DISK >> 20} needed")
    load = machine.loadavg[0] if machine.loadavg else 0.0
    if not survey.working and load + wanted_threads > machine.cpus_usable + 0.5:
        warnings.append(
            f"{host} is busy: load {load:.1f} on {machine.cpus_usable} cores; at nice 10 the evaluation will be slow"
        )
    return Preflight(tuple(dict.fromkeys(refusals)), tuple(dict.fromkeys(warnings)))


def queue(survey: Survey, host: str, request_id: str) -> tuple[str, ...]:
    """What a request has to wait for, as a sentence; nothing for one that a run works on already."""
    if not survey.working or any(run.request_id == request_id for run in survey.working):
        return ()
    first, *others = survey.working
    more = f" and {len(others)} more" if others else ""
    return (f"{host}: waits for its turn behind {first.run_id}{more}; one run works there at a time",)


def _once_alone(survey: Survey) -> list[int]:
    """Bytes that there will be when the runs that work now have ended: the machine's, and the container's limit."""
    machine, held = survey.host, sum(run.memory or 0 for run in survey.working)
    free = None if machine.memory_available is None else machine.memory_available + held
    return [limit for limit in (free, machine.memory_limit) if limit is not None]


def _said(problem: SurveyProblem, host: str) -> str:
    """The sentence; one that begins with the cache's folder is given the host that has it."""
    return f"{host}:{problem.sentence}" if problem.about == "hidden states" else problem.sentence


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
