"""Long sentences on a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.cli.prose import folded
from tests.cli.world import Desk
from tests.terminal import dialogue

WORDS = st.lists(st.text("abc/-", min_size=1, max_size=30), min_size=1, max_size=40)


@given(WORDS, st.integers(40, 120), st.integers(0, 4))
def test_no_word_is_broken_and_none_is_lost(words: list[str], width: int, indent: int) -> None:
    lines = folded(" " * indent + " ".join(words), width).split("\n")
    assert [word for line in lines for word in line.split()] == words
    assert all(len(line) <= width for line in lines)


def test_a_command_stays_in_one_piece() -> None:
    command = "`python3 -m pip install torch --index-url https://download.pytorch.org/whl/cpu`"
    text = folded(f"  ✖ torch: ct129: python3 has no torch, expected one: install it with {command}, or else", 60)
    assert command in text
    assert text.split("\n")[-1] == "    or else" or f"{command}," in text


def test_check_breaks_its_lines_between_words(world: Desk) -> None:
    config = world.other_config("only.toml")
    command = world.command("--config", config, "check")
    with dialogue(command, world.home, {**world.environment(), "COLUMNS": "44", "LINES": "24"}) as person:
        person.until("nothing failed")
        person.end()
    answer = person.said[person.said.index("config\n  ") :]
    assert "watches and evaluates" in " ".join(answer.split())
    assert len([line for line in answer.split("\n") if line.startswith("    ")]) > 10
    long = [line for line in answer.split("\n") if len(line) > 44 and "`" not in line]
    assert all(len(line.split()) == 1 for line in long), long
