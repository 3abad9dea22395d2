"""A command template: what is filled, what is refused, and that nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.evals.errors import EvaluationError
from dflash_tui.evals.placeholders import PLACEHOLDERS, complete, filled, used
from tests.test_readme import README

VALUES = {name: f"<{name}>" for name in PLACEHOLDERS}


@given(st.text())
def test_any_word_survives_when_its_braces_are_doubled(word: str) -> None:
    template = word.replace("{", "{{").replace("}", "}}")
    assert used([template]) == frozenset()
    assert complete(template, {}) == word


@given(st.lists(st.sampled_from(["{step}", "{{", "}}", "text ", "{run_dir}"]), max_size=6))
def test_filling_in_two_steps_is_filling_in_one(parts: list[str]) -> None:
    template = "".join(parts)
    assert complete(filled(template, {"step": 4000}), {"run_dir": "/r"}) == complete(
        template, {"step": 4000, "run_dir": "/r"}
    )


def test_every_placeholder_is_filled_and_documented() -> None:
    for name in PLACEHOLDERS:
        assert used([f"--x={{{name}}}"]) == {name}
        assert complete(f"--x={{{name}}}", VALUES) == f"--x=<{name}>"
        assert f"`{{{name}}}`" in README


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("{Checkpoint}", "did you mean {checkpoint}?"),
        ("{runs}", "{runs} in '{runs}', which is no placeholder"),
        ("{}", "found {} in '{}', which is no placeholder; known: checkpoint"),
        ('{"a": 1}', "which is no placeholder"),
        ("}", "found a lone '}' in '}'; write '}}' for the character"),
    ],
)
def test_what_is_no_placeholder_is_refused(word: str, said: str) -> None:
    with pytest.raises(EvaluationError) as refused:
        used(["fine", word])
    assert said in str(refused.value)


def test_one_that_has_no_value_is_named() -> None:
    with pytest.raises(EvaluationError, match=r"\{step\} can't be filled: the checkpoint's step is not known"):
        complete("--step={step}", {})
