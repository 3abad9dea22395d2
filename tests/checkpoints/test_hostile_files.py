"""Files made to exhaust a reader, or a terminal: each is read in bounded time, or refused in one printable sentence."""

from __future__ import annotations

import json
import pickle
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.checkpoints import legacy, safetensors, zipdir
from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.complete import completeness
from dflash_tui.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointError,
    CheckpointUnsupported,
    SettingsMissing,
    guarded,
)
from dflash_tui.checkpoints.family import layer_count
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.legacy import legacy_extent
from dflash_tui.checkpoints.opening import read_directories, read_json, read_structure
from dflash_tui.checkpoints.pickles import Opaque, read_pickle
from dflash_tui.checkpoints.plain import plain
from dflash_tui.checkpoints.sentences import sentence, shown
from dflash_tui.checkpoints.zipdir import read_directory
from tests.checkpoints.found import outcome

PRIME = (1 << 61) - 1  # whole numbers that differ by it have one hash
MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
LONGEST = 4500


def said(folder: Path, name: str, data: bytes) -> str:
    """Write the file; what each reader says of it is one short printable sentence that names it, or nothing."""
    (folder / name).write_bytes(data)
    files = LocalFiles(folder)
    _, reason = completeness(files, files.names())
    _, refusal = outcome(lambda: read_structure(files))
    _, quick = outcome(lambda: read_directories(files))
    for text in (reason, refusal, quick, read_anatomy(files).problem):
        assert len(text) < LONGEST
        assert text.isprintable()
        assert not text or name in text
    return refusal or reason


def header(text: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text + data


def one(**entry: Any) -> bytes:
    return header(json.dumps({"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0], **entry}}).encode(), bytes(4))


@pytest.mark.parametrize(
    "data",
    [
        one(shape=[PRIME] * 20_000, data_offsets=[0, 4]),
        one(shape=[PRIME] * 64, data_offsets=[0, 4]),
        one(dtype="F" * 5_000_000),
        one(dtype="F\n\x1b[31m"),
        header(b'{"a":' + b"[" * 100_000 + b"}"),
        header(b'{"a":' + b"1" * 5000 + b"}"),
        header(b'{"a\\n\\u001b[2J' + b"x" * 100_000 + b'":5}'),
        header(b'{"layers.0.\\ud800":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'),
        header(b"\xff\xfe\x00"),
    ],
    ids=["dims", "product", "dtype", "control", "deep", "digits", "name", "surrogate", "encoding"],
)
def test_a_hostile_safetensors_header_is_one_sentence(tmp_path: Path, data: bytes) -> None:
    assert said(tmp_path, "model.safetensors", data)


def many_tensors(count: int) -> bytes:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return header(json.dumps({f"{number:x}": entry for number in range(count)}).encode())


def test_more_tensors_than_any_model_has_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors, "MAX_TENSORS", 50)
    assert not said(tmp_path, "model.safetensors", many_tensors(50))
    assert "names 51 tensors" in said(tmp_path, "model.safetensors", many_tensors(51))


def test_json_of_millions_of_values_is_not_read(tmp_path: Path) -> None:
    bomb = b'{"a":[' + b"[]," * 2_500_000 + b"[]]}"
    assert "JSON values" in said(tmp_path, "model.safetensors", header(bomb))
    (tmp_path / "config.json").write_bytes(bomb)
    with pytest.raises(CheckpointUnsupported, match=r"config\.json: about \d+ JSON values"):
        read_json(LocalFiles(tmp_path), "config.json")


def zip_of(count: int, stated: int) -> bytes:
    """A zip of empty records, whose end says that they are `stated`."""
    names = [b"%x" % number for number in range(count)]
    directory = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, *[0] * 7, len(name), *[0] * 6) + name for name in names
    )
    begin = b"PK\x03\x04" + bytes(126)
    end = len(begin) + len(directory)
    return (
        begin
        + directory
        + struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, stated, stated, len(directory), len(begin))
        + struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
        + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0)
    )


def test_more_records_than_any_model_has_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipdir, "MAX_RECORDS", 50)
    (tmp_path / "x.pt").write_bytes(zip_of(50, 50))
    assert len(read_directory(LocalFiles(tmp_path), "x.pt").records) == 50
    assert "51 records" in said(tmp_path, "x.pt", zip_of(51, 51))
    assert said(tmp_path, "x.pt", zip_of(51, 50))
    assert said(tmp_path, "x.pt", zip_of(20, 30))


def nested(depth: int) -> bytes:
    return b"\x80\x02)" + b"\x85" * depth + b"."


def doubled(times: int) -> bytes:
    return b"\x80\x02)" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(times)) + b"."


@pytest.mark.parametrize(
    "version",
    [nested(100_000), doubled(60), pickle.dumps("x\n\x1b[2J" * 100_000, 2)],
    ids=["nested", "doubled", "text"],
)
@pytest.mark.parametrize("place", [0, 1, 2], ids=["version", "machine", "object"])
def test_a_hostile_value_in_a_legacy_file_is_one_sentence(tmp_path: Path, version: bytes, place: int) -> None:
    usual = [pickle.dumps(1001, 2), pickle.dumps({"little_endian": True}, 2)][:place]
    rest = pickle.dumps([], 2) if place == 2 else b""
    assert said(tmp_path, "checkpoint.pt", b"".join((MAGIC, *usual, version, rest)))


def number(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8a" + struct.pack("<B", len(data)) + data


def seconds(action: Callable[[], Any]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


COUNT = 30_000  # of them, with one hash, a dictionary takes some ten seconds


def test_keys_of_one_hash_do_not_make_a_dictionary_slow() -> None:
    items = b"".join(number(PRIME * (i + 1)) + b"N" for i in range(COUNT))
    found: dict[Any, Any] = {}
    assert seconds(lambda: found.update(read_pickle(b"\x80\x02}(" + items + b"u.", "x.pt"))) < 3
    assert len(found) == COUNT, "none is lost"
    assert len(plain(found, 2 * COUNT)) == COUNT


def test_places_of_one_hash_do_not_make_the_memo_slow() -> None:
    puts = b"".join(b"p%d\n" % (PRIME * (i + 1)) for i in range(COUNT))
    assert seconds(lambda: outcome(lambda: read_pickle(b"\x80\x02N" + puts + b".", "x.pt"))) < 3
    with pytest.raises(CheckpointDamaged, match="place in the memo"):
        read_pickle(b"N" + puts + b".", "x.pt")
    with pytest.raises(CheckpointDamaged, match="place in the memo"):
        read_pickle(b"Np-1\n.", "x.pt")


def test_a_long_tuple_is_not_hashed_again_and_again() -> None:
    data = b"\x80\x02(" + b"K\x01" * 50_000 + b"tq\x000}(" + b"h\x00N" * 50_000 + b"u."
    found: list[Any] = []
    assert seconds(lambda: found.append(read_pickle(data, "x.pt"))) < 3
    assert all(isinstance(key, Opaque) for key in found[0])


def test_long_names_are_not_put_together_again_and_again() -> None:
    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20)
    with pytest.raises(CheckpointDamaged, match="name is too long"):
        read_pickle(text + b"q\x00(" + b"h\x00h\x00\x93" * 3000 + b"l.", "x.pt")


def test_keys_that_are_usual_stay_as_they_are() -> None:
    data = {5: 1, "5": 2, (1, "a"): 3, 1.5: 4, None: 5, True: 6, b"x": 7, -3: 8, 1 << 59: 9}
    assert read_pickle(pickle.dumps(data), "x.pt") == data


def test_a_layer_of_an_impossible_number_is_none() -> None:
    assert layer_count(["layers.0.x", "layers.999999999.x", f"layers.{'9' * 5000}.x"]) == 1


def test_the_names_of_tensors_and_files_are_escaped(tmp_path: Path) -> None:
    name = "evil\x1b]0;pwn\x07\nname\u202e.w"
    torch.save({"model": {name: torch.zeros(1).expand(5)}}, tmp_path / "a\nb.pt")
    with pytest.raises(CheckpointError) as caught:
        read_structure(LocalFiles(tmp_path))
    text = str(caught.value)
    assert text.isprintable()
    assert r"a\nb.pt: evil\x1b]0;pwn\x07\nname\u202e.w: is 20 bytes" in text
    reason = completeness(LocalFiles(tmp_path), ["x\n.tmp"])[1]
    assert reason.startswith(r"x\n.tmp has a temporary name")


@given(text=st.text(max_size=300) | st.text(max_size=20).map(lambda part: part * 3000))
def test_any_text_becomes_one_short_printable_line(text: str) -> None:
    line = sentence(text)
    assert line.isprintable()
    assert sentence(line) == line or len(text) > 500
    assert len(line) < 12 * 4200
    assert str(CheckpointDamaged(text)) == line
    if text.isprintable() and len(text) < 500:
        assert line == text


anything = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=500) | st.binary(max_size=500),
    lambda inner: (
        st.lists(inner, max_size=60) | st.dictionaries(st.text(), inner, max_size=60) | st.tuples(inner, inner)
    ),
)


@given(value=anything)
def test_any_value_is_shown_shortly(value: Any) -> None:
    assert len(shown(value)) < 4100


def test_values_without_end_are_shown_shortly() -> None:
    deep: Any = ()
    for _ in range(100_000):
        deep = (deep, deep)
    assert len(shown(deep)) < 100
    assert shown(1 << 100_000) == "<a whole number of 100001 bits>"
    assert shown({"type": "yarn", "factor": [1, 2.5]}) == "{'type': 'yarn', 'factor': [1, 2.5]}"


@pytest.mark.parametrize(
    "error", [RecursionError(), MemoryError(), ValueError("x\ny"), OverflowError(), struct.error(), KeyError("k")]
)
def test_what_nobody_foresaw_in_a_file_is_damage(error: Exception) -> None:
    @guarded
    def read(files: Any, file: str) -> None:
        raise error

    with pytest.raises(CheckpointDamaged, match=rf"^odd\.pt: can't be read \({type(error).__name__}"):
        read(None, "odd.pt")


def test_memory_that_runs_out_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(legacy, "read_pickle_stream", exhausted)
    (tmp_path / "checkpoint.pt").write_bytes(MAGIC)
    with pytest.raises(CheckpointDamaged, match=r"checkpoint\.pt: can't be read \(MemoryError\)"):
        legacy_extent(LocalFiles(tmp_path), "checkpoint.pt")


def test_settings_that_are_missing_are_still_named() -> None:
    error = SettingsMissing("config.json: lacks a\n", ("a", "b"))
    assert (str(error), error.fields) == (r"config.json: lacks a\n", ("a", "b"))
