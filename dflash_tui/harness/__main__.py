"""The harness's commands: what the console starts on an evaluation host, and what it asks there.

survey                          JSON request on standard input, JSON answer on standard output
evaluate RUN_DIR [--foreground]  carry out RUN_DIR/manifest.json, when its turn has come
evaluate RUN_DIR RUN_DIR2 …     the same, one after the other in one process; options as for one
evaluate RUN_DIR --once         the same, unless a run beside it answers the same request: then {"answered_by": its id}
                                is the answer, and RUN_DIR is taken away; of RUN_DIR2 … {"beside": {its id: that id}}
external RUN_DIR                 the user's own script, as RUN_DIR/manifest.json asks; options as for evaluate
external-look                    what such a run would keep safe: JSON request and answer, as survey
recover ROOT                     put back the files that such runs below ROOT did not live to put back
capture RUN_DIR [--foreground]   carry out RUN_DIR/capture.json, when its turn has come
… --attached                     each of these in this process, until standard input ends: where nothing can be left
                                running
state RUN_DIR                   one word: starting, running, finished, failed, stopped, lost
stop RUN_DIR                    end it (SIGTERM)
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_tui.harness import attached, claim, logout, machine, process, rundir, several, turn
from dflash_tui.harness.errors import EndedAtLogout, HarnessError, TorchMissing
from dflash_tui.records import codec

if TYPE_CHECKING:
    from dflash_tui.harness.shared import Shared

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
DONE, FAILED, USAGE, ENDED_AT_LOGOUT = 0, 1, 2, 3


def main(argv: list[str]) -> int:
    """Run one command; the exit status is 0 (done), 1 (failed, one sentence on stderr), 2 (usage), 3 (nothing was
    begun, because this host would end it at logout; one sentence) or 130 (stopped)."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    try:
        if command == "survey" and not rest:
            return _survey()
        folders = [word for word in rest if not word.startswith("-")]
        options = set(rest) - set(folders)
        run_dirs = [Path(folder).resolve() for folder in folders]
        several_taken = command == "evaluate" and run_dirs
        one_taken = command in ("external", "capture") and len(run_dirs) == 1
        begins = several_taken or one_taken
        if begins and "--attached" in options and options <= {"--attached", "--once"}:
            return _held(command, run_dirs, once="--once" in options)
        if begins and "--foreground" not in options:
            logout.leave_session()
        if begins and options <= {"--foreground"}:
            return _work(command, run_dirs, detached=not options)
        if begins and command != "capture" and options == {"--once"}:
            return _once(command, run_dirs)
        if command == "external-look" and not rest:
            return _look()
        if len(rest) == 1 and command == "recover":
            return _recover(Path(rest[0]))
        if len(rest) == 1 and command == "state":
            return _state(Path(rest[0]))
        if len(rest) == 1 and command == "stop":
            print("stopping" if process.stop(Path(rest[0])) else "not running")
            return DONE
    except EndedAtLogout as error:
        print(error, file=sys.stderr)
        return ENDED_AT_LOGOUT
    except HarnessError as error:
        print(error, file=sys.stderr)
        return FAILED
    print((__doc__ or "").strip(), file=sys.stderr)
    return USAGE


def _survey() -> int:
    from dflash_tui.harness.survey import answer

    machine.step_aside()  # a checkpoint's identity is read from all of its gigabytes
    # Bytes: a host's locale may know another charset than the one that is read at the other end.
    sys.stdout.buffer.write(f"{answer(sys.stdin.buffer.read())}\n".encode())
    sys.stdout.flush()
    return DONE


def _look() -> int:
    from dflash_tui.harness.external.paths import looked
    from dflash_tui.records.external import ExternalLook

    try:
        request = codec.loads(ExternalLook, sys.stdin.buffer.read(), "external-look request")
    except codec.RecordError as error:
        raise HarnessError(str(error)) from error
    sys.stdout.buffer.write(f"{codec.dumps(looked(request))}\n".encode())
    sys.stdout.flush()
    return DONE


def _recover(root: Path) -> int:
    from dflash_tui.harness.external.recovery import recover

    for sentence in recover(root.resolve()):
        sys.stdout.buffer.write(f"{sentence}\n".encode("utf-8", "backslashreplace"))  # a file's name may be no text
    sys.stdout.flush()
    return DONE


def _state(run_dir: Path) -> int:
    """Who asks after a run that did not live to put old files back has them put back."""
    state = process.state(run_dir)
    if state != "running":
        from dflash_tui.harness.external.recovery import settle

        settle(run_dir.resolve())
    print(state)
    return DONE


def _once(command: str, run_dirs: list[Path]) -> int:
    with claim.alone(run_dirs[0]) as folder:
        answered, left = _claimed(run_dirs)
        begun = json.loads(_work_detached(command, left, shut=(folder,))) if left else {}
        print(codec.dumps(answered if "answered_by" in answered else {**begun, **answered}))
        return DONE


def _claimed(run_dirs: list[Path]) -> tuple[dict[str, Any], list[Path]]:
    """What is told of the run directories whose requests others answer, which are taken away, and those that are left:
    "answered_by" for the first of all, "beside" for the others."""
    first, *_ = run_dirs
    others = {run_dir: other for run_dir in run_dirs if (other := claim.same(run_dir))}
    for run_dir in others:
        claim.discard(run_dir)
    told: dict[str, Any] = {"answered_by": others[first]} if first in others else {}
    if beside := {run_dir.name: other for run_dir, other in others.items() if run_dir != first}:
        told["beside"] = beside
    return told, [run_dir for run_dir in run_dirs if run_dir not in others]


def _held(command: str, run_dirs: list[Path], *, once: bool) -> int:
    with contextlib.ExitStack() as alone:
        if once:
            alone.enter_context(claim.alone(run_dirs[0]))
            answered, run_dirs = _claimed(run_dirs)
            if answered:
                print(codec.dumps(answered), flush=True)
        if not run_dirs:
            return DONE
        work, carry = _prepared(command, run_dirs)

        def started() -> None:
            alone.close()
            attached.hold(run_dirs[0])

        return carry(run_dirs[0], work, started)


def _work(command: str, run_dirs: list[Path], *, detached: bool) -> int:
    if detached:
        print(_work_detached(command, run_dirs))
        return DONE
    work, carry = _prepared(command, run_dirs)
    return carry(run_dirs[0], work, lambda: None)


def _work_detached(command: str, run_dirs: list[Path], *, shut: tuple[int, ...] = ()) -> str:
    """process.json of the process that carries them out."""
    work, carry = _prepared(command, run_dirs)
    first = run_dirs[0]
    if command != "external" and importlib.util.find_spec("torch") is None:  # say it to the one who waits, too
        carry(first, work, lambda: None)
        raise TorchMissing(_no_torch())
    process.detach(first, work, shut=shut, carry=carry)
    try:
        return (first / rundir.PROCESS).read_text(encoding="utf-8").strip()
    except FileNotFoundError:  # it has begun, and its run directory was taken away: whoever follows it will see
        return "{}"


def _prepared(command: str, run_dirs: list[Path]) -> tuple[Callable[[Path], None], process.Carry]:
    """What carries out one run directory, and what calls that for each."""
    request = rundir.CAPTURE if command == "capture" else rundir.MANIFEST
    for run_dir in run_dirs:
        if not (run_dir / request).exists():
            raise HarnessError(f"{run_dir / request}: not there; nothing says what to do")
        for taken in (rundir.PROCESS, rundir.EXIT):
            if (run_dir / taken).exists():
                raise HarnessError(f"{run_dir / taken}: exists already; a run directory is used once, make another")
    os.environ.update(dict.fromkeys(_THREADS, str(rundir.threads_wanted(run_dirs[0], request))))
    work = {"evaluate": _evaluations(), "external": _external, "capture": _capture}[command]
    return work, functools.partial(several.carry_out, beside=run_dirs[1:])


def _evaluations() -> Callable[[Path], None]:
    """What carries out each evaluation of this process; what they share is made by the first."""
    made: list[Shared] = []

    def work(run_dir: Path) -> None:
        _prepare()
        with turn.waited(run_dir):
            from dflash_tui.harness.memory import check_evaluation

            check_evaluation(run_dir)
            from dflash_tui.harness.evaluate import evaluate
            from dflash_tui.harness.shared import Shared

            if not made:
                made.append(Shared())
            evaluate(run_dir, made[0])

    return work


def _external(run_dir: Path) -> None:
    machine.step_aside()
    from dflash_tui.harness.external.run import external

    external(run_dir)


def _capture(run_dir: Path) -> None:
    _prepare()
    with turn.waited(run_dir):
        from dflash_tui.harness.memory import check_capture

        check_capture(run_dir)
        from dflash_tui.harness.capture import capture

        capture(run_dir)


def _prepare() -> None:
    machine.step_aside()
    if importlib.util.find_spec("torch") is None:
        raise TorchMissing(_no_torch())


def _no_torch() -> str:
    return (
        f"{sys.executable} (Python {platform.python_version()}) has no torch, which evaluation needs; install it with: "
        f"{sys.executable} -m pip install torch --index-url https://download.pytorch.org/whl/cpu"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
