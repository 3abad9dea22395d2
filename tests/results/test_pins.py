"""Pins keep content, whatever happens to the file that they were made from."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from pathlib import Path

import pytest

from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.errors import NotRecognised, PinDamaged, PinRefused, ResultDamaged, UnknownReference
from dflash_tui.results.pins import Pins
from tests.runs import TEN, drafted, manifest, write_run

AVERAGES = {"avg_vanilla_streak": 3.5, "avg_ddtree4_streak": 6.5, "avg_ddtree8_streak": 8.5}


@pytest.fixture
def pins(tmp_path: Path) -> Pins:
    return Pins(tmp_path / "state")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "eval_results.json"
    path.write_text(json.dumps(AVERAGES, indent=3))
    return path


def test_an_imported_file_is_kept_as_its_raw_bytes_read_only(pins: Pins, file: Path) -> None:
    pin = pins.pin("previous", file)
    assert pin.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    (kept,) = (pins.folder / pin.sha256).iterdir()
    assert kept.read_bytes() == file.read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o444
    assert pins.entries() == {"previous": pin}
    assert pin.path == str(file)
    assert pins.load("previous").pooled.tau == 4.5


def test_a_run_is_kept_with_its_records(pins: Pins, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest(), drafted(TEN))
    (run / "log.txt").write_text("not a record")
    pin = pins.pin("baseline", run)
    names = {path.name for path in (pins.folder / pin.sha256).iterdir()}
    assert names == {"manifest.json", "blocks.jsonl", "results.json"}
    loaded = pins.load("baseline")
    assert (loaded.name, loaded.origin, loaded.sha256, len(loaded.blocks)) == ("baseline", "run", pin.sha256, 300)


def test_a_run_that_has_not_finished_is_not_pinned(pins: Pins, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest(), drafted(TEN[:1]), finished=False)
    with pytest.raises(PinRefused, match="has not finished"):
        pins.pin("baseline", run)


def test_what_is_no_result_is_not_pinned(pins: Pins, file: Path) -> None:
    file.write_text("{}")
    with pytest.raises(NotRecognised):
        pins.pin("previous", file)
    assert pins.entries() == {}


@pytest.mark.parametrize("name", ["", "../up", "a b", "x" * 65, ".pins"])
def test_a_name_that_is_none_is_refused(pins: Pins, file: Path, name: str) -> None:
    with pytest.raises(PinRefused, match="pin name"):
        pins.pin(name, file)


def test_a_name_is_given_to_other_content_only_when_asked(pins: Pins, file: Path) -> None:
    first = pins.pin("previous", file)
    assert pins.pin("previous", file) == first
    file.write_text(json.dumps({**AVERAGES, "avg_vanilla_streak": 1.0}))
    with pytest.raises(PinRefused, match=r"'previous' holds .*eval_results\.json"):
        pins.pin("previous", file)
    second = pins.pin("previous", file, replace=True)
    assert pins.load("previous").pooled.tau == 2.0
    assert (pins.folder / first.sha256).exists()
    assert second != first


def test_two_names_may_hold_the_same_content(pins: Pins, file: Path) -> None:
    assert pins.pin("a", file).sha256 == pins.pin("b", file).sha256
    pins.remove("a")
    assert list(pins.entries()) == ["b"]
    assert pins.load("b").name == "b"
    with pytest.raises(UnknownReference, match="no pin is called 'a'; there are b"):
        pins.remove("a")


def test_a_changed_original_is_a_caveat_and_the_pin_stays_what_it_was(pins: Pins, file: Path) -> None:
    pins.pin("previous", file)
    assert "BASELINE_CHANGED" not in {finding.code for finding in caveats_of(pins.load("previous"))}
    file.write_text(json.dumps({**AVERAGES, "avg_vanilla_streak": 9.0}))
    loaded = pins.load("previous")
    assert loaded.pooled.tau == 4.5
    (changed,) = [finding for finding in caveats_of(loaded) if finding.code == "BASELINE_CHANGED"]
    assert changed.values[1] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert changed.evidence[0].path == str(file)
    file.unlink()
    assert "BASELINE_CHANGED" not in {finding.code for finding in caveats_of(pins.load("previous"))}


def test_a_changed_run_is_a_caveat_too(pins: Pins, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", manifest(), drafted(TEN))
    pins.pin("baseline", run)
    write_run(run, manifest(), drafted(TEN, seed=5))
    assert "BASELINE_CHANGED" in {finding.code for finding in caveats_of(pins.load("baseline"))}


def test_a_damaged_pin_is_found_and_pinning_again_repairs_it(pins: Pins, file: Path) -> None:
    pin = pins.pin("previous", file)
    kept = pins.folder / pin.sha256 / "imported"
    kept.chmod(0o644)
    kept.write_text(json.dumps({**AVERAGES, "avg_vanilla_streak": 9.0}))
    with pytest.raises(PinDamaged, match=r"pin 'previous' has sha256 .*pin .*eval_results\.json again"):
        pins.load("previous")
    pins.pin("previous", file)
    assert pins.load("previous").pooled.tau == 4.5
    shutil.rmtree(pins.folder / pin.sha256)
    with pytest.raises(PinDamaged, match="is missing"):
        pins.load("previous")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", r"pins\.json: not JSON"),
        ('{"version": 9, "pins": {}}', "version is 9"),
        ('{"version": 1, "pins": {"a": {"sha256": "../../x", "path": "", "pinned_at": ""}}}', "expected 64 hex digits"),
        ('{"version": 1, "pins": {"a": {"path": "", "pinned_at": ""}}}', r"pins\.a: Pin lacks sha256"),
    ],
)
def test_a_damaged_list_is_one_sentence(pins: Pins, file: Path, text: str, sentence: str) -> None:
    pins.pin("previous", file)
    (pins.folder / "pins.json").write_text(text)
    with pytest.raises(ResultDamaged, match=sentence):
        pins.entries()


def test_pins_made_at_once_are_all_kept(pins: Pins, tmp_path: Path) -> None:
    files = []
    for number in range(8):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps({**AVERAGES, "avg_vanilla_streak": number}))
    threads = [threading.Thread(target=pins.pin, args=(f"pin-{n}", path)) for n, path in enumerate(files)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert len(pins.entries()) == 8
    assert [pins.load(f"pin-{n}").pooled.streak["top1"] for n in range(8)] == list(range(8))
    assert not [path for path in pins.folder.iterdir() if path.name.startswith((".part", ".pins"))]
