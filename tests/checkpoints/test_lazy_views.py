"""Tensors whose bytes are not their values: torch negates or conjugates them as they are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_folder

from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.complete import completeness
from dflash_tui.checkpoints.errors import CheckpointUnsupported
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.pickles import Tensor, read_pickle
from dflash_tui.checkpoints.slim import slim


def negative(dtype: torch.dtype = torch.cfloat) -> torch.Tensor:
    lazy = torch.randn(8, dtype=dtype).conj().imag
    assert lazy.is_neg()
    return lazy


def conjugate() -> torch.Tensor:
    lazy = torch.randn(8, dtype=torch.cfloat).conj()
    assert lazy.is_conj()
    return lazy


def save(folder: Path, name: str, tensor: torch.Tensor, *, zipped: bool) -> LocalFiles:
    state = {"model": {"fc.weight": torch.ones(3), name: tensor}, "optimizer": torch.zeros(9)}
    torch.save(state, folder / "checkpoint.pt", _use_new_zipfile_serialization=zipped)
    return LocalFiles(folder)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    ("tensor", "way"),
    [
        (negative(), "resolve_neg"),
        (negative(torch.cdouble), "resolve_neg"),
        (conjugate(), "resolve_conj"),
        (torch.nn.Parameter(negative()), "resolve_neg"),
    ],
    ids=["neg", "neg-f64", "conj", "parameter"],
)
def test_a_lazy_view_is_refused_by_name(tmp_path: Path, tensor: torch.Tensor, way: str, zipped: bool) -> None:
    files = save(tmp_path, "norm.weight", tensor, zipped=zipped)
    with pytest.raises(CheckpointUnsupported, match=rf"checkpoint\.pt: norm\.weight is a lazy view .*\.{way}\(\)"):
        read_structure(files)


def test_what_was_resolved_is_read(tmp_path: Path) -> None:
    files = save(tmp_path, "norm.weight", negative().resolve_neg(), zipped=True)
    assert set(read_structure(files).tensors) == {"fc.weight", "norm.weight"}


def test_a_checkpoint_with_one_is_whole_and_only_its_slim_copy_is_refused(tmp_path: Path) -> None:
    files = save(tmp_path, "norm.weight", negative(), zipped=True)
    assert completeness(files, files.names()) == ("complete", "")
    with pytest.raises(CheckpointUnsupported, match=r"norm\.weight"):
        slim(files, read_anatomy(files), frozenset())


def test_a_lazy_view_of_the_optimizer_is_nobodys_concern(tmp_path: Path) -> None:
    torch.save({"model": {"fc.weight": torch.ones(3)}, "optimizer": {"x": negative()}}, tmp_path / "checkpoint.pt")
    assert set(read_structure(LocalFiles(tmp_path)).tensors) == {"fc.weight"}


@pytest.mark.filterwarnings("ignore")
def test_a_lazy_chunk_of_a_distributed_folder_is_refused(tmp_path: Path) -> None:
    save_folder(
        {"model": {"fc.weight": torch.ones(3), "norm.weight": conjugate()}}, checkpoint_id=tmp_path, no_dist=True
    )
    files = LocalFiles(tmp_path)
    with pytest.raises(CheckpointUnsupported, match=r"norm\.weight is a lazy view"):
        read_structure(files)


def rebuilt(metadata: bytes) -> Any:
    storage = b"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nK\x02tQ"
    return read_pickle(
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00(K\x02t(K\x01tI00\nN" + metadata + b"tR.", "x"
    )


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (b"", ""),
        (b"N", ""),
        (b"}", ""),
        (b"}S'neg'\n\x89s", ""),
        (b"}S'neg'\n\x88s", "neg"),
        (b"}S'conj'\n\x88s", "conj"),
        (b"}S'neg'\n\x88sS'conj'\n\x88s", "neg, conj"),
        (b"}S'scale'\nK\x02s", "metadata scale"),
        (b"K\x05", "metadata (a int)"),
        (b"}(" + b"".join(b"K%cN" % i for i in range(200)) + b"u", "metadata (a dict)"),
    ],
    ids=["absent", "none", "empty", "not-neg", "neg", "conj", "both", "unknown", "number", "many"],
)
def test_metadata_of_a_tensor_is_never_overlooked(metadata: bytes, said: str) -> None:
    found = rebuilt(metadata)
    assert isinstance(found, Tensor)
    assert found.unresolved == said
