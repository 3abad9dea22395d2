"""What the commands without hosts say of a state folder in which something is damaged."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.cli import DONE, FAILED, main
from dflash_tui.console.acts import kept
from dflash_tui.console.words import as_text
from dflash_tui.records.facts import Fact, Source
from dflash_tui.results.errors import PinRefused, UnknownReference
from dflash_tui.results.store import Store
from tests.runs import TEN, drafted, manifest, write_run

NOTHING = argparse.Namespace()


def stored(state: Path, *names: str) -> Store:
    for name in names:
        write_run(state / "runs" / name, manifest(name), drafted(TEN[:3]))
    return Store(state)


@pytest.mark.parametrize("file", ["manifest.json", "results.json", "exit.json"])
def test_a_damaged_run_is_listed_as_such_and_hides_no_other(tmp_path: Path, file: str) -> None:
    store = stored(tmp_path, "good", "bad")
    (tmp_path / "runs" / "bad" / file).write_text('{"version": 1')
    answer = kept.runs(store, NOTHING)
    assert {run.run_id: run.state for run in answer.runs} == {"good": "finished", "bad": "damaged"}
    assert [str(tmp_path / "runs" / "bad" / file) in problem for problem in answer.problems] == [True]
    assert file in as_text(answer)


def test_a_run_without_an_end_is_not_claimed_to_run(tmp_path: Path) -> None:
    store = stored(tmp_path, "good")
    assert "no end is known here" not in as_text(kept.runs(store, NOTHING))
    write_run(tmp_path / "runs" / "left", manifest("left"), (), finished=False)
    assert "running: no end is known here; dflash-tui show RUN asks its host" in as_text(kept.runs(store, NOTHING))


def voided(state: Path, name: str) -> Store:
    """A run whose checkpoint was written to while it was evaluated."""
    source = Source("ct129", f"/eval/runs/{name}", "checkpoint")
    facts = [Fact(kind, {"a.pt": {"size": size}}, source, "") for kind, size in (("link.record", 1), ("link.now", 2))]
    write_run(state / "runs" / name, manifest(name), drafted(TEN), facts=facts)
    return Store(state)


def asked(**options: Any) -> argparse.Namespace:
    given = {"name": None, "replace": False, "others": [], "against": None, "common": False, "remove": None, **options}
    return argparse.Namespace(**given)


def test_a_void_result_shows_no_value_anywhere(tmp_path: Path) -> None:
    store = stored(tmp_path, "good")
    voided(tmp_path, "bad")
    shown = kept.show(store, asked(result="bad"))
    assert (shown.result.streak, shown.result.tau, shown.result.ddtree) == ({}, None, {})
    assert shown.result.per_prompt == {}
    text = as_text(shown)
    assert re.search(r"vanilla top-1 +void\n", text)
    assert "⊘ void LINKED_FILE_CHANGED" in text
    assert not re.search(r"\d\.\d{2,3}\b", text)
    report = kept.report(store, asked(result="bad"), None).markdown
    assert "| vanilla top-1 streak | void |" in report
    assert not re.search(r"\d\.\d{2,3}\b", report.partition("## Caveats")[0])
    compared = kept.compare(store, asked(current="good", previous="bad"))
    assert [row.previous for row in compared.rows] == [None] * 3
    assert compared.rows[0].current is not None
    assert re.search(r"vanilla top-1 +\d+\.\d{3} +void +n/c", as_text(compared))
    turned = kept.compare(store, asked(current="bad", previous="good"))
    assert (turned.rows[0].current, turned.rows[0].interval) == (None, None)


def test_runs_marks_a_void_result_and_names_its_caveat(tmp_path: Path) -> None:
    stored(tmp_path, "good")
    answer = kept.runs(voided(tmp_path, "bad"), NOTHING)
    lines = {run.run_id: run for run in answer.runs}
    assert (lines["bad"].streak, lines["bad"].void) == ({}, ("LINKED_FILE_CHANGED",))
    assert (list(lines["good"].streak), lines["good"].void) == (["top1", "top4", "top8"], ())
    assert re.search(r"bad +finished +top-1 +void +300 blocks  ⊘ LINKED_FILE_CHANGED", as_text(answer))


def test_a_void_result_is_no_baseline(tmp_path: Path) -> None:
    store = voided(tmp_path, "bad")
    with pytest.raises(PinRefused, match=r"is void \(LINKED_FILE_CHANGED: .* evaluate it again"):
        kept.pin(store, asked(result="bad"))
    assert store.pins.entries() == {}


def test_the_columns_of_runs_align(tmp_path: Path) -> None:
    store = stored(tmp_path, "a", "a-much-longer-name")
    write_run(tmp_path / "runs" / "one", manifest("one"), drafted(TEN[:1], count=1))
    rows = as_text(kept.runs(store, NOTHING)).splitlines()
    assert len({row.index("finished") for row in rows}) == 1
    assert len({row.index(" block") for row in rows}) == 1


def test_damaged_pins_hide_no_run(tmp_path: Path) -> None:
    store = stored(tmp_path, "good")
    (tmp_path / "pins").mkdir()
    (tmp_path / "pins" / "pins.json").write_text("[]")
    answer = kept.runs(store, NOTHING)
    assert [run.run_id for run in answer.runs] == ["good"]
    assert "pins.json" in answer.problems[0]


def test_a_home_that_is_nobody_s_is_a_name_like_another(tmp_path: Path) -> None:
    with pytest.raises(UnknownReference, match="is no run, pin or file"):
        stored(tmp_path, "good").resolve("~no-such-user/results.json")


def test_a_log_has_at_least_one_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for lines in ("0", "-3", "x"):
        with pytest.raises(SystemExit) as ended:
            main(["--state", str(tmp_path), "logs", "good", "-n", lines])
        assert ended.value.code == 2
    assert "expected a whole number from 1" in capsys.readouterr().err


def test_a_run_without_its_log_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path, "good")
    config = str(tmp_path / "none.toml")
    assert main(["--config", config, "--state", str(tmp_path), "logs", "good"]) == FAILED
    assert "log.txt" in capsys.readouterr().err
    assert main(["--config", config, "--state", str(tmp_path), "show", "good"]) == DONE


def test_a_state_folder_that_can_t_be_written_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("{}")
    config = tmp_path / "config.toml"
    config.write_text(
        '[training]\nhost = "local"\nlog = "/none"\ncheckpoints = "/none"\n'
        f'[evaluation]\nhost = "local"\nroot = "{tmp_path}"\ntarget = "/none"\nprompts = "/none"\n'
        f'hidden_states = "/none"\n[[baseline]]\nname = "previous"\nfile = "{tmp_path}/file"\n'
    )
    assert main(["--config", str(config), "--state", str(tmp_path / "file"), "eval"]) == FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"dflash-tui: {tmp_path}/file/baselines/previous: Not a directory\n"


def test_a_delta_that_is_not_between_the_values_beside_it_says_so(tmp_path: Path) -> None:
    store = stored(tmp_path, "full", "other")
    write_run(
        tmp_path / "runs" / "quick",
        manifest("quick", asked=TEN[:3], preset="quick", blocks_per_prompt=15),
        [block for block in drafted(TEN[:3]) if block.anchor in {b.anchor for b in drafted(TEN[:3])[::2]}],
    )
    unequal = kept.compare(store, argparse.Namespace(current="full", previous="quick", common=False))
    assert unequal.blocks == (45, 45)
    assert "Δ at 45 against 45 blocks; the values are of 90 and 45" in as_text(unequal)
    assert "Δ at" not in as_text(
        kept.compare(store, argparse.Namespace(current="full", previous="other", common=False))
    )
