"""A run of a script of the user's own, read from its records at home."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.records.codec import dumps
from dflash_tui.records.external import ExternalRequest, Journal, Output
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.manifest import Manifest, PromptRef
from dflash_tui.records.process import ExitRecord
from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.compare import compare
from dflash_tui.results.errors import NothingMeasured, NotRecognised, ResultDamaged, ResultError
from dflash_tui.results.evaluation import digest, from_run
from dflash_tui.results.importers import import_as, import_file
from dflash_tui.results.store import Store
from tests.cases import known
from tests.runs import manifest

STORY = known("cases/story")
FULL = (STORY / "eval_slammed5_step4000_full_results.json").read_bytes()
REQUEST = ExternalRequest(("python3", "/root/eval/run_eval.py"), ("python3", "/root/eval/run_eval.py"))


def asked(**changes: object) -> Manifest:
    unknown: dict[str, Any] = {"drafter": None, "audit": None, "anchors": "", "block_size": 0, "prompts": ()}
    base = manifest("own", harness="external:" + "a" * 64, **unknown)
    return replace(base, external=REQUEST, **changes)  # type: ignore[arg-type]


def written(folder: Path, of: Manifest, *files: tuple[str, bytes]) -> Path:
    """A run's folder at home, with the result files that its journal names."""
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(dumps(of))
    outputs = []
    for name, content in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        outputs.append(Output(name, f"/root/eval/{Path(name).name}", len(content), hashlib.sha256(content).hexdigest()))
    (folder / "external.json").write_text(dumps(Journal(1, "/r", "restored", outputs=tuple(outputs))))
    return folder


def test_the_values_are_the_files_and_the_checkpoint_is_the_manifests(tmp_path: Path) -> None:
    result = from_run(written(tmp_path / "own", asked(), ("written/0-eval_results.json", FULL)))
    assert (result.name, result.origin, result.step, result.training) == ("own", "run", 4000, "slammed5")
    assert result.pooled.streak == {"top1": 300 / 90, "top4": 622 / 90, "top8": 789 / 90}
    assert set(result.per_prompt) == {"fizzbuzz", "binary_search", "linked_list_reverse"}
    assert (result.block_size, result.horizon, result.anchors) == (16, 15, None)
    assert (result.prompts_asked_count, result.prompt_count) == (10, 3)
    assert result.checkpoint_name == "step_4000/checkpoint.pt"
    assert {finding.code for finding in caveats_of(result)} == {"PARTIAL_PROMPT_COVERAGE", "SMALL_N"}


def test_it_is_compared_with_an_import_of_the_story(tmp_path: Path) -> None:
    result = from_run(written(tmp_path / "own", asked(), ("work/results.json", FULL)))
    comparison = compare(result, import_file(STORY / "eval_results.json", "previous"))
    assert comparison.verdict == "untestable"
    assert any("keeps no per-prompt values" in why for why in comparison.why)


def test_a_file_that_does_not_say_its_block_size_has_the_one_that_was_asked_for(tmp_path: Path) -> None:
    data = json.loads(FULL)
    del data["block_size"]
    folder = written(tmp_path / "own", asked(block_size=8), ("work/results.json", json.dumps(data).encode()))
    result = from_run(folder)
    assert (result.block_size, result.horizon) == (8, 7)


def test_the_first_file_of_a_known_shape_is_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "own", asked(), ("work/config.json", b'{"a": 1}'), ("work/results.json", FULL))
    assert from_run(folder).pooled.blocks == 90


def test_none_of_a_known_shape_names_what_was_found(tmp_path: Path) -> None:
    folder = written(tmp_path / "own", asked(), ("work/config.json", b'{"a": 1}'), ("work/rows.csv", b"a,b\n"))
    with pytest.raises(NotRecognised, match=r"config.json: not a result .* keys 'a'.*; .*rows.csv: not JSON"):
        from_run(folder)


def test_the_importer_that_is_asked_for_reads_it_or_says_why_not(tmp_path: Path) -> None:
    of = asked()
    own = replace(of, external=replace(REQUEST, import_as="own"))
    folder = written(tmp_path / "own", own, ("work/results.json", FULL))
    with pytest.raises(NotRecognised, match="expected 'run_id', 'horizon', 'pooled' and 'per_prompt'"):
        from_run(folder)
    with pytest.raises(ResultError, match="found 'stori', which is no importer; did you mean 'story'"):
        import_as(folder / "work" / "results.json", "x", "stori")


def test_without_a_result_nothing_was_measured(tmp_path: Path) -> None:
    with pytest.raises(NothingMeasured, match="the script has written no results yet"):
        from_run(written(tmp_path / "own", asked()))
    ended = written(tmp_path / "ended", asked())
    (ended / "exit.json").write_text(dumps(ExitRecord("stopped", 130, "2026-05-21T09:50:00Z", "stopped by SIGTERM")))
    (ended / "log.txt").write_text("begun\n")
    with pytest.raises(NothingMeasured, match=r"written no results; it was stopped by SIGTERM; see log\.txt there"):
        from_run(ended)


def test_a_result_that_did_not_come_home_is_said(tmp_path: Path) -> None:
    folder = written(tmp_path / "own", asked(), ("work/results.json", FULL))
    (folder / "work" / "results.json").unlink()
    with pytest.raises(ResultDamaged, match="has not come home"):
        from_run(folder)


def test_its_identity_is_of_its_result_file_too(tmp_path: Path) -> None:
    one = written(tmp_path / "one", asked(), ("work/results.json", FULL))
    before = digest(one)
    (one / "work" / "results.json").write_bytes(FULL + b"\n")
    assert digest(one) != before


def test_prompts_that_it_left_out_are_no_matter_of_our_hidden_states(tmp_path: Path) -> None:
    prompts = tuple(PromptRef(name, f"hash of {name}") for name in ("fizzbuzz", "binary_search", "graph_bfs"))
    folder = written(tmp_path / "own", asked(prompts=prompts), ("work/results.json", FULL))
    assert "PARTIAL_PROMPT_COVERAGE" not in {finding.code for finding in caveats_of(from_run(folder))}
    short = json.loads(FULL)
    del short["per_prompt"]["linked_list_reverse"], short["per_prompt"]["binary_search"]
    folder = written(tmp_path / "short", asked(prompts=prompts), ("work/results.json", json.dumps(short).encode()))
    (found,) = [f for f in caveats_of(from_run(folder)) if f.code == "PARTIAL_PROMPT_COVERAGE"]
    assert found.values == ("1/3",)
    assert found.sentence.startswith("1 of 3 prompts were measured (left out by the script: binary_search, graph_bfs)")
    assert found.remedy is None


def test_pinning_keeps_the_result_file(tmp_path: Path) -> None:
    folder = written(tmp_path / "state" / "runs" / "own", asked(), ("written/0-eval_results.json", FULL))
    store = Store(tmp_path / "state")
    pin = store.pins.pin("mine", folder)
    kept = store.pins.folder / pin.sha256 / "written" / "0-eval_results.json"
    assert kept.read_bytes() == FULL
    assert kept.stat().st_mode & 0o222 == 0
    assert store.pins.load("mine").pooled == from_run(folder).pooled


def test_what_a_script_used_of_the_checkpoint_is_not_claimed(tmp_path: Path) -> None:
    fact = Fact("link.method", "hardlink", Source("", "/r"), "")
    result = from_run(written(tmp_path / "own", asked(facts=(fact,)), ("work/results.json", FULL)))
    assert not {"SKIPPED_WEIGHTS", "ENGINE_PROXY", "STALE_CACHE"} & {finding.code for finding in caveats_of(result)}
