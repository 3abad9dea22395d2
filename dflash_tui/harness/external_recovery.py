"""Old files that a run did not live to put back: found by its journal, and put back now."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dflash_tui.harness import rundir, turn
from dflash_tui.harness.errors import HarnessError
from dflash_tui.harness.external_child import end_all
from dflash_tui.harness.external_guard import KEPT, put_back
from dflash_tui.records.external import Guarded, Journal


@contextlib.contextmanager
def held(run_dir: Path) -> Iterator[None]:
    """The run's own lock, while it works or is put right: it goes with its holder. Raises BlockingIOError when another
    process has it."""
    with turn.opened(run_dir) as folder:
        turn.lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def recover(root: Path) -> tuple[str, ...]:
    """Put right every run below `root` that is not alive and did not end in order; a sentence for each.

    Raises HarnessError after all were tried, where one could not be put right.
    """
    said: list[str] = []
    failed: list[str] = []
    for path in sorted((root / rundir.RUNS).glob(f"*/{rundir.EXTERNAL}")):
        try:
            said += [sentence] if (sentence := settle(path.parent)) else []
        except HarnessError as error:
            failed.append(f"{error}; what was not put back lies in {path.parent / KEPT}, see {path}")
    if failed:
        raise HarnessError("; ".join(failed))
    return tuple(said)


def settle(run_dir: Path) -> str:
    """Put one run right; "" when there is nothing to do, or it is alive. Raises HarnessError."""
    if not (run_dir / rundir.EXTERNAL).exists():
        return ""
    journal = rundir.read(run_dir / rundir.EXTERNAL, Journal)
    if journal.state == "restored":
        return ""
    try:
        with held(run_dir):
            journal = rundir.read(run_dir / rundir.EXTERNAL, Journal)
            if journal.state == "restored":
                return ""
            ended = end_all(run_dir)
            if ended:
                rundir.say(run_dir, f"{ended} processes of the script still ran and were ended")
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
    failed: list[str] = []
    for file in reversed(journal.files):  # a link before what it leads to
        try:
            back = put_back(run_dir, file, begun=journal.state == "guarding")
        except HarnessError as error:
            failed.append(str(error))
            continue
        for sentence in back.sentences:
            rundir.say(run_dir, sentence)
        moved += [file] if back.moved else []
    if failed:
        raise HarnessError("; ".join(failed))
    journal = replace(journal, state="restored")
    rundir.write(run_dir / rundir.EXTERNAL, journal)
    return journal, moved[::-1]
