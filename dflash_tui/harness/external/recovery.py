"""Old files that a run did not live to put back: found by its journal, and put back now."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dflash_tui.harness import rundir, turn
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.external.child import counted, end_all
from dflash_tui.harness.external.guard import KEPT, put_back, sync
from dflash_tui.records.external import Guarded, Journal


@contextlib.contextmanager
def held(run_dir: Path) -> Iterator[None]:
    """The run's own lock, while it works or is put right: it goes with its holder. Raises BlockingIOError when another
    process has it."""
    with turn.opened(run_dir) as folder:
        turn.lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextlib.contextmanager
def alone(files: Sequence[Guarded], wait: Callable[[Path], None] | None) -> Iterator[bool]:
    """The locks of the folders that hold guarded paths: a run below another root may guard the same ones. Whether one
    had to be waited for.

    `wait` hears of a folder that another run has before it is waited for; without it BlockingIOError is raised.
    """
    waited = False
    with contextlib.ExitStack() as stack:
        for folder in sorted({Path(file.path).parent for file in files}):
            if not folder.is_dir():
                continue
            descriptor = stack.enter_context(turn.opened(folder))
            try:
                turn.lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if wait is None:
                    raise
                wait(folder)
                turn.lock(descriptor)
                waited = True
        yield waited


def recover(root: Path, wait: Callable[[Path], None] | None = None) -> tuple[str, ...]:
    """Put right every run below `root` that is not alive and did not end in order; a sentence for each.

    One whose folders another run guards now is waited for (`wait`, see `alone`), or left for later. Raises HarnessError
    after all were tried, where one could not be put right.
    """
    said: list[str] = []
    failed: list[str] = []
    for path in sorted((root / rundir.RUNS).glob(f"*/{rundir.EXTERNAL}")):
        try:
            said += [sentence] if (sentence := settle(path.parent, wait)) else []
        except HarnessError as error:
            failed.append(f"{error}; what was not put back lies in {path.parent / KEPT}, see {path}")
    if failed:
        raise HarnessError("; ".join(failed))
    return tuple(said)


def settle(run_dir: Path, wait: Callable[[Path], None] | None = None) -> str:
    """Put one run right; "" when there is nothing to do, it is alive, or its turn has not come. Raises HarnessError."""
    if not (run_dir / rundir.EXTERNAL).exists():
        return ""
    journal = rundir.read(run_dir / rundir.EXTERNAL, Journal)
    if journal.state == "restored":
        return ""
    try:
        with held(run_dir), alone(journal.files, wait):
            journal = rundir.read(run_dir / rundir.EXTERNAL, Journal)
            if journal.state == "restored":
                return ""
            ended = end_all(run_dir)
            if ended:
                rundir.say(run_dir, f"what the script had started still ran and was ended: {counted(ended)}")
            journal, moved = restore(run_dir, journal)
    except BlockingIOError:
        return ""
    sentence = f"{run_dir.name} did not live to put old files back; all {len(journal.files)} are as they were"
    if moved:
        sentence += f", what the script wrote to {len(moved)} of them lies in {run_dir}"
    rundir.say(run_dir, sentence)
    return sentence


def restore(run_dir: Path, journal: Journal) -> tuple[Journal, Sequence[Guarded]]:
    """Every old file back in place, said in the log; the journal as written, and the files that the script wrote to.

    Raises HarnessError after all were tried: the journal stays open then.
    """
    moved: list[Guarded] = []
    said: list[str] = []
    failed: list[str] = []
    for file in journal.files:
        try:
            back = put_back(run_dir, file, begun=journal.state == "guarding")
        except HarnessError as error:
            failed.append(str(error))
            continue
        said += back.sentences
        moved += [file] if back.moved else []
    with contextlib.suppress(OSError):  # the disk may be full
        for sentence in said:
            rundir.say(run_dir, sentence)
    if failed:
        raise HarnessError("; ".join(failed))
    with contextlib.suppress(OSError):  # there may be none
        (run_dir / KEPT).rmdir()
    return written(run_dir, replace(journal, state="restored")), moved


def written(run_dir: Path, journal: Journal) -> Journal:
    """The journal, once it is on the disk."""
    rundir.write(run_dir / rundir.EXTERNAL, journal)
    sync(run_dir)
    return journal
