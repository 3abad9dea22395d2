"""A journal tells what passed, from any part of it that can be read; names tell plans apart."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.checkpoints.segments import Late, Literal, Output, Range
from dflash_tui.transfer.journal import (
    Known,
    aside_name,
    asides,
    chunk_line,
    crc_line,
    header,
    journal_name,
    link_name,
    parse_journal,
    part_name,
    pieces_of,
    plan_id,
)
from dflash_tui.transfer.record import Identity

PLAN = "0123456789ab"
HEAD = header(PLAN, "checkpoint.pt", 1 << 30, "ct200", "/data", {"checkpoint.pt": Identity(1 << 30, 1.5, 7)})
HASHES = st.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}")


def written(chunks: list[tuple[int, str]]) -> bytes:
    return HEAD + b"".join(b"\n" + chunk_line(*item).encode() + b"\n" for item in chunks)


@given(st.lists(st.tuples(st.integers(0, 300), HASHES), max_size=20), st.data())
def test_what_is_left_of_a_cut_journal_is_true(chunks: list[tuple[int, str]], data: st.DataObject) -> None:
    whole = written(chunks)
    assert parse_journal(whole, PLAN) == Known(dict(chunks))
    left = parse_journal(whole[: data.draw(st.integers(0, len(whole)))], PLAN)
    prefixes = [Known(dict(chunks[:count])) for count in range(len(chunks) + 1)]
    assert left is None or left in prefixes


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 9), HASHES), max_size=4))
def test_what_was_written_over_it_is_passed_over(noise: bytes, chunks: list[tuple[int, str]]) -> None:
    noisy = HEAD + noise + written(chunks)[len(HEAD) :]
    known = parse_journal(noisy, PLAN)
    assert known is not None
    assert dict(chunks).items() <= known.chunks.items()


@given(st.binary(max_size=200))
def test_anything_else_is_no_journal(data: bytes) -> None:
    assert parse_journal(data, PLAN) is None
    assert parse_journal(HEAD + data, "ba9876543210") is None


def test_the_last_word_about_a_chunk_counts() -> None:
    known = parse_journal(written([(1, "a" * 64), (1, "b" * 64)]) + crc_line(3, 7).encode() + b"\n", PLAN)
    assert known == Known({1: "b" * 64}, {3: 7})
    assert json.loads(HEAD)["sources"] == {"checkpoint.pt": [1 << 30, 1.5, 7]}


SOURCES = {"a": Identity(10, 1.5, 7)}
WHOLE = Output("a", (Range("a", 0, 10),))


def test_a_plan_is_told_by_its_source_and_its_bytes() -> None:
    known = plan_id("ct200", "/data", SOURCES, WHOLE)
    others = [
        plan_id("ct201", "/data", SOURCES, WHOLE),
        plan_id("ct200", "/date", SOURCES, WHOLE),
        plan_id("ct200", "/data", {"a": Identity(11, 1.5, 7)}, WHOLE),
        plan_id("ct200", "/data", {"a": Identity(10, 2.5, 7)}, WHOLE),
        plan_id("ct200", "/data", {"a": Identity(10, 1.5, 8)}, WHOLE),
        plan_id("ct200", "/data", SOURCES, Output("b", WHOLE.segments)),
        plan_id("ct200", "/data", SOURCES, Output("a", (Range("a", 1, 9),))),
        plan_id("ct200", "/data", SOURCES, Output("a", (Range("a", 0, 10), Literal(b"x")))),
        plan_id("ct200", "/data", SOURCES, Output("a", (Range("a", 0, 10), Literal(b"y")))),
        plan_id("ct200", "/data", SOURCES, Output("a", (Range("a", 0, 10), Late(1, lambda crcs: b"x")))),
    ]
    assert len({known, *others}) == 1 + len(others)
    cut = Output("a", (Range("a", 0, 4, crc=1), Range("a", 4, 6, crc=2)))
    assert plan_id("ct200", "/data", SOURCES, cut) == known, "the same bytes, however they are cut"


@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=85))
def test_names_of_pieces_fit_any_filesystem(name: str) -> None:
    made = [part_name(name, PLAN), journal_name(name, PLAN), aside_name(part_name(name, PLAN)), link_name(name, PLAN)]
    assert max(len(piece.encode("utf-8", "surrogateescape")) for piece in made) <= 255
    assert pieces_of(made, ["another", name]) == made
    assert not pieces_of(made, [name + "x"]) or len(name.encode("utf-8", "surrogateescape")) > 119
    assert pieces_of([f".{name}.part", name, f".{name}.01234567.part"], [name]) == []
    assert asides([name, *made]) == {made[0]: [made[2]]}
