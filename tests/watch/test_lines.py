"""Bytes into records: whatever the cuts, whatever the text."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.watch.lines import LINE_LIMIT, Line, LineSplitter, plain

pieces = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", "█ ü".encode(), b"\x1b[31m", b"loss=", b"\xff", b"x"]))


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


@given(st.binary(max_size=400) | pieces.map(b"".join), st.data())
def test_cut_anywhere_gives_what_the_whole_gives(data: bytes, draw: st.DataObject) -> None:
    whole, cut = LineSplitter(), LineSplitter()
    expected = whole.feed(data)
    found: list[Line] = []
    while data:
        length = draw.draw(st.integers(1, len(data)))
        found += cut.feed(data[:length])
        data = data[length:]
    assert found == expected
    assert cut.pending == whole.pending


def test_a_carriage_return_ends_a_record_but_not_a_line() -> None:
    lines = LineSplitter().feed(b"\rbar 1\rbar 2\r\nnext\r\n\nlast\n")
    assert [(line.number, line.text) for line in lines] == [(1, "bar 1"), (1, "bar 2"), (2, "next"), (4, "last")]
    assert [line.offset for line in lines] == [1, 7, 14, 21]


def test_half_a_line_at_the_beginning_is_dropped() -> None:
    splitter = LineSplitter(1000, None, partial_head=True)
    lines = splitter.feed(b"ss: 2.44 | lr 1\nstep 7\n")
    assert [(line.where, line.text) for line in lines] == [("byte 1016", "step 7")]


def test_half_a_line_at_the_end_is_kept_until_it_is_whole() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"step 70030/90000 | lo") == []
    assert splitter.pending == Line("step 70030/90000 | lo", 1, 0)
    assert texts(splitter.feed(b"ss: 2\n")) == ["step 70030/90000 | loss: 2"]


def test_a_character_cut_in_two_is_put_together() -> None:
    block = "█".encode()
    splitter = LineSplitter()
    splitter.feed(block[:1])
    assert texts(splitter.feed(block[1:] + b"\n")) == ["█"]


def test_a_line_without_end_takes_no_memory() -> None:
    splitter = LineSplitter()
    piece = b"x" * (1 << 20)
    tracemalloc.start()
    try:
        for _ in range(100):
            assert splitter.feed(piece) == []
        assert tracemalloc.get_traced_memory()[1] < 4 * LINE_LIMIT
    finally:
        tracemalloc.stop()
    assert splitter.pending is None
    (line, after) = splitter.feed(b"end\nstep 1\n")
    assert (len(line.text), line.cut, after.text) == (LINE_LIMIT, True, "step 1")
    assert after.number == 2


@given(st.text())
def test_nothing_that_drives_a_terminal_is_left(text: str) -> None:
    shown = plain(text)
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown)


def test_colours_titles_and_turned_text_are_taken_off() -> None:
    assert plain("\x1b[1;31mloss\x1b[0m=\x1b[38;2;180;60;0m1\x1b[0m.5\x1b[2K") == "loss=1.5"
    assert plain("\x1b]0;title\x07step\x1b]8;;http://x\x1b\\ 7") == "step 7"
    assert plain("a\u202ecod.exe\u2069b") == "acod.exeb"
