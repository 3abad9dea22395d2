"""A transfer's progress on stderr: bars for a terminal, JSON lines for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise

from rich.console import Console as Terminal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dflash_tui.console import events as happened
from dflash_tui.console.narration import narrator
from dflash_tui.console.quantities import megabytes, time_left
from dflash_tui.console.words import plain
from dflash_tui.transfer.progress import TransferProgress

_EVERY = 0.5
_PER_SECOND = 4
_MOVING = ("moving", "verifying", "publishing", "done")


def json_lines(
    say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> Callable[[happened.Event], None]:
    """A listener that says each event of a transfer as one JSON object a line: `event` is started, planned, progress
    (at most two a second), notice or ended; the others are the fields of that event."""
    last: dict[str, float] = {}

    def line(event: str, **fields: object) -> None:
        say(json.dumps({"event": event, **fields}, allow_nan=False))

    def tell(event: happened.Event) -> None:
        match event:
            case happened.TransferStarted():
                line("started", **asdict(event))
            case happened.TransferPlanned():
                left = [{"what": what, "bytes": size} for what, size in event.left]
                line("planned", **{**asdict(event), "left": left})
            case happened.TransferAdvanced(job, progress):
                now = clock()
                if now - last.get(job, now - _EVERY) >= _EVERY:
                    last[job] = now
                    line("progress", job=job, **asdict(progress))
            case happened.TransferEnded():
                line("ended", **asdict(event))
            case happened.Noticed(level, sentence):
                line("notice", level=level, sentence=sentence)

    return tell


class Bars:
    """A bar for each hop and one for the proof, below the sentences that are said meanwhile. Bytes that lay there
    before have another shade; they begin to be drawn with the first byte that moves."""

    def __init__(self, say: Callable[[str], None], terminal: Terminal | None = None) -> None:
        self._terminal = terminal or Terminal(stderr=True, highlight=False)
        self._live: Live | None = None
        self._route: tuple[str, ...] = ()
        self._progress: TransferProgress | None = None
        self._before = say
        self._narrate = narrator(self._say, tenths=False)

    def tell(self, event: happened.Event) -> None:
        """Hear what happens."""
        self._narrate(event)
        match event:
            case happened.TransferStarted():
                self._route = event.route
            case happened.TransferAdvanced(_, progress) if progress.phase in _MOVING and progress.total:
                self._progress = progress
                self._draw()
            case happened.TransferEnded():
                self.close()

    def close(self) -> None:
        """Leave what was drawn last where it is."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _say(self, sentence: str) -> None:
        if self._live is None:
            self._before(sentence)
        else:
            self._live.console.print(Text(plain(sentence)))

    def _draw(self) -> None:
        drawn = self._table()
        if self._live is None:
            self._live = Live(drawn, console=self._terminal, refresh_per_second=_PER_SECOND, transient=False)
            self._live.start()
        self._live.update(drawn, refresh=self._progress is not None and self._progress.phase == "done")

    def _table(self) -> Table:
        progress = self._progress
        assert progress is not None
        straight = progress.route in ("direct", "same host") and len(self._route) > 2
        route = (self._route[0], self._route[-1]) if straight else self._route
        table = Table.grid(padding=(0, 1))
        for justify in ("left", "left", "right", "right", "right", "right"):
            table.add_column(justify=justify, no_wrap=True)  # type: ignore[arg-type]
        width = max(8, min(50, self._terminal.width - 62))
        moving = progress.phase == "moving"
        hops = list(pairwise(route))
        for index, (one, other) in enumerate(hops):
            first = len(hops) > 1 and index == 0
            done, rate = (progress.read, progress.read_rate) if first else (progress.written, progress.rate)
            left = progress.eta if moving and index == len(hops) - 1 else None
            table.add_row(*_row(f"{one} ▸ {other}", done, progress.total, progress.resumed, width,
                                rate if moving else 0.0, left))  # fmt: skip
        if progress.to_verify:
            proving = progress.phase == "verifying"
            table.add_row(*_row("verify", progress.verified, progress.to_verify, 0, width,
                                progress.rate if proving else 0.0, progress.eta if proving else None))  # fmt: skip
        if progress.resumed:
            table.add_row("", Text(f"╍ {megabytes(progress.resumed)} lay there before", "dim"))
        return table


def _row(name: str, done: int, total: int, before: int, width: int, rate: float, eta: float | None) -> tuple[Text, ...]:
    share = min(1.0, done / total) if total else 1.0
    full, old = int(share * width), int(min(1.0, before / total) * width) if total else 0
    bar = Text("╍" * min(old, full), "dim")
    bar.append("━" * (full - min(old, full)), "green" if share >= 1 else "cyan")
    bar.append("─" * (width - full), "bright_black")
    percent = 100 if share >= 1 else min(99, round(share * 100))
    return (
        Text(plain(name)),
        bar,
        Text(f"{percent} %", "bold"),
        Text(f"{megabytes(done)} of {megabytes(total)}"),
        Text(f"{megabytes(int(rate))}/s" if rate >= 1 else "", "dim"),
        Text("✓" if share >= 1 else time_left(eta) if eta is not None else ""),
    )
