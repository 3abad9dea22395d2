"""Cases of `cases/findings` whose evidence this room reads today: what is expected is raised, and nothing else at error
level. The adapters only rename keys; which adapter a case needs, its files' keys decide."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation, Score
from dflash_tui.results.caveats import caveats_of, caveats_of_comparison
from dflash_tui.results.common import common_prompts
from tests.cases import all_are_expected, case_root


@dataclass(frozen=True)
class Case:
    folder: Path
    expected: tuple[str, ...]
    find: Callable[[], tuple[Finding, ...]]


def imported(path: Path, **fields: Any) -> Evaluation:
    pooled = fields.pop("pooled", Score(0, {"top1": 1.0, "top4": 1.0, "top8": 1.0}, 2.0))
    return Evaluation(name=path.stem, origin="import", path=str(path), sha256="0" * 64, pooled=pooled, **fields)


def on_prompts(path: Path, prompts: list[str], asked: list[str] | None = None) -> Evaluation:
    scores = {prompt: Score(1, {"top1": 1.0, "top4": 1.0, "top8": 1.0}, 2.0) for prompt in prompts}
    return imported(path, per_prompt=scores, prompts_asked=None if asked is None else tuple(asked))


def block_sizes(one: Path, other: Path) -> tuple[Finding, ...]:
    """Published acceptance lengths (bonus included) of two block sizes."""
    sides = []
    for path in (one, other):
        said = json.loads(path.read_text())
        length = fmean(said["al_by_category"].values())
        sides.append(imported(path, block_size=said["block_size"], pooled=Score(0, {"top1": length - 1}, length)))
    return caveats_of_comparison(*sides)


def cached(folder: Path) -> Evaluation:
    rows = json.loads((folder / "manifest.json").read_text())["rows"]
    there = set((folder / "present.txt").read_text().split())
    present = [row["id"] for row in rows if row["path"] in there]
    return on_prompts(folder / "present.txt", present, [row["id"] for row in rows])


def keys(folder: Path) -> tuple[Finding, ...]:
    facts = []
    for kind, name in (("cache.identity", "cache_key.json"), ("target.identity", "wanted_key.json")):
        path = folder / name
        facts.append(Fact(kind, json.loads(path.read_text()), Source("", str(path)), ""))
    return caveats_of(imported(folder / "wanted_key.json", facts=tuple(facts)))


def linked(folder: Path) -> Evaluation:
    """A record of a linked file for each stage; one record is of one file."""
    facts = []
    for kind, name in (("link.record", "link_record.json"), ("link.now", "now.json")):
        path = folder / name
        facts.append(Fact(kind, {"checkpoint": json.loads(path.read_text())}, Source("", str(path)), ""))
    return imported(folder / "now.json", facts=tuple(facts))


def _is_published(said: Any) -> bool:
    return isinstance(said, dict) and {"block_size", "al_by_category"} <= said.keys()


def cases() -> Iterator[Case]:
    for path in sorted((case_root() / "cases" / "findings").glob("*/expected.json")):
        folder, expected = path.parent, tuple(json.loads(path.read_text())["findings"])
        names = {item.name for item in folder.iterdir()}
        data = [item for item in sorted(folder.glob("*.json")) if item.name != "expected.json"]
        published = [path for path in data if _is_published(json.loads(path.read_text()))]
        if len(published) == 2:
            yield Case(folder, expected, lambda pair=tuple(published): block_sizes(*pair))  # type: ignore[misc]
        if {"manifest.json", "present.txt"} <= names:
            yield Case(folder, expected, lambda folder=folder: caveats_of(cached(folder)))  # type: ignore[misc]
        if {"cache_key.json", "wanted_key.json"} <= names:
            yield Case(folder, expected, lambda folder=folder: keys(folder))  # type: ignore[misc]
        if {"link_record.json", "now.json"} <= names:
            yield Case(folder, expected, lambda folder=folder: caveats_of(linked(folder)))  # type: ignore[misc]


CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder.name)
def test_a_case_raises_what_it_must_and_no_other_error(case: Case) -> None:
    found = case.find()
    assert set(case.expected) <= {finding.code for finding in found}
    assert {finding.code for finding in found if finding.severity in ("void", "block")} <= set(case.expected)


def test_there_are_such_cases() -> None:
    wanted = {"BLOCK_SIZE_MISMATCH", "LINKED_FILE_CHANGED", "PARTIAL_PROMPT_COVERAGE", "STALE_CACHE"}
    assert {code for case in CASES for code in case.expected} >= wanted or not all_are_expected()


@pytest.mark.parametrize("folder", [case.folder for case in CASES if (case.folder / "baseline_ids.json").exists()])
def test_a_baseline_on_other_prompts_shares_the_expected_ones(folder: Path) -> None:
    numbers = json.loads((folder / "expected.json").read_text())["numbers"]
    current, path = cached(folder), folder / "baseline_ids.json"
    assert len(common_prompts(current, on_prompts(path, json.loads(path.read_text())))) == numbers["intersection"]
    (coverage,) = [finding for finding in caveats_of(current) if finding.code == "PARTIAL_PROMPT_COVERAGE"]
    assert coverage.values == (numbers["coverage"],)


@pytest.mark.parametrize("folder", [case.folder for case in CASES if (case.folder / "cache_key.json").exists()])
def test_a_stale_cache_names_what_differs_and_never_the_drafter(folder: Path) -> None:
    numbers = json.loads((folder / "expected.json").read_text())["numbers"]
    (stale,) = [finding for finding in keys(folder) if finding.code == "STALE_CACHE"]
    assert stale.severity == "block"
    assert list(stale.values[::3]) == numbers["features_differ"]
