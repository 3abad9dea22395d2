"""Names and shapes against what a drafter needs: what is used, what is not, what is missing."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from dflash_tui.checkpoints.audit import audit
from dflash_tui.checkpoints.errors import CheckpointUnsupported
from dflash_tui.checkpoints.family import declared_family, family_of
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.keys import canonical_name, canonical_tensors
from dflash_tui.checkpoints.opening import read_configs, read_structure
from dflash_tui.checkpoints.structure import Structure, TensorInfo, c_strides
from tests.cases import all_are_expected, case_root, known
from tests.checkpoints.written import drafter


def structure_of(shapes: dict[str, tuple[int, ...]], dtype: str = "F32") -> Structure:
    tensors: dict[str, TensorInfo] = {}
    offset = 0
    for name, shape in shapes.items():
        info = TensorInfo(name, dtype, shape, "model.safetensors", offset, c_strides(shape), 0, offset)
        tensors[name] = info
        offset += info.nbytes
    return Structure("safetensors", tensors, ("model.safetensors",))


def tiny(layers: int = 2) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, (_, shape, _) in drafter(layers).items()}


@pytest.mark.parametrize(
    ("raw", "canonical"),
    [
        ("module._orig_mod.draft_model.layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"),
        ("model.model.norm.weight", "norm.weight"),
        ("layers.0._fsdp_wrapped_module.self_attn._orig_mod.q_proj.weight", "layers.0.self_attn.q_proj.weight"),
        ("midlayer.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.weight"),
        ("encoder.fc.weight", "fc.weight"),
        ("encoder.output_norm_enc.weight", "hidden_norm.weight"),
        ("draft_id_to_target_id", "d2t"),
        ("layers.0.model.weight", "layers.0.model.weight"),
        ("model", "model"),
    ],
)
def test_names_are_brought_to_one_spelling(raw: str, canonical: str) -> None:
    assert canonical_name(raw) == canonical


def test_two_tensors_of_one_name_are_refused_and_one_stored_twice_is_not() -> None:
    structure = structure_of({"fc.weight": (4, 8), "module.fc.weight": (4, 8)})
    with pytest.raises(CheckpointUnsupported, match=r"fc\.weight and module\.fc\.weight"):
        canonical_tensors(structure)
    tied = TensorInfo("module.fc.weight", "F32", (4, 8), "model.safetensors", 0, (8, 1), 0, 0)
    tensors = {**structure.tensors, "module.fc.weight": tied}
    assert set(canonical_tensors(Structure("safetensors", tensors, ("model.safetensors",)))) == {"fc.weight"}


def test_a_fused_tensor_without_the_shapes_that_split_it_is_refused() -> None:
    shapes = tiny(1)
    for name in ("q", "k", "v"):
        del shapes[f"layers.0.self_attn.{name}_proj.weight"]
    shapes["layers.0.self_attn.qkv_proj.weight"] = (8, 4)
    assert canonical_tensors(structure_of(shapes))["layers.0.self_attn.v_proj.weight"].row_start == 6
    with pytest.raises(CheckpointUnsupported, match="leave no"):
        canonical_tensors(structure_of({**shapes, "layers.0.self_attn.qkv_proj.weight": (9, 4)}))
    del shapes["layers.0.self_attn.q_norm.weight"]
    with pytest.raises(CheckpointUnsupported, match=r"q_norm\.weight"):
        canonical_tensors(structure_of(shapes))


def test_a_whole_drafter_has_nothing_to_report() -> None:
    found = audit(structure_of(tiny()))
    assert (found.family, found.missing, found.unused, found.mismatched) == ("dflash", (), (), ())
    assert (found.embedding, found.head, found.dtype) == ("target", "target", "F32")
    assert found.inferred == {
        "hidden_size": 4, "num_hidden_layers": 2, "num_taps": 2, "intermediate_size": 6, "head_dim": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1,
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(tiny()))
def test_any_missing_tensor_is_named(name: str) -> None:
    shapes = tiny()
    del shapes[name]
    found = audit(structure_of(shapes))
    assert found.missing == (name,)
    assert found.family == "dflash"


def test_layers_that_the_config_promises_are_missing() -> None:
    found = audit(structure_of(tiny(1)), {"num_hidden_layers": 2})
    assert len(found.missing) == 11
    assert all(name.startswith("layers.1.") for name in found.missing)
    nested = audit(structure_of(tiny(1)), {"transformer_layer_config": {"num_hidden_layers": 2}})
    assert nested.missing == found.missing


@pytest.mark.parametrize("name", sorted(tiny(3)))
def test_one_wrong_shape_is_one_sentence_with_both(name: str) -> None:
    shapes = tiny(3)
    shapes[name] = (shapes[name][0] + 8, *shapes[name][1:])
    (sentence,) = audit(structure_of(shapes)).mismatched
    assert sentence.startswith(f"{name}: found ({shapes[name][0]}, ".rstrip(", ") if len(shapes[name]) == 1 else name)
    assert ", expected (" in sentence


def test_columns_that_are_no_whole_number_of_taps_are_a_mismatch() -> None:
    (sentence,) = audit(structure_of({**tiny(), "fc.weight": (4, 9)})).mismatched
    assert sentence.startswith("fc.weight: found (4, 9), expected (4, a whole number of taps")


def test_extras_that_no_drafter_uses_are_reported_and_rotary_tables_are_not() -> None:
    shapes = {
        **tiny(),
        "verifier_norm.weight": (4,),
        "layers.0.self_attn.sinks": (2,),
        "rotary_emb.inv_freq": (1,),
        "layers.1.self_attn.rotary_emb.inv_freq": (1,),
        "target_model.norm.weight": (4,),
        "embed_tokens.weight": (9, 4),
    }
    found = audit(structure_of(shapes))
    assert found.unused == ("layers.0.self_attn.sinks", "target_model.norm.weight", "verifier_norm.weight")
    assert found.embedding == "unknown"


def test_a_reduced_vocabulary_without_its_map_or_head_is_missing_them() -> None:
    shapes = {**tiny(), "lm_head.weight": (5, 4)}
    assert audit(structure_of(shapes), {"vocab_size": 9, "draft_vocab_size": 5}).missing == ("d2t",)
    assert audit(structure_of(tiny()), {"vocab_size": 9, "draft_vocab_size": 5}).missing == ("lm_head.weight", "d2t")
    assert audit(structure_of(tiny()), {"vocab_size": 9, "draft_vocab_size": 9}).missing == ()
    assert audit(structure_of({**shapes, "d2t": (6,)})).mismatched == ("lm_head.weight: found (5, 4), expected (6, 4)",)


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (
            ["candidate_selector.successor_codebook", "layers.0.self_attn.q_proj.weight", "hidden_norm.weight"],
            "dflash2",
        ),
        (["layers.0.mlp_conv.base_kernel", "hidden_norm.weight"], "dflash2"),
        (["markov_head.markov_w1.weight", "layers.0.self_attn.q_norm.weight", "hidden_norm.weight"], "dspark"),
        (["confidence_head.proj.bias", "layers.0.self_attn.q_norm.weight", "hidden_norm.weight"], "dspark"),
        (["prefix_gru.weight_ih_l0", "layers.0.self_attn.q_norm.weight", "hidden_norm.weight"], "domino"),
        (["logit_head.embed_proj.0.weight", "layers.0.self_attn.q_norm.weight", "hidden_norm.weight"], "domino"),
        (["layers.0.self_attn.q_proj.weight", "fc.weight", "norm.weight", "d2t"], "eagle"),
        (["layers.0.self_attn.q_proj.weight", "layers.0.hidden_norm.weight", "fc.weight"], "eagle"),
        (["weight", "bias"], "unknown"),
        ([], "unknown"),
    ],
)
def test_families_are_told_by_their_own_tensors(names: Collection[str], family: str) -> None:
    assert family_of(names) == family


def test_the_storys_checkpoint_has_61_tensors_of_which_one_is_unused() -> None:
    path = known("cases/story/checkpoint.header.json")
    header = json.loads(path.read_text())
    found = audit(structure_of({name: tuple(shape) for name, shape in header["tensors"].items()}, header["dtype"]))
    assert (found.family, found.tensors, len(found.drafter)) == ("dflash", 61, 58)
    assert (found.unused, found.missing, found.mismatched) == (("verifier_norm.weight",), (), ())
    assert found.inferred["num_taps"] == 5
    assert found.inferred["vocab_size"] == 248320


def test_public_cases_of_foreign_architectures() -> None:
    seen = 0
    for folder in sorted((case_root() / "cases" / "findings").glob("*")):
        expected = json.loads((folder / "expected.json").read_text()) if (folder / "expected.json").exists() else {}
        detected = expected.get("numbers", {}).get("detected")
        if (folder / "model.safetensors").exists() and detected:
            files = LocalFiles(folder, ["config.json", "model.safetensors"])
            ((_, config),) = read_configs(files)
            assert audit(read_structure(files), config).family == detected
            assert declared_family(config) != detected
            seen += 1
        if (folder / "source_keys.json").exists():
            source = {canonical_name(name) for name in json.loads((folder / "source_keys.json").read_text())}
            assert source == set(json.loads((folder / "expected_keys.json").read_text()))
            assert family_of(source) == "eagle"
            seen += 1
    assert seen or not all_are_expected()


def test_a_files_folder_shows_two_levels_and_single_files_only_themselves(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    for name in ("x.pt", "a/y.pt", "a/b/z.pt", "a/b/c/deep.pt"):
        (tmp_path / name).write_bytes(b"1")
    assert LocalFiles(tmp_path).names() == ["a/b/z.pt", "a/y.pt", "x.pt"]
