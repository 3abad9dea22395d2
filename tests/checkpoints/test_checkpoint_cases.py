"""Checkpoints as real software writes them: what is read of each equals what its writer put in."""

from __future__ import annotations

import pytest

from dflash_tui.checkpoints.audit import audit, extras
from dflash_tui.checkpoints.complete import completeness
from dflash_tui.checkpoints.errors import SettingsMissing
from dflash_tui.checkpoints.family import KNOWN_EXTRAS, declared_family, is_rotary_buffer
from dflash_tui.checkpoints.identity import weights_id
from dflash_tui.checkpoints.keys import canonical_tensors
from dflash_tui.checkpoints.opening import read_configs, read_directories, read_structure
from dflash_tui.checkpoints.settings import resolve_settings
from tests.cases import all_are_expected, known
from tests.checkpoints.found import (
    Case,
    all_cases,
    golden,
    golden_config,
    golden_names,
    target_hashes,
)

CASES = all_cases()
DTYPES = {"float32": "F32", "bfloat16": "BF16"}


def named(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def test_there_are_cases_of_every_container() -> None:
    containers = {read_structure(case.files).container for case in CASES}
    expected = {"safetensors", "safetensors shards", "torch zip", "torch distributed"}
    assert containers >= expected or not all_are_expected()


@named(CASES)
def test_listing_finds_the_step(case: Case) -> None:
    structure_step = read_structure(case.files).step
    assert case.expected.get("step") in (case.candidate.step, structure_step)
    assert structure_step in (None, case.expected.get("step"))


@named(CASES)
def test_is_complete(case: Case) -> None:
    assert completeness(case.files, case.candidate.files) == ("complete", "")


@named(CASES)
def test_directories_are_told_without_the_structure(case: Case) -> None:
    assert read_directories(case.files) == read_structure(case.files).directory != ()


@named(CASES)
def test_audit_tells_used_unused_missing_and_shapes(case: Case) -> None:
    expected, structure = case.expected, read_structure(case.files)
    configs = read_configs(case.files)
    found = audit(structure, configs[0][1] if configs else None)

    assert found.family == case.family
    assert found.tensors == expected["tensors_in_weight_container"]
    assert len(found.drafter) == expected["drafter_tensors"]
    assert list(found.missing) == expected["missing_keys"]
    assert found.mismatched == ()
    assert found.nonfinite == ()
    reported = {name for name in found.unused if name not in KNOWN_EXTRAS}
    assert reported == {name for name in expected["unused_keys"] if not is_rotary_buffer(name)}
    if "dtype" in expected:
        assert found.dtype == DTYPES[expected["dtype"]]
    if "extra_known_keys" in expected:
        assert list(extras(found, structure)) == expected["extra_known_keys"]
        assert ("verifier_norm.weight" in found.unused) == ("verifier_norm.weight" in expected["extra_known_keys"])
        assert found.embedding == ("unknown" if "embed_tokens.weight" in expected["extra_known_keys"] else "target")
        assert found.head == ("unknown" if "lm_head.weight" in expected["extra_known_keys"] else "target")
    if "inferable_from_weights" in expected:
        assert found.inferred == expected["inferable_from_weights"]


@named([case for case in CASES if known(f"golden/{case.source}").exists()])
def test_weights_id_is_that_of_the_source_in_every_container(case: Case) -> None:
    source = golden(case.source)
    embedding, head = target_hashes(case.source)
    of_source = weights_id(read_structure(source), source, target_embedding=embedding, target_head=head)
    structure = read_structure(case.files)
    of_case = weights_id(structure, case.files, target_embedding=embedding, target_head=head)

    reduced = "draft_vocab" in case.expected
    damaged = bool(case.expected["missing_keys"])
    rounded = audit(structure).dtype != audit(read_structure(source)).dtype
    if reduced or damaged or rounded:
        assert of_case.sha256 != of_source.sha256
    else:
        assert of_case.sha256 == of_source.sha256
    if reduced:
        assert of_case.head == "own"
    stored = canonical_tensors(structure)
    if not rounded:
        assert of_case.embedding == ("equal" if "embed_tokens.weight" in stored else "target")


def test_weights_id_of_one_reduced_vocabulary_is_the_same_in_two_versions_of_its_writer() -> None:
    ids: dict[str, set[str]] = {}
    for case in CASES:
        if "draft_vocab" in case.expected:
            embedding, head = target_hashes(case.source)
            found = weights_id(read_structure(case.files), case.files, target_embedding=embedding, target_head=head)
            ids.setdefault(f"{case.source} {case.expected['draft_vocab']['count']}", set()).add(found.sha256)
    assert ids or not all_are_expected()
    assert all(len(group) == 1 for group in ids.values())


@named([case for case in CASES if case.family == "dflash"])
def test_settings_are_those_of_the_source(case: Case) -> None:
    """From the config beside the weights where there is one, else refused by field until the user's config is given."""
    structure, configs = read_structure(case.files), read_configs(case.files)
    if not configs:
        with pytest.raises(SettingsMissing) as refusal:
            resolve_settings(structure, configs, {})
        assert {"taps", "mask_token_id", "rope_theta", "rms_norm_eps"} <= set(refusal.value.fields)
        configs = [("drafter.json", golden_config(case.source))]
    settings = resolve_settings(structure, configs, {"sample_from_anchor": False})
    written = golden_config(case.source)
    assert settings.taps == tuple(written["dflash_config"]["target_layer_ids"])
    assert settings.mask_token_id == written["dflash_config"]["mask_token_id"]
    assert settings.block_size == written["block_size"]
    assert settings.rope_theta == written["rope_theta"]
    assert settings.rms_norm_eps == written["rms_norm_eps"]
    assert settings.vocab_size == written["vocab_size"]
    assert settings.layer_masks == ("full",) * written["num_hidden_layers"]
    assert settings.num_key_value_heads == written["num_key_value_heads"]
    assert settings.draft_vocab_size == case.expected.get("draft_vocab", {}).get("count")
    assert set(settings.sources) >= {"taps", "mask_token_id", "block_size", "rope_theta", "rms_norm_eps", "layer_masks"}


def test_two_runs_in_one_folder_are_both_listed_with_their_names() -> None:
    runs = {case.candidate.run: case.candidate.step for case in CASES if case.name.startswith("specforge-new/")}
    assert runs or not all_are_expected()
    assert len(runs) == len([case for case in CASES if case.name.startswith("specforge-new/")])
    assert all(runs)


@pytest.mark.parametrize("name", golden_names())
def test_golden_folders_are_recognised_by_their_keys(name: str) -> None:
    files, config = golden(name), golden_config(name)
    found = audit(read_structure(files), config)
    assert found.family == declared_family(config)
    assert found.missing == ()
    assert found.mismatched == ()
    assert found.unused == ()


@pytest.mark.parametrize("name", [name for name in golden_names() if name.startswith(("v1-", "swa-"))])
def test_golden_folders_resolve_their_masks(name: str) -> None:
    files, config = golden(name), golden_config(name)
    settings = resolve_settings(read_structure(files), read_configs(files), {})
    sliding = "sliding-symmetric" if config.get("is_causal") is False else "sliding-causal"
    kinds = {"full_attention": "full", "sliding_attention": sliding}
    assert settings.layer_masks == tuple(kinds[kind] for kind in config["layer_types"])
    assert settings.sliding_window == config.get("sliding_window")


def test_a_sharded_folder_is_one_checkpoint_with_all_its_files() -> None:
    sharded = [case for case in CASES if read_structure(case.files).container.endswith("shards")]
    assert sharded or not all_are_expected()
    for case in sharded:
        structure = read_structure(case.files)
        assert set(structure.files) <= set(case.candidate.files)
        assert case.candidate.path == case.candidate.folder
