"""A pickle is read, never done: nothing it names is imported, nothing it calls is called."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import struct
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.checkpoints import pickles
from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointUnsupported
from dflash_tui.checkpoints.pickles import Opaque, Tensor, read_pickle
from dflash_tui.checkpoints.plain import plain
from tests.checkpoints.found import outcome


class Runs:
    """Would run a command when unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_command_is_named_and_not_run(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "ran"
    data = pickle.dumps({"args": {"x": Runs(f"touch {trace}")}, "step": 3}, protocol=protocol)
    found = read_pickle(data, "evil.pt")
    assert found["step"] == 3
    assert plain(found["args"]) == {"x": "<opaque posix.system>"}
    assert not trace.exists()
    pickle.loads(data)
    assert trace.exists(), "the pickle would have run: the test proves something"


@pytest.mark.parametrize(
    "data",
    [
        b"cantigravity\nopen\n.",
        b"\x8c\x0bantigravity\x8c\x04open\x93.",
        b"(iantigravity\nopen\n.",
        b"\x80\x02cthis\ns\n)R.",
    ],
)
def test_no_module_is_imported(data: bytes) -> None:
    before = set(sys.modules)
    read_pickle(data, "evil.pt")
    assert set(sys.modules) == before


opcodes = st.sampled_from([code.code.encode("latin-1") for code in pickletools.opcodes])
pieces = (
    opcodes
    | st.binary(max_size=6)
    | st.sampled_from(
        [b"cos\nsystem\n", b"\x8c\x02os\x8c\x06system\x93", b"(X\x01\x00\x00\x00a", b")R", b"}(", b"K\x01u"]
    )
)


@given(parts=st.lists(pieces, max_size=40), proto=st.booleans())
@settings(max_examples=600, deadline=None)
def test_any_bytes_give_data_or_one_error(parts: list[bytes], proto: bool) -> None:
    data = (b"\x80\x04" if proto else b"") + b"".join(parts) + b"."
    before = set(sys.modules)
    _, refusal = outcome(lambda: plain(read_pickle(data, "any.pt")))
    assert not refusal or "any.pt" in refusal
    assert set(sys.modules) == before


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


@given(value=json_like, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
@settings(max_examples=200, deadline=None)
def test_plain_data_comes_out_as_it_went_in(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol=protocol), "data.pt") == value


def test_containers_of_the_standard_library_are_understood() -> None:
    value = {"ordered": OrderedDict(a=1, b=2), "tuple": (1, (2, 3)), "set": {4}, "frozen": frozenset({5}), 7: b"x"}
    found = read_pickle(pickle.dumps(value), "data.pt")
    assert found["ordered"] == {"a": 1, "b": 2}
    assert found["tuple"] == (1, (2, 3))
    assert (found["set"], found["frozen"], found[7]) == ([4], [5], b"x")
    assert isinstance(read_pickle(pickle.dumps(Counter("aab")), "data.pt"), Opaque)


def test_a_huge_memo_index_takes_no_memory() -> None:
    assert read_pickle(b"K\x05r" + struct.pack("<I", 2**32 - 1) + b".", "memo.pt") == 5


def test_a_deeply_nested_key_does_not_overflow_the_stack() -> None:
    found = read_pickle(b"}" + b"K\x01" + b"\x85" * 300_000 + b"K\x02s.", "deep.pt")
    assert list(found.values()) == [2]


def test_deep_and_wide_data_is_cut_when_made_plain() -> None:
    doubled = b"]" + b"".join(b"q" + bytes((i,)) + b"]h" + bytes((i,)) + b"ah" + bytes((i,)) + b"a" for i in range(40))
    assert len(str(plain(read_pickle(doubled + b".", "bomb.pt")))) < 1_000_000


def test_numbers_and_texts_of_any_length_can_be_shown() -> None:
    huge = 1 << 100_000
    data = {"seed": huge, huge: 1, (huge, 2): 2, "notes": "x" * 100_000, "long": 10**300}
    found = plain(read_pickle(pickle.dumps(data), "huge.pt"))
    assert len(json.dumps(found)) < 5000
    assert (found["seed"], found["long"], found["notes"][:3]) == ("…", 10**300, "xxx")


def long4(value: int) -> bytes:
    body = value.to_bytes(20_000, "little", signed=True)
    return b"\x8b" + struct.pack("<i", len(body)) + body


@pytest.mark.parametrize(
    ("count", "offset", "is_tensor"),
    [(4, 0, True), (-1, 0, False), (4, -1 << 70, False), (1 << 99_999, 0, False), (4, 1 << 99_999, False)],
    ids=["plain", "negative", "far-before", "huge", "far-behind"],
)
def test_a_storage_or_an_offset_of_an_impossible_size_is_no_tensor(count: int, offset: int, is_tensor: bool) -> None:
    storage = b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\n" + long4(count) + b"tQ"
    view = storage + long4(offset) + b"(K\x02t(K\x01tI00\nN"
    found = read_pickle(b"ctorch._utils\n_rebuild_tensor_v2\n(" + view + b"tR.", "view.pt")
    assert isinstance(found, Tensor) is is_tensor


def test_too_much_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_WORK", 1000)
    with pytest.raises(CheckpointUnsupported, match="too many objects"):
        read_pickle(pickle.dumps(list(range(5000))), "big.pt")
    repeated = b"](" + b"K\x01" * 900 + b"eq\x00" + b"cbuiltins\nlist\nh\x00\x85R0" * 5 + b"."
    with pytest.raises(CheckpointUnsupported, match="too many objects"):
        read_pickle(repeated, "repeated.pt")


def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_BYTES", 100)
    with pytest.raises(CheckpointUnsupported, match="101 bytes"):
        read_pickle(bytes(101), "big.pt")


@pytest.mark.parametrize("data", [b"", b"K", b"]", b"0.", b"(", b"h\x05.", b"\xff.", b"(K\x01."])
def test_what_is_no_pickle_is_one_sentence(data: bytes) -> None:
    if data == b"(K\x01.":
        assert read_pickle(data, "x.pt") == 1
        return
    with pytest.raises(CheckpointDamaged, match=r"x\.pt"):
        read_pickle(data, "x.pt")
