"""The harness's commands: what the console starts on an evaluation host, and what it asks there.

survey                          JSON request on standard input, JSON answer on standard output
evaluate RUN_DIR [--foreground]  carry out RUN_DIR/manifest.json, when its turn has come
evaluate RUN_DIR --once         the same, unless a run beside it answers the same request: then {"answered_by": its id}
                                is the answer, and RUN_DIR is taken away
capture RUN_DIR [--foreground]   carry out RUN_DIR/capture.json, when its turn has come
state RUN_DIR                   one word: starting, running, finished, failed, stopped, lost
stop RUN_DIR                    end it (SIGTERM)
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path

from dflash_tui.harness import claim, machine, process, rundir, turn
from dflash_tui.harness.errors import HarnessError, TorchMissing
from dflash_tui.records import codec

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
DONE, FAILED, USAGE = 0, 1, 2


def main(argv: list[str]) -> int:
    """Run one command; the exit status is 0 (done), 1 (failed, one sentence on stderr), 2 (usage) or 130 (stopped)."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    try:
        if command == "survey" and not rest:
            return _survey()
        folders = [word for word in rest if not word.startswith("-")]
        options = set(rest) - set(folders)
        if len(folders) == 1 and command in ("evaluate", "capture") and options <= {"--foreground"}:
            return _work(command, Path(folders[0]).resolve(), detached=not options)
        if len(folders) == 1 and command == "evaluate" and options == {"--once"}:
            return _once(Path(folders[0]).resolve())
        if len(rest) == 1 and command == "state":
            print(process.state(Path(rest[0])))
            return DONE
        if len(rest) == 1 and command == "stop":
            print("stopping" if process.stop(Path(rest[0])) else "not running")
            return DONE
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


def _once(run_dir: Path) -> int:
    with claim.alone(run_dir) as folder:
        if other := claim.same(run_dir):
            claim.discard(run_dir)
            print(codec.dumps({"answered_by": other}))
            return DONE
        return _work("evaluate", run_dir, detached=True, shut=(folder,))


def _work(command: str, run_dir: Path, *, detached: bool, shut: tuple[int, ...] = ()) -> int:
    request = rundir.MANIFEST if command == "evaluate" else rundir.CAPTURE
    if not (run_dir / request).exists():
        raise HarnessError(f"{run_dir / request}: not there; nothing says what to do")
    for taken in (rundir.PROCESS, rundir.EXIT):
        if (run_dir / taken).exists():
            raise HarnessError(f"{run_dir / taken}: exists already; a run directory is used once, make another")
    os.environ.update(dict.fromkeys(_THREADS, str(rundir.threads_wanted(run_dir, request))))
    work = _evaluate if command == "evaluate" else _capture
    if not detached:
        return process.carry_out(run_dir, work)
    if importlib.util.find_spec("torch") is None:  # say it to the one who waits, too
        process.carry_out(run_dir, work)
        raise TorchMissing(_no_torch())
    process.detach(run_dir, work, shut=shut)
    print((run_dir / rundir.PROCESS).read_text(encoding="utf-8").strip())
    return DONE


def _evaluate(run_dir: Path) -> None:
    _prepare()
    with turn.waited(run_dir):
        from dflash_tui.harness.memory import check_evaluation

        check_evaluation(run_dir)
        from dflash_tui.harness.evaluate import evaluate

        evaluate(run_dir)


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
