"""The acceptance story through the command line: three files, a comparison, a report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Desk
from tests.story import read, stories
from tests.workstation import STORY

FROM_FILES = {
    "ANCHOR_POLICY_MISMATCH",
    "PARTIAL_PROMPT_COVERAGE",
    "SAME_PROMPTS_MORE_BLOCKS",
    "SAME_STEP_OTHER_RUN",
    "SMALL_N",
}
"""What three result files tell by themselves; every other code of the story needs a manifest's facts."""

FIGURES = (
    "|  | current (quick, 45 blocks) | current (full, 90 blocks) | previous (45 blocks) |",
    "| vanilla top-1 streak | 3.178 | 3.333 | 0.778 |",
    "| DDTree top-4 streak | 5.689 | 6.911 | 1.111 |",
    "| DDTree top-8 streak | 8.156 | 8.767 | 1.467 |",
    "| τ = streak + 1 | 4.178 / 6.689 / 9.156 | 4.333 / 7.911 / 9.767 | 1.778 / 2.111 / 2.467 |",
    "| fizzbuzz | 30 | 3.67 | 6.83 | 8.13 |",
    "| binary_search | 30 | 3.40 | 7.60 | 9.60 |",
    "| linked_list_reverse | 30 | 2.93 | 6.30 | 8.57 |",
    "higher by 2.400 / 4.578 / 6.689 at 45 blocks each",
)


@pytest.fixture(scope="module", params=stories(), ids=lambda folder: folder.name)
def told(request: pytest.FixtureRequest, world: Desk, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A story's folder, and the state folder into which its three files were imported."""
    folder: Path = request.param
    state = tmp_path_factory.mktemp("story") / "state"
    story = read(folder)
    for name, result in (("quick", story.quick), ("full", story.full), ("previous", story.previous)):
        answer = world.json("import", result.path, "--as", name, state=state)
        assert answer["name"] == name
        assert answer["result"]["streak"] == pytest.approx(result.pooled.streak)
    return story, state


def codes(findings: list[dict[str, Any]]) -> set[tuple[str, str, tuple[Any, ...]]]:
    return {(item["code"], item["severity"], tuple(item["values"])) for item in findings}


def test_the_comparison_is_the_expected_one(world: Desk, told: Any) -> None:
    story, state = told
    ran = world.run("compare", "quick", "previous", "--json", state=state)
    assert ran.code == 0
    assert ran.err == ""
    expected = story.expected["comparison_quick"]
    assert ran.data["delta"] == pytest.approx(expected["delta"], abs=1e-9)
    assert ran.data["verdict"] == expected["verdict"]
    assert ran.data["why"] == expected["why"]
    found, all_codes = codes(ran.data["caveats"]), codes(story.expected["codes"])
    assert found <= all_codes
    pairwise = FROM_FILES - {"PARTIAL_PROMPT_COVERAGE", "SAME_PROMPTS_MORE_BLOCKS"}
    assert {item for item in all_codes if item[0] in pairwise} <= found


def test_for_people_the_comparison_names_its_verdict_and_why(world: Desk, told: Any) -> None:
    story, state = told
    expected = story.expected["comparison_quick"]
    text = world.run("compare", "quick", "previous", state=state).out
    assert f"verdict: {expected['verdict']} ({'; '.join(expected['why'])})" in text


def test_the_report_shows_every_figure_and_every_code_that_the_files_tell(world: Desk, told: Any) -> None:
    story, state = told
    text = world.json("report", "full", "--with", "quick", "--against", "previous", state=state)["markdown"]
    columns = (story.quick, story.full, story.previous)
    for title, metric in (("vanilla top-1", "top1"), ("DDTree top-4", "top4"), ("DDTree top-8", "top8")):
        figures = " | ".join(f"{result.pooled.streak[metric]:.3f}" for result in columns)
        assert f"| {title} streak | {figures} |" in text
    taus = (" / ".join(f"{result.pooled.streak[m] + 1:.3f}" for m in ("top1", "top4", "top8")) for result in columns)
    assert f"| τ = streak + 1 | {' | '.join(taus)} |" in text
    for prompt, score in story.full.per_prompt.items():
        figures = " | ".join(f"{score.streak[metric]:.2f}" for metric in ("top1", "top4", "top8"))
        assert f"| {prompt} | {score.blocks} | {figures} |" in text
    found, expected = set(re.findall(r"^- . `([A-Z_]+)`", text, re.MULTILINE)), story.expected["codes"]
    assert {item["code"] for item in expected} & FROM_FILES == found


def test_the_report_without_imports_reads_the_files_as_they_lie(world: Desk, apart: Path) -> None:
    names = ("eval_slammed5_step4000_full_results", "eval_slammed5_step4000_quick_results", "eval_results")
    full, quick, previous = (STORY / f"{name}.json" for name in names)
    text = world.run("report", full, "--with", quick, "--against", previous, state=apart).out
    for figure in FIGURES:
        assert figure in text
