from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.records.block import BlockRecord
from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.codec import RecordError, dumps, from_data, loads, to_data
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.manifest import CheckpointRef, Manifest, PromptRef, TargetRef
from dflash_tui.records.process import ExitRecord
from dflash_tui.records.settings import DrafterSettings

KINDS = (Audit, BlockRecord, CheckpointRef, DrafterSettings, Fact, Finding, Manifest, PromptRef, TargetRef)

CHECKPOINT = '{"host":"","path":"","linked":"","step":1,"training":"","size":1,"mtime":0.5}'
PLAIN = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=2))
FACTS = st.builds(Fact, kind=st.text(), value=PLAIN, source=st.builds(Source), read_at=st.text())
ANY_VALUES: dict[type[Any], dict[str, st.SearchStrategy[Any]]] = {
    Fact: {"value": PLAIN},
    Finding: {"values": st.tuples(PLAIN)},
    Manifest: {"facts": st.tuples(FACTS)},
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_record_survives_a_round_trip(kind: type[Any], data: st.DataObject) -> None:
    record = data.draw(st.builds(kind, **ANY_VALUES.get(kind, {})))
    try:
        text = dumps(record)
    except ValueError:  # NaN is no JSON, and is refused rather than written
        return
    again = loads(kind, text, "x")
    assert to_data(again) == to_data(record)


def test_what_a_newer_writer_added_is_ignored() -> None:
    assert loads(ExitRecord, '{"state":"finished","code":0,"ended_at":"","colour":"blue"}', "exit.json").code == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "exit.json: not JSON"),
        ("[]", "exit.json: found list '\\[\\]', expected an object"),
        ('{"state":"finished"}', "exit.json: ExitRecord lacks code, ended_at"),
        ('{"state":"done","code":0,"ended_at":""}', "exit.json.state: found 'done', expected one of"),
        ('{"state":"finished","code":true,"ended_at":""}', "exit.json.code: found bool"),
        ('{"state":"finished","code":0,"ended_at":null}', "exit.json.ended_at: found null, expected str"),
    ],
)
def test_a_wrong_text_is_one_sentence_that_names_the_place(text: str, sentence: str) -> None:
    with pytest.raises(RecordError, match=sentence):
        loads(ExitRecord, text, "exit.json")


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_is_a_record_or_a_record_error(data: Any) -> None:
    for kind in KINDS:
        try:
            record = from_data(kind, data, "x")
        except RecordError:
            continue
        assert dataclasses.is_dataclass(record)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [("NaN", "x: not JSON \\(NaN"), ("-Infinity", "x: not JSON"), ("1" + "0" * 400, "x.mtime: found a whole number")],
)
def test_a_number_that_no_float_can_be_is_refused(number: str, sentence: str) -> None:
    with pytest.raises(RecordError, match=sentence):
        loads(CheckpointRef, CHECKPOINT.replace("0.5", number), "x")
    assert loads(CheckpointRef, CHECKPOINT, "x").mtime == 0.5


def test_nan_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps({"loss": float("nan")})
    assert json.loads(dumps({"a": (1, 2)})) == {"a": [1, 2]}


def test_a_name_that_is_no_utf_8_can_be_written_and_comes_back() -> None:
    name = "step_\udcff τ 𝜏"
    written = dumps(Source("ct200", name)).encode()
    assert loads(Source, written, "here").path == name
