"""Events as sentences, for those who follow a job without a screen."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from dflash_tui.console import events as happened
from dflash_tui.console.quantities import megabytes, savings
from dflash_tui.transfer.progress import TransferProgress

_WAYS = {"joined": "through this machine, by two ssh and one pipe", "direct": "from host to host"}


def narrator(say: Callable[[str], None], *, tenths: bool = True, ends: bool = True) -> Callable[[happened.Event], None]:
    """A listener of events that says each thing once: phases, tenths and notices, not every byte. Without `tenths` it
    says nothing of how far a transfer is, without `ends` nothing of where it lies then: an answer says it.

    A transfer is announced when its bytes begin to move, so that what is there already is not said to move.
    """
    told: set[tuple[str, str]] = set()
    announced: dict[str, str] = {}
    routes: dict[str, tuple[str, ...]] = {}
    names: dict[str, str] = {}
    begun: dict[str, str] = {}  # by job: said once something is heard of that run, for another may answer in its place

    def on_one_host(job: str) -> bool:
        route = routes.get(job, ())
        return bool(route) and route[0] == route[-1]

    def once(job: str, phase: str, sentence: str) -> None:
        if (job, phase) not in told:
            told.add((job, phase))
            say(sentence)

    def tell(event: happened.Event) -> None:
        match event:
            case happened.EvaluationAsked(_, preset, label):
                say(f"{label} ({preset})")
            case happened.JobQueued(_, preset):
                say(f"{preset} waits until the running job on the evaluation host has ended")
            case happened.PlanMade():
                for line in (*event.lines, *event.warnings):
                    say(f"  {line}")
            case happened.TransferStarted(job, _, name, route, total):
                routes[job], names[job] = route, name
                what = f"{name}, {megabytes(total)}"
                way = f"placing {what}, on {route[0]}" if on_one_host(job) else f"moving {what}: {' ▸ '.join(route)}"
                announced[job] = way
            case happened.TransferPlanned(job, total, original, kept, left, why):
                if job in announced and left and not on_one_host(job):
                    what = savings(total, original, kept, left)
                    announced[job] = f"moving {names[job]}, {what}: {' ▸ '.join(routes[job])}"
                if why:
                    say(why)
                if event.resumable:
                    say(f"  {megabytes(event.resumable)} of it lie there from an earlier attempt, and are continued")
            case happened.TransferAdvanced(job, progress) if progress.waits_for:
                sentence = f"waits for {progress.waits_for}; what that brings is not moved again"
                once(job, sentence, sentence)
            case happened.TransferAdvanced(job, progress) if progress.phase in ("moving", "verifying"):
                if job in announced:
                    say(announced.pop(job))
                if progress.route in _WAYS:
                    once(job, progress.route, f"  {_WAYS[progress.route]}")
                if progress.problem:
                    cut = f"  attempt {progress.attempt}: {progress.problem}"
                    once(job, cut, cut)
                if tenths and (progress.phase == "verifying" or not on_one_host(job)):
                    sentence = _transfer(progress)
                    once(job, sentence.partition(" · ")[0], sentence)
            case happened.TransferEnded() if event.error is None and ends:
                host = routes[event.job][-1] if event.job in routes else ""
                say(_ended(event, host))
            case happened.TransferEnded() if event.stopped and event.error is not None:
                say(f"{event.error}{': the same command goes on from there' if event.kept else ''}")
            case happened.EvaluationStarted(_, run_id, run_dir, host):
                begun[event.job] = f"run {run_id} in {host}:{run_dir}"
            case happened.EvaluationAdvanced(job, run_id, _, progress, _, _):
                if job in begun:
                    say(begun.pop(job))
                if progress is None:
                    return
                phase = " ".join(word for word in (progress.phase, progress.prompt) if word)
                if progress.phase == "queued":
                    phase = f"queued behind {progress.behind or 'another run'}"
                count = f" {progress.done}/{progress.total}" if progress.total else ""
                tenth = 10 * progress.done // max(1, progress.total) if progress.phase == "script" else 0
                once(job, f"{run_id} {phase} {tenth}", f"  {phase}{count}")
            case happened.EvaluationEnded(job, run_id, _, error, existing):
                if job in begun:
                    say(begun.pop(job))
                if error is None:
                    say(f"{'already evaluated' if existing else 'finished'}: {run_id}")
            case happened.Noticed(_, sentence):
                say(sentence)

    return tell


def _ended(event: happened.TransferEnded, host: str) -> str:
    """Where the checkpoint lies now, and what that cost."""
    folder = posixpath.dirname(event.path)
    where = f"{host}:{folder}" if host else folder
    if event.already_there:
        return f"already there: {where}"
    if event.how == "linked":
        return f"linked, no bytes copied: {where}"
    return f"{'copied' if event.how == 'copied' else 'moved'} in {event.seconds:.1f} s: {where}"


def _transfer(progress: TransferProgress) -> str:
    if progress.phase == "verifying" or not progress.total:
        return f"  {progress.phase} {progress.file}".rstrip()
    tenth = 10 * (10 * progress.written // progress.total)
    speed = f" · {megabytes(int(progress.rate))}/s" if progress.rate >= 1 else ""
    return f"  {tenth} % of all bytes{speed}"
