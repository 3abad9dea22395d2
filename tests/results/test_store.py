"""Runs at home, and what a person may call a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dflash_tui.records.codec import dumps
from dflash_tui.records.process import ExitRecord
from dflash_tui.results.errors import NothingMeasured, ResultError, UnknownReference
from dflash_tui.results.store import Store
from tests.runs import TEN, drafted, manifest, write_run

AVERAGES = {"avg_vanilla_streak": 3.5, "avg_ddtree4_streak": 6.5, "avg_ddtree8_streak": 8.5}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


def _run(store: Store, run_id: str, *, finished: bool = True, created_at: str = "2026-05-21T09:40:00Z") -> Path:
    record = manifest(run_id, created_at=created_at, request_id="the request")
    return write_run(store.run_folder(run_id), record, drafted(TEN[:3]), finished=finished)


def test_nothing_is_there_at_first_and_nothing_is_written_by_looking(store: Store) -> None:
    assert store.runs() == ()
    assert store.pins.entries() == {}
    assert store.find_request("any") is None
    with pytest.raises(UnknownReference, match="'a' is no run, pin or file; runs: none; pins: none"):
        store.resolve("a")
    assert not store.state.exists()


def test_runs_are_listed_newest_first(store: Store) -> None:
    _run(store, "a-late", created_at="2026-05-22T09:40:00Z")
    _run(store, "b-early", created_at="2026-05-20T09:40:00Z")
    assert [run.run_id for run in store.runs()] == ["a-late", "b-early"]


def test_a_damaged_run_is_listed_with_its_error_and_hides_no_other(store: Store) -> None:
    _run(store, "good")
    (store.run_folder("bad") / "manifest.json").write_text("{")
    found = {run.run_id: run for run in store.runs()}
    assert found["good"].finished
    assert found["bad"].manifest is None
    assert "bad/manifest.json: not JSON" in (found["bad"].error or "")


def test_a_request_is_answered_by_its_newest_finished_run_alone(store: Store) -> None:
    _run(store, "old", created_at="2026-05-20T09:40:00Z")
    _run(store, "new")
    _run(store, "running", finished=False, created_at="2026-05-23T09:40:00Z")
    failed = _run(store, "failed", created_at="2026-05-23T09:40:00Z")
    (failed / "exit.json").write_text(dumps(ExitRecord("failed", 1, "", "out of memory")))
    assert store.find_request("the request") == "new"
    assert store.find_request("another") is None


@pytest.mark.parametrize("run_id", ["../up", "a/b", "", ".hidden", "a\nb", "x" * 300, "-rf"])
def test_a_run_id_that_is_no_folder_name_is_refused(store: Store, run_id: str) -> None:
    with pytest.raises(ResultError, match="run id"):
        store.run_folder(run_id)
    assert not store.state.exists()


def test_a_reference_is_an_id_its_beginning_a_pin_or_a_path(store: Store, tmp_path: Path) -> None:
    run = _run(store, "slammed5-step4000-full")
    _run(store, "slammed5-step4500-full")
    file = tmp_path / "eval_results.json"
    file.write_text(json.dumps(AVERAGES))
    store.pins.pin("previous", file)
    assert store.resolve("slammed5-step4000-full").name == "slammed5-step4000-full"
    assert store.resolve("slammed5-step40").name == "slammed5-step4000-full"
    assert store.resolve("previous").name == "previous"
    assert store.resolve(str(file)).name == "eval_results"
    assert store.resolve(str(run)).pooled == store.resolve("slammed5-step40").pooled
    with pytest.raises(UnknownReference, match=r"begins 2 run ids: .*step4000-full.*write more"):
        store.resolve("slammed5")
    with pytest.raises(UnknownReference, match=r"runs: .*step4500-full.*; pins: previous"):
        store.resolve("nothing")


def test_a_whole_id_is_meant_even_where_it_begins_another(store: Store) -> None:
    _run(store, "run-1")
    _run(store, "run-12")
    assert store.resolve("run-1").name == "run-1"


@pytest.mark.parametrize("reference", ["", "\0", "x" * 5000, "../.."])
def test_an_odd_reference_is_unknown_and_no_crash(store: Store, reference: str) -> None:
    with pytest.raises(ResultError):
        store.resolve(reference)


def test_a_run_without_blocks_yet_is_said(store: Store) -> None:
    write_run(store.run_folder("fresh"), manifest("fresh"), (), finished=False)
    with pytest.raises(NothingMeasured):
        store.resolve("fresh")


def test_a_run_whose_records_are_damaged_answers_no_request(tmp_path: Path) -> None:
    for name in ("one", "two"):
        whole = manifest(name, request_id="the same")
        write_run(tmp_path / "runs" / name, whole, drafted(TEN[:3]))
    store = Store(tmp_path)
    assert store.find_request("the same") == "two"
    (tmp_path / "runs" / "two" / "blocks.jsonl").write_text("{")
    assert store.find_request("the same") == "one"
    (tmp_path / "runs" / "one" / "results.json").write_text("{")
    assert store.find_request("the same") is None
