"""What a script prints, in whatever pieces it arrives: lines, bars, and neither lost in the other."""

from __future__ import annotations

import io
import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.harness.external.output import LONGEST_LINE, Bars, Mark, Stream
from tests.harness.world import needed


def heard(data: bytes, cuts: tuple[int, ...] = (), pattern: str = "") -> tuple[list[str], list[Mark], str]:
    lines: list[str] = []
    marks: list[Mark] = []
    stream = Stream(pattern, lines.append, marks.append)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in pairwise(places):
        stream.feed(data[begin:end])
    stream.close()
    return lines, marks, stream.last


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])), max_size=8), st.data())
def test_lines_arrive_whole_however_they_are_cut(texts: list[str], data: st.DataObject) -> None:
    raw = "".join(f"{text}\n" for text in texts).encode()
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=6))
    lines, _, _ = heard(raw, tuple(cuts))
    assert lines == [text.rstrip() for text in texts if text.strip()]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_no_bytes_break_it_and_nothing_that_moves_a_cursor_gets_through(raw: bytes, cuts: list[int]) -> None:
    lines, _, _ = heard(raw, tuple(cuts))
    assert all(unicodedata.category(letter) != "Cc" or letter == "\t" for line in lines for letter in line)


@pytest.mark.parametrize(
    ("raw", "done", "total", "name"),
    [
        ("  7%|▋         | 3/45 [00:01<00:14,  2.95it/s]", 3, 45, ""),
        ("blocks:  50%|#####     | 15/30 [00:10<00:20, 1.50it/s, top1=3.1]", 15, 30, "blocks"),
        ("Loading checkpoint shards: 100%|██████████| 2/2 [00:01<00:00]", 2, 2, "Loading checkpoint shards"),
        ("\x1b[32mmap\x1b[0m: 10%|█         | 1.20k/12.0k [00:01<00:14, 2.95kB/s]", 1200, 12000, "map"),
        (" 20%|██        | 9.0/45.0 [00:01<00:14,  2.95it/s]", 9, 45, ""),
    ],
)
def test_the_bars_that_tqdm_draws(raw: str, done: int, total: int, name: str) -> None:
    _, marks, _ = heard(f"\r{raw}".encode())
    assert marks[-1] == Mark(done, total, name)


def test_real_bars_of_tqdm_are_read_and_kept_out_of_the_log() -> None:
    tqdm = needed("tqdm")
    drawn = io.StringIO()
    for _ in tqdm.tqdm(range(45), desc="blocks", file=drawn, mininterval=0, miniters=1, ascii=False):
        pass
    lines, marks, _ = heard(drawn.getvalue().encode(), (7, 100, 1000))
    assert [mark.done for mark in marks][-1] == 45
    assert {mark.total for mark in marks} == {45}
    assert len(lines) == 1


def test_a_bar_that_waits_for_its_next_state_has_been_read() -> None:
    marks: list[Mark] = []
    Stream("", lambda line: None, marks.append).feed(b"\r 7%|#   | 3/45 [00:01<00:14]")
    assert marks == [Mark(3, 45)]


def test_the_last_line_is_what_was_said_and_no_bar() -> None:
    _, _, last = heard(b"ValueError: no\n\r 7%|#   | 3/45 [00:01<00:14]\n\n")
    assert last == "ValueError: no"


def test_windows_line_ends_and_overwritten_lines() -> None:
    assert heard(b"one\r\ntwo\rthree\n")[0] == ["one", "three"]


def test_a_line_without_end_is_cut() -> None:
    lines, _, _ = heard(b"x" * (40 * LONGEST_LINE))
    assert [len(line) for line in lines] == [LONGEST_LINE]


def test_the_users_pattern_is_searched_in_every_line_and_takes_the_bars_place() -> None:
    raw = b"7 of 45 done\n 7%|#   | 3/9 [00:01<00:14]\n50 of 45 done\n"
    _, marks, _ = heard(raw, pattern=r"(?P<done>\d+) of (?P<total>\d+)")
    assert marks == [Mark(7, 45), Mark(45, 45)]


def test_of_nested_bars_the_one_that_counts_the_blocks_tells_the_whole() -> None:
    bars, now = Bars(45, lambda: 0.0), [
        Mark(0, 3, "prompts"), Mark(1, 15, "blocks"), Mark(1, 3, "prompts"), Mark(4, 45, "all"), Mark(2, 3, "prompts"),
        Mark(5, 45, "all"),
    ]  # fmt: skip
    assert [bars.take(mark) for mark in now] == [
        Mark(0, 3, "prompts"), None, Mark(1, 3, "prompts"), Mark(4, 45, "all"), None, Mark(5, 45, "all"),
    ]  # fmt: skip


def test_a_bar_that_is_full_or_stands_still_gives_way() -> None:
    clock = [0.0]
    bars = Bars(45, lambda: clock[0])
    assert bars.take(Mark(2, 2, "shards"))
    assert bars.take(Mark(1, 9, "map"))
    assert bars.take(Mark(1, 7, "other")) is None
    clock[0] = 11.0
    assert bars.take(Mark(2, 7, "other"))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1bcreset\x1b[31mred\x1b[0m", "resetred"),
        (b"\x1b]0;title\x07window\x1b]52;c;aGk=\x1b\\clipboard", "windowclipboard"),
        (b"\x1bPsixel\x1b\\picture\x1b_apc\x1b\\.", "picture."),
        ("\x9b31mone character\x08\x07\x0b".encode(), "31mone character"),
        (b"\x1b(0drawn\x1b7\x1b8\x1b=", "drawn"),
    ],
)
def test_what_drives_a_terminal_is_taken_out(raw: bytes, shown: str) -> None:
    lines, _, _ = heard(raw + b"\n")
    assert lines == [shown]


@pytest.mark.parametrize("piece", [b"x" * 65536, b"7" * 65536, (b"x" * 3999 + b"\n") * 16, b"9%|" * 20000])
def test_output_without_end_is_read_as_fast_as_it_comes(piece: bytes) -> None:
    began = time.process_time()
    heard(piece * 40, tuple(range(0, 40 * len(piece), len(piece))))
    assert time.process_time() - began < 5.0  # 2.5 MB; a pattern that looks back from every character takes minutes
