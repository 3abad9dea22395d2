"""A run folder as an evaluation, and the quick result inside a full one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_tui.measure.anchors import spaced
from dflash_tui.measure.summary import summarise
from dflash_tui.records.codec import dumps, to_data
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.process import ExitRecord
from dflash_tui.results import evidence
from dflash_tui.results.errors import NothingMeasured, ResultDamaged, ResultError
from dflash_tui.results.evaluation import digest, from_run, quick_of
from tests.runs import AUDIT, TEN, drafted, manifest, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", manifest(present=TEN[:3]), drafted(TEN[:3]))


def test_a_run_tells_what_it_measured_and_on_what(run: Path) -> None:
    evaluation = from_run(run)
    assert evaluation.pooled == summarise("", 15, drafted(TEN[:3])).pooled
    assert list(evaluation.per_prompt) == list(TEN[:3])
    assert (evaluation.step, evaluation.training, evaluation.horizon) == (4000, "slammed5", 15)
    assert evaluation.prompts_asked == TEN
    assert evaluation.prompts_present == TEN[:3]
    assert evaluation.checkpoint_name == "step_4000/checkpoint.pt"
    assert evaluation.sha256 == digest(run)


def test_facts_found_by_the_harness_follow_the_manifests(tmp_path: Path) -> None:
    planned = Fact("weights.id", "planned", Source("here", "/a"), "2026-05-21T09:40:00Z")
    found = Fact("weights.id", "found", Source("ct129", "/b"), "2026-05-21T09:41:00Z")
    audit = dumps(AUDIT).replace('"unused": []', '"unused": ["verifier_norm.weight"]')
    run = write_run(tmp_path / "run", manifest(facts=(planned,)), drafted(TEN), facts=[found])
    (run / "audit.json").write_text(audit)
    evaluation = from_run(run)
    assert evidence.value(evaluation, "weights.id") == "found"
    assert evidence.value(evaluation, "weights.audit")["unused"] == ["verifier_norm.weight"]
    assert evidence.source(evaluation, "weights.audit").path == str(run / "audit.json")


def test_a_run_that_still_runs_gives_its_blocks_so_far(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest(), drafted(TEN[:1]), finished=False)
    with (run / "blocks.jsonl").open("a") as file:
        file.write('{"prompt": "prompt_1", "anch')
    evaluation = from_run(run)
    assert evaluation.pooled.blocks == 30
    assert evaluation.prompts_present == TEN


def test_a_run_without_a_block_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest(), (), finished=False)
    with pytest.raises(NothingMeasured, match="no block was measured yet, its end is not known and it has no log here"):
        from_run(run)
    (run / "log.txt").write_text("loading\n")
    with pytest.raises(NothingMeasured, match=r"no block was measured yet; see log\.txt there"):
        from_run(run)


def test_a_run_that_ended_without_a_block_says_how(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest(), (), finished=False)
    (run / "exit.json").write_text(dumps(ExitRecord("lost", 1, "2026-05-21T09:50:00Z", "it never began on ct129")))
    with pytest.raises(NothingMeasured, match="measured; it was lost: it never began on ct129; it has no log here"):
        from_run(run)
    (run / "exit.json").write_text(dumps(ExitRecord("stopped", 130, "2026-05-21T09:50:00Z", "stopped by SIGTERM")))
    with pytest.raises(NothingMeasured, match="no block was measured; it was stopped by SIGTERM; it has no log here"):
        from_run(run)


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("blocks.jsonl", '"horizon": 15', '"horizon": "15"', r"blocks\.jsonl:1\.horizon: found str"),
        ("blocks.jsonl", '"horizon": 15', '"horizon": 14', r"blocks\.jsonl:1: found horizon 14 .* expected 15"),
        ("blocks.jsonl", '"ranks": [', '"ranks": [1, ', r"blocks\.jsonl:1: found horizon 15 and 16 ranks"),
        ("blocks.jsonl", '{"prompt"', "prompt", r"blocks\.jsonl:1: not JSON"),
        ("manifest.json", '"version": 1', '"version": 99', r"manifest\.json: version is 99.*update"),
        ("manifest.json", '"preset"', '"presets"', r"manifest\.json: Manifest lacks preset"),
        ("results.json", '"blocks": 90', '"blocks": 91', r"results\.json: is about 91 blocks.* holds 90"),
        ("results.json", '"top1": ', '"top1": 1', r"results\.json: pooled\.streak\.top1 is"),
        ("results.json", "slammed5", "other", r"results\.json: run_id is 'other-.*' its manifest says|run_id"),
    ],
)
def test_a_damaged_file_is_one_sentence(run: Path, file: str, old: str, new: str, sentence: str) -> None:
    text = (run / file).read_text()
    assert old in text
    (run / file).write_text(text.replace(old, new, 1))
    with pytest.raises(ResultDamaged, match=sentence) as caught:
        from_run(run)
    assert "\n" not in str(caught.value)


def test_a_rank_below_one_is_damage(run: Path) -> None:
    lines = (run / "blocks.jsonl").read_text().splitlines()
    head, tail = lines[4].split('"ranks": [', 1)
    lines[4] = f'{head}"ranks": [0{tail[tail.index(",") :]}'
    (run / "blocks.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(ResultDamaged, match=r"blocks\.jsonl:5: found rank 0"):
        from_run(run)


def test_a_block_that_is_there_twice_is_damage(run: Path) -> None:
    lines = (run / "blocks.jsonl").read_text().splitlines()
    (run / "blocks.jsonl").write_text("\n".join([*lines, lines[6]]) + "\n")
    with pytest.raises(ResultDamaged, match=r"blocks\.jsonl:91: block prompt_0 at \d+ was already on line 7"):
        from_run(run)


def test_a_lost_last_line_of_a_finished_run_is_damage(run: Path) -> None:
    text = (run / "blocks.jsonl").read_text()
    (run / "blocks.jsonl").write_text(text[: len(text) - 40])
    with pytest.raises(ResultDamaged, match=r"blocks\.jsonl:90: not JSON"):
        from_run(run)


def test_the_quick_part_is_what_a_quick_evaluation_would_have_measured(run: Path) -> None:
    quick = quick_of(from_run(run))
    assert quick.preset == "quick"
    assert quick.prompts_asked == TEN[:3]
    assert {block.anchor for block in quick.blocks} == set(spaced(20, 400, 15, 15))
    assert quick.pooled.blocks == 45
    assert (
        quick.pooled == summarise("", 15, [b for b in drafted(TEN[:3]) if b.anchor in spaced(20, 400, 15, 15)]).pooled
    )


def test_the_quick_part_is_of_the_first_three_prompts_asked(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest(present=TEN[2:6]), drafted(TEN[2:6]))
    assert list(quick_of(from_run(run)).per_prompt) == ["prompt_2"]
    run = write_run(tmp_path / "late", manifest(present=TEN[3:]), drafted(TEN[3:]))
    with pytest.raises(NothingMeasured, match="none of its first prompts"):
        quick_of(from_run(run))


def test_no_quick_part_of_a_result_that_is_not_full(tmp_path: Path) -> None:
    blocks = drafted(TEN[:3], count=15)
    run = write_run(tmp_path / "run", manifest(asked=TEN[:3], preset="quick", blocks_per_prompt=15), blocks)
    with pytest.raises(ResultError, match="preset is quick"):
        quick_of(from_run(run))


def test_the_hash_changes_with_any_record(run: Path) -> None:
    before = digest(run)
    (run / "log.txt").write_text("no record")
    assert digest(run) == before
    (run / "audit.json").write_text(dumps(to_data(AUDIT)))
    assert digest(run) != before
