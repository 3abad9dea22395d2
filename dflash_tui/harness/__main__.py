"""The harness's commands: what the console starts on an evaluation host, and what it asks there.

survey                          JSON request on standard input, JSON answer on standard output
evaluate RUN_DIR [--foreground]  carry out RUN_DIR/manifest.json
capture RUN_DIR [--foreground]   carry out RUN_DIR/capture.json
state RUN_DIR                   one word: starting, running, finished, failed, stopped, lost
stop RUN_DIR                    end it (SIGTERM)
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path

from dflash_tui.harness import process, rundir
from dflash_tui.harness.errors import HarnessError, TorchMissing

NICENESS = 10
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
DONE, FAILED, USAGE = 0, 1, 2


def main(argv: list[str]) -> int:
    """Run one command; the exit status is 0 (done), 1 (failed, one sentence on stderr), 2 (usage) or 130 (stopped)."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    try:
        if command == "survey" and not rest:
            return _survey()
        folders = [word for word in rest if not word.startswith("-")]
        if len(folders) == 1 and command in ("evaluate", "capture") and set(rest) <= {*folders, "--foreground"}:
            return _work(command, Path(folders[0]).resolve(), "--foreground" not in rest)
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

    # Bytes: a host's locale may know another charset than the one that is read at the other end.
    sys.stdout.buffer.write(f"{answer(sys.stdin.buffer.read())}\n".encode())
    sys.stdout.flush()
    return DONE


def _work(command: str, run_dir: Path, detached: bool) -> int:
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
    process.detach(run_dir, work)
    print((run_dir / rundir.PROCESS).read_text(encoding="utf-8").strip())
    return DONE


def _evaluate(run_dir: Path) -> None:
    _prepare()
    from dflash_tui.harness.evaluate import evaluate

    evaluate(run_dir)


def _capture(run_dir: Path) -> None:
    _prepare()
    from dflash_tui.harness.capture import capture

    capture(run_dir)


def _prepare() -> None:
    os.nice(max(0, NICENESS - os.nice(0)))
    if importlib.util.find_spec("torch") is None:
        raise TorchMissing(_no_torch())


def _no_torch() -> str:
    return (
        f"{sys.executable} (Python {platform.python_version()}) has no torch, which evaluation needs; install it with: "
        f"{sys.executable} -m pip install torch --index-url https://download.pytorch.org/whl/cpu"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
