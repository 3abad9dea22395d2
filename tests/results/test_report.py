"""The report: what is said, and that nothing from elsewhere is markup in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.result import Score
from dflash_tui.results.markdown import code, plain, visible
from dflash_tui.results.report import report
from tests.evaluations import OTHER, bare, on, result
from tests.runs import TEN, UNHURRIED

SOURCE = Source("ct129", "/root/eval/runs/r1/checkpoint.pt")


def test_it_says_what_was_evaluated_and_where_it_lies() -> None:
    facts = (
        Fact("run.directory", "/root/eval/runs/r1", Source("ct129", "/root/eval/runs/r1"), ""),
        Fact("link.method", "hardlink", SOURCE, ""),
        Fact(
            "checkpoint.file",
            {"size": 15470000128, "mtime": "2026-05-21T09:00:35Z"},
            Source("ct200", "/workspace/checkpoints/step_4000/checkpoint.pt"),
            "",
        ),
    )
    text = report(replace(result(), facts=facts, run_dir="/root/eval/runs/r1"))
    assert text.startswith("# slammed5 step 4000\n")
    assert "- Run directory: `ct129:/root/eval/runs/r1`" in text
    assert "hard link, no bytes copied (`ct129:/root/eval/runs/r1/checkpoint.pt`)" in text
    assert "15,470,000,128 bytes, saved 2026-05-21T09:00:35Z" in text
    assert "from `ct200:/workspace/checkpoints/step_4000/checkpoint.pt`" in text
    assert "10 of 10 prompts, 300 blocks, block size 16, anchors spaced" in text
    assert "## Comparison" not in text
    assert "- Now: not read" in text


def test_real_trees_stand_in_the_table_where_ranks_were_kept() -> None:
    text = report(result(), previous=bare(pooled=Score(45, {"top1": 1.0, "top4": 2.0, "top8": 3.0}, 2.0)))
    tree = result().pooled.ddtree["64"]
    assert f"| DDTree b=64 | {tree:.3f} |  |" in text
    assert "DDTree b=64 |\n|---" in text  # and per prompt


def test_a_paired_difference_has_its_interval_and_verdict() -> None:
    text = report(result(), previous=OTHER)
    assert "at 300 blocks each" in text
    assert "Paired by anchors, 95 % intervals of Δ over prompts: top1 [+" in text
    assert "Verdict: better (" in text


def test_equal_prompts_have_no_interval_and_it_says_why() -> None:
    text = report(result(skill=1.0))
    assert "vanilla top-1 streak — (the same on all 10 prompts)" in text
    assert "[15.00, 15.00]" not in text


def test_what_is_lower_is_called_lower() -> None:
    assert "Current is lower by " in report(OTHER, previous=result())


def test_a_withheld_difference_is_not_shown() -> None:
    text = report(result(), previous=replace(OTHER, anchors="strided"))
    assert "Δ n/c: Anchors were chosen by different policies" in text
    assert "higher by" not in text
    assert "- ■ `ANCHOR_POLICY_MISMATCH`" in text


def test_without_caveats_it_says_so() -> None:
    assert "## Caveats\n\nNone found." in report(result())


def test_text_from_elsewhere_is_shown_and_never_obeyed() -> None:
    nasty = "a|b\n# not a heading\x1b[31m <b>[x](y)</b> `tick` *stars* \u202etfel"
    facts = (Fact("train.live", {"step": 5000, "line": nasty, "at": nasty}, Source("h", nasty), ""),)
    evil = replace(on(TEN[:1]), training=nasty, name=nasty, path=nasty, checkpoint_path=nasty, facts=facts)
    evil = replace(evil, per_prompt={nasty: evil.pooled}, prompts_asked=(nasty, nasty + "2"))
    text = report(evil, others=[evil], previous=replace(evil, name="p"), live_now=facts[0].value)
    assert "\x1b" not in text
    assert "\u202e" not in text
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings[1:] == [
        f"## {title}" for title in ("What was evaluated", "Result", "Per prompt", "Comparison", "Caveats", "Training")
    ]
    rows = [line for line in text.splitlines() if line.startswith("| a")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verifier_norm.weight", "verifier_norm.weight"),
        ("_emphasis_ and __more__", "\\_emphasis\\_ and \\_\\_more\\_\\_"),
        ("- item", "\\- item"),
        ("1. item", "\\1. item"),
        ("3.5 is a number", "3.5 is a number"),
        ("a\tb\r\nc", "a\\\\x09b\\\\x0d\\\\x0ac"),
        ("\u202eabc", "\\\\u202eabc"),
    ],
)
def test_prose_keeps_its_words_and_loses_its_markup(text: str, expected: str) -> None:
    assert plain(text) == expected


@UNHURRIED
@given(st.text(st.characters() | st.sampled_from("`\n\ud800\u2028"), max_size=40))
def test_a_code_span_is_one_line_and_can_not_be_left(text: str) -> None:
    span = code(text)
    assert len(span.splitlines()) == 1
    fence = span[: len(span) - len(span.lstrip("`"))]
    assert span.endswith(fence)
    inner = span[len(fence) : -len(fence)]
    assert fence not in [run for run in inner.split() if set(run) == {"`"}]
    assert visible(text) in inner


def columns(text: str) -> list[str]:
    (header,) = [line for line in text.splitlines() if line.startswith("|  | ")]
    return header.strip("| ").split(" | ")


def test_columns_of_other_block_sizes_are_told_apart_and_not_set_against_each_other() -> None:
    wide = replace(result("wide"), block_size=32, horizon=31)
    text = report(result(), others=[wide], previous=OTHER)
    assert columns(text) == [
        "current (full, 300 blocks, block size 16)",
        "current (full, 300 blocks, block size 32)",
        "previous (300 blocks, block size 16)",
    ]
    assert "different block sizes (16, 32) are not comparable" in text
    assert "not comparable" not in report(result(), previous=OTHER)


def test_columns_of_one_size_are_told_apart_by_their_names() -> None:
    assert columns(report(result(), others=[result("again", seed=3)])) == [
        "current (full, 300 blocks, current)",
        "current (full, 300 blocks, again)",
    ]
    assert columns(report(result(), others=[OTHER])) == ["current (full, 300 blocks)", "previous (full, 300 blocks)"]


def test_a_result_of_another_block_size_does_not_stand_for_the_current_one() -> None:
    score = Score(45, {"top1": 1.0, "top4": 2.0, "top8": 3.0}, 2.0)
    shorter = bare("shorter", block_size=8, horizon=7, pooled=score)
    text = report(bare("now"), others=[shorter], previous=bare(pooled=score))
    assert "at 300 against 45 blocks" in text
    assert "Δ n/c" not in text
