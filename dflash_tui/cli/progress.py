"""A transfer's progress on stderr: bars for a terminal, JSON lines for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from rich.cells import cell_len
from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dflash_tui.console import events as happened
from dflash_tui.console.narration import narrator
from dflash_tui.console.quantities import megabytes, of_bytes, time_left
from dflash_tui.console.words import ROUTES, plain
from dflash_tui.transfer.progress import TransferProgress

_EVERY = 0.5
_PER_SECOND = 4
_SHORTEST, _LONGEST = 10, 50  # cells of a bar
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
        self._narrate = narrator(self._say, tenths=False, ends=False)

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

    def _table(self) -> Group:
        progress = self._progress
        assert progress is not None
        straight = progress.route in ("direct", "same host") and len(self._route) > 2
        route = (self._route[0], self._route[-1]) if straight else self._route
        moving, proving = progress.phase == "moving", progress.phase == "verifying"
        rows: list[_Row] = []
        hops = list(pairwise(route))
        for index, (one, other) in enumerate(hops):
            first = len(hops) > 1 and index == 0
            done, rate = (progress.read, progress.read_rate) if first else (progress.written, progress.rate)
            left = progress.eta if moving and index == len(hops) - 1 else None
            rows.append(_Row(f"{one} ▸ {other}", done, progress.total, progress.resumed, rate if moving else 0, left))
        if progress.to_verify:
            rate, left = (progress.rate, progress.eta) if proving else (0.0, None)
            rows.append(_Row("verify", progress.verified, progress.to_verify, 0, rate, left))
        whole = f"end to end {_percent(progress.written, progress.total)}"
        if progress.route in ROUTES:
            whole += f" · {ROUTES[progress.route]}"
        if progress.resumed:
            whole += f" · ╍ {megabytes(progress.resumed)} lay there before"
        return Group(_grid(rows, self._terminal.width), Text(whole, "dim", no_wrap=True, overflow="ellipsis"))


@dataclass(frozen=True)
class _Row:
    """A bar: `before` of the `done` bytes lay there when this began; `rate` 0 and `eta` None are not shown."""

    name: str
    done: int
    total: int
    before: int
    rate: float
    eta: float | None


def _grid(rows: Sequence[_Row], width: int) -> Table:
    """Name, bar, percent, bytes, speed, time to come; where room is short, bytes and then speed give way."""
    names = max(cell_len(plain(row.name)) for row in rows)
    columns = [(_percent_of, 5), (_bytes, 18), (_speed, 11), (_left, 7)]
    for droppable in (_bytes, _speed):
        if _room(width, names, columns) < _SHORTEST:
            columns = [column for column in columns if column[0] is not droppable]
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for _ in columns:
        table.add_column(justify="right", no_wrap=True)
    long = max(1, min(_LONGEST, _room(width, names, columns)))
    for row in rows:
        table.add_row(Text(plain(row.name)), _bar(row, long), *(Text(words(row)) for words, _ in columns))
    return table


def _room(width: int, names: int, columns: Sequence[tuple[Callable[[_Row], str], int]]) -> int:
    return width - names - sum(size + 1 for _, size in columns) - 2


def _bar(row: _Row, width: int) -> Text:
    share = min(1.0, row.done / row.total) if row.total else 1.0
    full = int(share * width)
    old = min(full, int(min(1.0, row.before / row.total) * width)) if row.total else 0
    bar = Text("╍" * old, "dim")
    bar.append("━" * (full - old), "green" if share >= 1 else "cyan")
    bar.append("─" * (width - full), "bright_black")
    return bar


def _percent(done: int, total: int) -> str:
    share = done / total if total else 1.0
    return f"{100 if share >= 1 else min(99, round(share * 100))} %"


def _percent_of(row: _Row) -> str:
    return _percent(row.done, row.total)


def _bytes(row: _Row) -> str:
    return of_bytes(row.done, row.total)


def _speed(row: _Row) -> str:
    return f"{megabytes(int(row.rate))}/s" if row.rate >= 1 else ""


def _left(row: _Row) -> str:
    if row.done >= row.total:
        return "✓"
    return time_left(row.eta) if row.eta is not None else ""
