"""Events as sentences, for those who follow a job without a screen."""

from __future__ import annotations

from collections.abc import Callable

from dflash_tui.console import events as happened
from dflash_tui.transfer.progress import TransferProgress


def narrator(say: Callable[[str], None]) -> Callable[[happened.Event], None]:
    """A listener of events that says each thing once: phases, tenths and notices, not every byte.

    A transfer is announced when its bytes begin to move, so that what is there already is not said to move.
    """
    told: set[tuple[str, str]] = set()
    announced: dict[str, str] = {}

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
                announced[job] = f"moving {name}, {megabytes(total)}: {' ▸ '.join(route)}"
            case happened.TransferAdvanced(job, progress) if progress.phase in ("moving", "verifying"):
                if job in announced:
                    say(announced.pop(job))
                if progress.problem:
                    once(job, f"attempt {progress.attempt}", f"  attempt {progress.attempt}: {progress.problem}")
                sentence = _transfer(progress)
                once(job, sentence.partition(" · ")[0], sentence)
            case happened.TransferEnded(_, path, _, seconds, already_there, error):
                if error is None:
                    say(f"already there: {path}" if already_there else f"moved in {seconds:.1f} s: {path}")
            case happened.EvaluationStarted(_, run_id, run_dir, host):
                say(f"run {run_id} in {host}:{run_dir}")
            case happened.EvaluationAdvanced(job, run_id, _, progress, _, _) if progress:
                where = f"{progress.prompt} " if progress.prompt else ""
                once(
                    job,
                    f"{run_id} {progress.phase} {where}",
                    f"  {progress.phase} {where}{progress.done}/{progress.total}",
                )
            case happened.EvaluationEnded(_, run_id, _, error, existing):
                if error is None:
                    say(f"{'already evaluated' if existing else 'finished'}: {run_id}")
            case happened.Noticed(_, sentence):
                say(sentence)

    return tell


def megabytes(size: int) -> str:
    """Bytes as people say them, decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} B"


def _transfer(progress: TransferProgress) -> str:
    if progress.phase == "verifying" or not progress.total:
        return f"  {progress.phase} {progress.file}"
    tenth = 10 * (10 * progress.written // progress.total)
    return f"  {tenth} % of all bytes · {megabytes(int(progress.rate))}/s"
