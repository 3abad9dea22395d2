"""Hidden-state files: what is written is what is read, and what cannot be trusted is refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_tui.harness.cache import check_data, open_features, write_features
from dflash_tui.harness.errors import HarnessError, PromptRefused
from dflash_tui.harness.features import check_identity, read_features_header
from dflash_tui.harness.mapped import Maps
from tests.harness.world import generator, golden

META = {"format": "dflash-tui.features/1", "prompt_len": "4", "layer_ids": "1,3,5", "prompt_sha256": "aa"}
SETTINGS = golden("v1-small").settings
TOKENS = list(range(12))


def states(rows: int = 11, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(rows, 192, generator=generator(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_written_file_is_read_back_and_is_a_plain_safetensors_file(tmp_path: Path, dtype: torch.dtype) -> None:
    path = write_features(tmp_path, "fizz", states(dtype=dtype), TOKENS, META)
    assert path == tmp_path / "fizz.safetensors"
    features = open_features(read_features_header(path), Maps())
    assert torch.equal(features.hidden, states(dtype=dtype))
    assert features.tokens.tolist() == TOKENS
    assert (features.header.prompt_len, features.header.completion_len, features.header.layer_ids) == (4, 8, (1, 3, 5))
    assert features.header.identity == {"layer_ids": "1,3,5", "prompt_sha256": "aa"}
    theirs = load_file(path)
    assert torch.equal(theirs["hidden"], states(dtype=dtype))
    assert theirs["tokens"].dtype == torch.int32


def test_nothing_is_overwritten_and_nothing_partial_stays(tmp_path: Path) -> None:
    first = write_features(tmp_path, "fizz", states(), TOKENS, META).read_bytes()
    with pytest.raises(HarnessError, match="exists already"):
        write_features(tmp_path, "fizz", states() * 2, TOKENS, META)
    assert [path.name for path in tmp_path.iterdir()] == ["fizz.safetensors"]
    assert (tmp_path / "fizz.safetensors").read_bytes() == first


def test_a_header_that_ends_at_an_odd_byte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    write_features(tmp_path, "even", states(dtype=torch.float32), TOKENS, META)
    raw = (tmp_path / "even.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    path.write_bytes((length + 3).to_bytes(8, "little") + raw[8 : 8 + length] + b"   " + raw[8 + length :])
    assert torch.equal(open_features(read_features_header(path), Maps()).hidden, states(dtype=torch.float32))


def test_a_file_without_identity_is_usable(tmp_path: Path) -> None:
    path = write_features(tmp_path, "fizz", states(), TOKENS, {"prompt_len": "4"})
    header = read_features_header(path)
    check_identity(header, SETTINGS, "bb", "cc")
    assert (header.identity, header.layer_ids) == ({}, None)


@pytest.mark.parametrize(
    ("tensors", "changes", "reason"),
    [
        ({"hidden": states()}, {}, 'expected "hidden" and "tokens"'),
        ({"hidden": states()[0], "tokens": torch.arange(12)}, {}, r"expected \[T, K·D\]"),
        ({"hidden": states().to(torch.float64), "tokens": torch.arange(12)}, {}, "BF16, F16 or F32"),
        ({"hidden": states(), "tokens": torch.arange(12.0)}, {}, "expected int32"),
        ({"hidden": states(), "tokens": torch.arange(12)}, {"format": "other/9"}, "format 'other/9'"),
        ({"hidden": states(), "tokens": torch.arange(12)}, {"prompt_len": "0"}, "prompt_len is '0'"),
        ({"hidden": states(), "tokens": torch.arange(12)}, {"prompt_len": "13"}, "prompt_len is '13'"),
        ({"hidden": states(), "tokens": torch.arange(12)}, {"layer_ids": "1;3"}, "layer_ids is '1;3'"),
    ],
)
def test_a_header_that_is_not_one_of_ours_is_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor], changes: dict[str, str], reason: str
) -> None:
    path = tmp_path / "fizz.safetensors"
    save_file(tensors, path, metadata={**META, **changes})
    with pytest.raises(PromptRefused, match=reason) as refusal:
        read_features_header(path)
    assert str(path) in str(refusal.value)


def test_a_truncated_file_and_a_dangling_link_are_refused(tmp_path: Path) -> None:
    path = write_features(tmp_path, "fizz", states(), TOKENS, META)
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    path.write_bytes(path.read_bytes()[:-9])
    for name in ("fizz", "gone"):
        with pytest.raises(PromptRefused, match=f"{tmp_path}/{name}"):
            read_features_header(tmp_path / f"{name}.safetensors")


@pytest.mark.parametrize(
    ("settings", "prompt", "config", "reason"),
    [
        ({"taps": (1, 3, 5, 6)}, "aa", "", "layers 1,3,5, the drafter taps 1,3,5,6"),
        ({"hidden_size": 32}, "aa", "", "192 values a token, the drafter needs 96"),
        ({"taps": (1, 3, 6)}, "aa", "", "layers 1,3,5, the drafter taps 1,3,6"),
        ({}, "ab", "", "another text"),
        ({}, "aa", "dd", "another target"),
    ],
)
def test_features_of_something_else_are_refused(
    tmp_path: Path, settings: dict[str, Any], prompt: str, config: str, reason: str
) -> None:
    path = write_features(tmp_path, "fizz", states(), TOKENS, {**META, "target_config_sha256": "cc"})
    with pytest.raises(PromptRefused, match=reason):
        check_identity(read_features_header(path), replace(SETTINGS, **settings), prompt, config)


@pytest.mark.parametrize("taps", [(3,), (1, 5), (5, 1, 3)])
def test_a_drafter_that_taps_some_of_the_recorded_layers_gets_their_columns(
    tmp_path: Path, taps: tuple[int, ...]
) -> None:
    header = read_features_header(write_features(tmp_path, "fizz", states(), TOKENS, META))
    check_identity(header, replace(SETTINGS, taps=taps), "aa", "")
    layers = dict(zip((1, 3, 5), states().chunk(3, dim=1), strict=True))
    assert torch.equal(open_features(header, Maps(), taps).hidden, torch.cat([layers[tap] for tap in taps], dim=1))


def test_without_recorded_layers_nothing_is_selected(tmp_path: Path) -> None:
    header = read_features_header(write_features(tmp_path, "fizz", states(), TOKENS, {"prompt_len": "4"}))
    with pytest.raises(PromptRefused, match="192 values a token, the drafter needs 128"):
        check_identity(header, replace(SETTINGS, taps=(1, 3)), "aa", "")
    assert torch.equal(open_features(header, Maps(), (1, 3, 5)).hidden, states())


@pytest.mark.parametrize(
    ("row", "columns", "value", "reason"),
    [
        (3, slice(64, 128), 0.0, "all zero at token 3, layer 3"),
        (3, slice(None), 0.0, "all zero at token 3, layer 1"),
        (10, slice(191, 192), torch.nan, "NaN or infinity at token 10, layer 5"),
        (0, slice(0, 1), torch.inf, "NaN or infinity at token 0, layer 1"),
        (0, slice(0, 64), -torch.inf, "NaN or infinity at token 0, layer 1"),
    ],
)
def test_damaged_features_are_refused(tmp_path: Path, row: int, columns: slice, value: float, reason: str) -> None:
    hidden = states()
    hidden[row, columns] = value
    features = open_features(read_features_header(write_features(tmp_path, "p", hidden, TOKENS, META)), Maps())
    with pytest.raises(PromptRefused, match=reason):
        check_data(features, SETTINGS, 257, 5)


def test_features_that_end_too_early_and_strange_tokens_are_refused(tmp_path: Path) -> None:
    features = open_features(read_features_header(write_features(tmp_path, "p", states(), TOKENS, META)), Maps())
    check_data(features, SETTINGS, 12, 11)
    with pytest.raises(PromptRefused, match="features of 11 tokens, the last anchor needs 12"):
        check_data(features, SETTINGS, 12, 12)
    with pytest.raises(PromptRefused, match=r"token ids 0 … 11, the vocabulary has 11"):
        check_data(features, SETTINGS, 11, 11)
