"""A folder that two real processes save together with torch.distributed.checkpoint, as an FSDP training does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

ROWS = {"even": (8, 3), "uneven": (5, 4), "one row": (1, 6), "cube": (6, 2, 2), "vector": (7,)}


def whole_tensors() -> dict[str, torch.Tensor]:
    """Tensors with rows for both, for one of them, and for none."""
    torch.manual_seed(5)
    tensors = {f"layer.{name}": torch.randn(shape) for name, shape in ROWS.items()}
    tensors |= {"layer.bf16": torch.randn(9, 2).bfloat16(), "copy": torch.randn(3, 3), "no rows": torch.ones(0, 4)}
    return tensors


def save_with_two_ranks(
    folder: Path, tensors: Mapping[str, torch.Tensor], *, columns: bool = False, form: str = "TORCH_SAVE"
) -> None:
    """Every tensor sharded by rows but `copy`, which each rank has whole; with `columns` one by columns. `form` is a
    SerializationFormat."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    meeting = folder.parent / f"{folder.name}.meeting"
    torch.save(dict(tensors), f"{meeting}.pt")
    command = [sys.executable, "-m", "tests.checkpoints.sharded", str(meeting), str(folder), str(int(columns)), form]
    ranks = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]


def _rank(meeting: str, folder: str, columns: bool, form: str, rank: int) -> None:
    from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
    from torch.distributed.checkpoint.state_dict_saver import save
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))

    def shared(name: str, tensor: torch.Tensor) -> DTensor:
        by_columns = columns and name == "layer.even"
        return distribute_tensor(tensor, mesh, [Replicate() if name == "copy" else Shard(1 if by_columns else 0)])

    model = {name: shared(name, tensor) for name, tensor in torch.load(f"{meeting}.pt").items()}
    moments = {name: {"exp_avg": shared("", torch.ones(6, 2))} for name in model}
    state = {"app": {"model": model, "optim": {"state": moments}, "step": 31}}
    save(state, storage_writer=FileSystemWriter(folder, serialization_format=SerializationFormat[form]))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    _rank(sys.argv[1], sys.argv[2], sys.argv[3] == "1", sys.argv[4], int(sys.argv[5]))
