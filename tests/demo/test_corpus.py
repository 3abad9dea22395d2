from __future__ import annotations

import ast
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.demo.corpus import DATA, EVALUATED, documents, evaluation_documents, tasks
from dflash_tui.demo.errors import DemoError
from dflash_tui.demo.tokens import CODE, END, MASK, SPECIAL, TASK, Tokenizer, learn, prompt_text

TOKENIZER = Tokenizer.load(DATA / "target" / "tokenizer.json")
PRINTABLE = st.text(st.sampled_from(["\n", *map(chr, range(32, 127))]), max_size=200)


def test_every_program_is_python() -> None:
    rng = random.Random(5)
    for task in tasks().values():
        for _ in range(20):
            ast.parse(task.sample(rng).program)


def test_the_same_seed_draws_the_same_documents_and_another_seed_others() -> None:
    by_id = tasks()
    drawn = [list(itertools.islice(documents(by_id, list(by_id), seed), 48)) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_every_round_draws_every_task_once() -> None:
    by_id = tasks()
    drawn = list(itertools.islice(documents(by_id, list(by_id), 0), 2 * len(by_id)))
    assert {d.task for d in drawn[: len(by_id)]} == {d.task for d in drawn[len(by_id) :]} == set(by_id)


def test_an_evaluated_instruction_is_never_drawn_even_where_all_names_are_usual() -> None:
    by_id = tasks()
    held_out = {document.instruction for document in evaluation_documents(by_id)}
    drawn = list(itertools.islice(documents(by_id, list(EVALUATED), 0, usual=1.0), 200))
    assert held_out.isdisjoint(document.instruction for document in drawn)


def test_a_task_without_held_out_names_cannot_be_evaluated() -> None:
    with pytest.raises(DemoError, match="quick_sort is evaluated but has no held_out"):
        tasks()["quick_sort"].evaluated()


@given(PRINTABLE)
def test_encoding_and_decoding_give_the_text_back(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert all(len(SPECIAL) <= index < len(TOKENIZER.vocab) for index in ids)


def test_a_prompt_is_an_instruction_between_marks_and_a_completion_ends() -> None:
    marks = {token: index for index, token in enumerate(SPECIAL)}
    prompt = TOKENIZER.prompt("Write it.")
    assert (prompt[0], prompt[-1]) == (marks[TASK], marks[CODE])
    assert prompt_text("Write it.") == TASK + TOKENIZER.decode(prompt) + CODE
    assert TOKENIZER.completion("x = 1\n")[-1] == marks[END]
    assert marks[MASK] not in TOKENIZER.encode(MASK)


def test_learning_merges_the_most_frequent_pair_first() -> None:
    learned = learn(["abab abab", "ab"], len(SPECIAL) + 96 + 1)
    assert learned.merges == (("a", "b"),)
    assert learned.decode(learned.encode("abab")) == "abab"
    assert len(learned.encode("abab")) == 2
