"""Lines: exact widths, whole words, nothing from a log that a terminal would obey."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dflash_tui.tui.lines import bar, clean, column, cut, fit, fitting, line, spread, wrapped

WIDE = st.text(st.characters(codec="utf-8"), max_size=40)
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@given(WIDE)
def test_no_text_keeps_a_character_that_a_terminal_obeys(text: str) -> None:
    assert not OBEYED.search(clean(text))


def test_an_escape_sequence_is_shown_not_sent() -> None:
    assert clean("\x1b[2Jloss\x07\x9b31m\u202ecod\r\n") == "␛[2Jloss␇�31m�cod␍␊"


def test_plain_and_wide_letters_stay_as_they_are() -> None:
    assert clean("τ ≥ 4.178 — 訓練 ▲") == "τ ≥ 4.178 — 訓練 ▲"


@given(WIDE, st.integers(0, 60))
def test_fitting_to_a_width_gives_exactly_that_width(text: str, width: int) -> None:
    assert fit(line(text), width).width == width


@given(WIDE, st.integers(1, 60), st.booleans())
def test_a_column_is_exactly_as_wide_as_asked(text: str, width: int, right: bool) -> None:
    assert column(text, width, right=right).width == width


@given(WIDE, st.integers(0, 60))
def test_a_cut_line_is_never_wider_and_says_that_something_is_missing(text: str, width: int) -> None:
    shown = cut(line(text), width)
    assert shown.width <= width
    if 0 < width < line(text).width:
        assert shown.plain.endswith("…")


@given(WIDE, WIDE, st.integers(0, 80))
def test_two_ends_of_a_line_never_overflow_it(left: str, right: str, width: int) -> None:
    assert spread(line(left), line(right), width).width <= width


@given(st.lists(st.text("abc 訓", min_size=1, max_size=12), max_size=8), st.integers(1, 40), st.integers(0, 6))
def test_wrapped_lines_fit_and_lose_no_letter(words: list[str], width: int, indent: int) -> None:
    text = " ".join(words)
    lines = wrapped(line(text), width, indent)
    if width > indent + 1:
        assert all(each.width <= width for each in lines)
        assert "".join("".join(each.plain.split()) for each in lines) == "".join(text.split())


def test_a_gap_at_the_edge_breaks_the_line_there() -> None:
    assert [each.plain for each in wrapped(line("abc   def"), 4)] == ["abc", "def"]


@given(st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=8), st.integers(10, 40), st.data())
def test_a_word_of_several_roles_is_not_broken(words: list[str], width: int, data: st.DataObject) -> None:
    text = " ".join(words)
    at = data.draw(st.integers(0, len(text)))
    parted = wrapped(line((text[:at], "key"), (text[at:], "muted")), width, 2)
    assert [each.plain for each in parted] == [each.plain for each in wrapped(line(text), width, 2)]
    assert " ".join(each.plain for each in parted).split() == words


def test_parts_that_do_not_fit_whole_are_left_out_not_clipped() -> None:
    parts = [line("loss 2.0065"), line("ETA 6 h 36"), line("lr 2.9e-4")]
    assert fitting(parts, 24).plain == "loss 2.0065  ETA 6 h 36"
    assert fitting(parts, 22).plain == "loss 2.0065"


@given(st.floats(0, 2), st.integers(0, 60))
def test_a_bar_fills_its_width_whatever_the_share(share: float, width: int) -> None:
    assert bar(share, 1, width).width == width


def test_a_bar_is_full_only_when_all_is_done() -> None:
    assert bar(999_999, 1_000_000, 20).plain != bar(1, 1, 20).plain
    assert cell_len(bar(1, 1, 20).plain.replace("━", "")) == 0
