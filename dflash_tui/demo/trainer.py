"""The demo's training run, a process of its own: `python -m dflash_tui.demo.trainer OUT`.

It writes `OUT/step_N/checkpoint.pt`, and beside OUT the `train.log` and `train_args.json` that a console reads.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TextIO

from dflash_tui.demo.corpus import DATA

NICE = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Train to the end; returns the exit status."""
    started = time.monotonic()
    given = _parser().parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if given.tether:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    _be_a_guest()
    # Imported only now: torch takes seconds, and the tether must hold and the threads be limited before that.
    from dflash_tui.demo.run import REFUSALS, Run, train

    out = given.out.absolute()
    run = Run(
        out=out,
        train_args=(given.train_args or out.parent / "train_args.json").absolute(),
        target=given.target.absolute(),
        init=given.init.absolute(),
        rows=given.rows.absolute(),
        steps=given.steps,
        lr=given.lr,
        block_size=given.block_size,
        save_every=given.save_every,
        log_every=given.log_every,
        min_step=given.min_step,
        seed=given.seed,
    )
    log = (given.log or out.parent / "train.log").absolute()
    for folder in (out, log.parent, run.train_args.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8", buffering=1) as stream:
        try:
            train(run, lambda text: _write(stream, text), started)
        except REFUSALS as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dflash_tui.demo.trainer", description="Train a tiny drafter.")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the checkpoints, made if absent")
    parser.add_argument("--log", type=Path, help="log file, appended to (default: train.log beside OUT)")
    parser.add_argument("--train-args", type=Path, help="where the settings go (default: train_args.json beside OUT)")
    parser.add_argument("--target", type=Path, default=DATA / "target", help="target model folder")
    parser.add_argument("--init", type=Path, default=DATA / "baseline", help="drafter folder to start from")
    parser.add_argument("--rows", type=Path, default=DATA / "rows.jsonl", help="training rows")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--block-size", type=int, default=32)
    parser.add_argument("--save-every", type=int, default=40, help="steps between checkpoints")
    parser.add_argument("--log-every", type=int, default=5, help="steps between log lines")
    parser.add_argument("--min-step", type=float, default=0.25, help="least seconds a step takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tether", action="store_true", help="end when standard input ends")
    return parser


def _write(stream: TextIO, text: str) -> None:
    stream.write(f"[{datetime.now():%Y-%m-%d %H:%M:%S}] {text}\n")


def _end_with_stdin() -> None:
    """Whoever started us holds the other end of standard input: when it is gone, so are we, at once."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def _be_a_guest() -> None:
    """One thread and a low priority, before torch is imported: it reads the variables only then."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ[name] = "1"
    if hasattr(os, "nice"):
        os.nice(max(0, NICE - os.nice(0)))


if __name__ == "__main__":
    sys.exit(main())
