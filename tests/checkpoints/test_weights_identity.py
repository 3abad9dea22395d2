"""`weights_id`: the same for the same weights wherever they lie, another for any change that counts."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.checkpoints.errors import TargetUnknown
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.identity import WeightsId, quick_id, weights_id
from dflash_tui.checkpoints.opening import read_structure
from tests.checkpoints.written import Tensor, drafter, safetensors_bytes


def identity(folder: Path, tensors: dict[str, Tensor], target: str | None = "0" * 64) -> WeightsId:
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    files = LocalFiles(folder)
    return weights_id(read_structure(files), files, target_embedding=target, target_head=target)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


def test_is_the_hash_of_sorted_lines_of_name_dtype_dims_and_content(folder: Path) -> None:
    tensors = drafter()
    lines = b"".join(
        f"{name}\t{dtype}\t{'x'.join(map(str, shape))}\t{hashlib.sha256(raw).hexdigest()}\n".encode()
        for name, (dtype, shape, raw) in sorted(tensors.items())
    )
    assert identity(folder, tensors).sha256 == hashlib.sha256(lines).hexdigest()


def test_order_in_the_file_does_not_matter(folder: Path) -> None:
    tensors = drafter()
    assert identity(folder, dict(reversed(tensors.items()))) == identity(folder, tensors)


@given(name=st.sampled_from(sorted(drafter())), bit=st.integers(min_value=0))
@settings(max_examples=40, deadline=None)
def test_one_flipped_bit_is_another_identity(folder: Path, name: str, bit: int) -> None:
    tensors = drafter()
    before = identity(folder, tensors)
    dtype, shape, raw = tensors[name]
    flipped = bytearray(raw)
    flipped[bit // 8 % len(raw)] ^= 1 << bit % 8
    tensors[name] = (dtype, shape, bytes(flipped))
    assert identity(folder, tensors).sha256 != before.sha256


def test_another_dtype_is_another_identity(folder: Path) -> None:
    tensors = drafter()
    before = identity(folder, tensors)
    rounded = {name: ("BF16", shape, _top_halves(raw)) for name, (_, shape, raw) in tensors.items()}
    assert identity(folder, rounded).sha256 != before.sha256
    same_bytes = {name: ("I32", shape, raw) for name, (_, shape, raw) in tensors.items()}
    assert identity(folder, same_bytes).sha256 != before.sha256


def test_another_draft_vocabulary_is_another_identity(folder: Path) -> None:
    head: Tensor = ("F32", (2, 4), bytes(32))
    maps = {"t2d": ("BOOL", (3,), bytes((1, 0, 1))), "lm_head.weight": head}
    one = identity(folder, {**drafter(), **maps, "d2t": ("I64", (2,), struct.pack("<2q", 0, 1))})
    other = identity(folder, {**drafter(), **maps, "d2t": ("I64", (2,), struct.pack("<2q", 1, 1))})
    assert one.sha256 != other.sha256
    assert one.head == "own"
    unknown = identity(folder, {**drafter(), **maps, "d2t": ("I64", (2,), struct.pack("<2q", 0, 1))}, None)
    assert unknown == one, "a reduced head is never the target's, so nothing need be known of that"


def test_copies_of_the_target_and_verifier_tensors_do_not_count(folder: Path) -> None:
    pair: Tensor = ("F32", (3, 4), bytes(range(48)))
    target = hashlib.sha256(pair[2]).hexdigest()
    bare = identity(folder, drafter(), target)
    full = {
        **drafter(),
        "embed_tokens.weight": pair,
        "lm_head.weight": pair,
        "verifier_norm.weight": ("F32", (4,), bytes(16)),
        "verifier_lm_head.weight": pair,
        "rotary_emb.inv_freq": ("F32", (1,), bytes(4)),
    }
    assert identity(folder, full, target).sha256 == bare.sha256
    assert (bare.embedding, bare.head) == ("target", "target")
    assert (identity(folder, full, target).embedding, identity(folder, full, target).head) == ("equal", "equal")


def test_an_embedding_that_differs_from_the_target_counts(folder: Path) -> None:
    tensors: dict[str, Tensor] = {**drafter(), "embed_tokens.weight": ("F32", (3, 4), bytes(48))}
    own = identity(folder, tensors)
    assert own.embedding == "own"
    assert "embed_tokens.weight" in own.tensors
    assert own.sha256 != identity(folder, drafter()).sha256


def test_a_stored_embedding_without_a_known_target_is_not_guessed(folder: Path) -> None:
    tensors: dict[str, Tensor] = {**drafter(), "embed_tokens.weight": ("F32", (3, 4), bytes(48))}
    with pytest.raises(TargetUnknown, match=r"embed_tokens\.weight"):
        identity(folder, tensors, None)


front = st.lists(st.sampled_from(("module", "_orig_mod", "_fsdp_wrapped_module", "draft_model", "model")), max_size=4)
inside = st.lists(st.sampled_from(("_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module")), max_size=2)


@given(front=front, inside=inside, place=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_wrapper_names_do_not_count_wherever_they_stand(
    folder: Path, front: list[str], inside: list[str], place: int
) -> None:
    wrapped: dict[str, Tensor] = {}
    for name, tensor in drafter(layers=2).items():
        parts = name.split(".")
        at = min(place, len(parts) - 1)
        wrapped[".".join([*front, *parts[:at], *inside, *parts[at:]])] = tensor
    assert identity(folder, wrapped).sha256 == identity(folder, drafter(layers=2)).sha256


def test_fused_projections_count_as_their_parts(folder: Path) -> None:
    tensors = drafter()
    fused = dict(tensors)
    for name, parts in {
        "self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"),
        "mlp.gate_up_proj": ("gate_proj", "up_proj"),
    }.items():
        group = name.split(".")[0]
        rows = [fused.pop(f"layers.0.{group}.{part}.weight") for part in parts]
        fused[f"layers.0.{name}.weight"] = (
            "F32",
            (sum(row[1][0] for row in rows), 4),
            b"".join(row[2] for row in rows),
        )
    assert identity(folder, fused).sha256 == identity(folder, tensors).sha256


def test_quick_id_follows_the_header(folder: Path) -> None:
    identity(folder, drafter())
    one = quick_id(read_structure(LocalFiles(folder)).directory)
    identity(folder, drafter(layers=2))
    other = quick_id(read_structure(LocalFiles(folder)).directory)
    assert one is not None
    assert other is not None
    assert one.startswith("header-")
    assert one != other


def _top_halves(raw: bytes) -> bytes:
    return b"".join(raw[start + 2 : start + 4] for start in range(0, len(raw), 4))
