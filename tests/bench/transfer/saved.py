"""A checkpoint as a training saves it, written by torch in a process of its own: bf16 weights, float32 moments of
AdamW, the step, the arguments.

    python -m tests.bench.transfer.saved FOLDER BYTES

`step_4000/checkpoint.pt` takes about BYTES, a fifth of them weights. Of these, more than half are the embedding and the
head of `target/model.safetensors`: who evaluates beside that target needs less than a tenth of the file.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path

CHECKPOINT, TARGET = "step_4000/checkpoint.pt", "target/model.safetensors"
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"

_LAYERS, _TAPS, _HEAD_SIZE = 6, 5, 64
_BYTES_A_PARAMETER = 10
"""Two of the weight, four of each moment."""


def shapes(total: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a drafter whose checkpoint takes about `total` bytes; 2 GiB are a hidden size of 1024."""
    parameters = total // _BYTES_A_PARAMETER
    hidden = max(1, round(16 * math.sqrt(total / (2 << 30)))) * _HEAD_SIZE
    keys, inner = max(1, hidden // _HEAD_SIZE // 4) * _HEAD_SIZE, 4 * hidden
    body: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, _TAPS * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for number in range(_LAYERS):
        layer = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_norm": (_HEAD_SIZE,),
            "self_attn.k_norm": (_HEAD_SIZE,),
            "self_attn.q_proj": (hidden, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        body |= {f"layers.{number}.{name}.weight": shape for name, shape in layer.items()}
    left = parameters - sum(math.prod(shape) for shape in body.values())
    vocabulary = max(64, left // (2 * hidden))
    return {EMBEDDING: (vocabulary, hidden), **body, HEAD: (vocabulary, hidden)}


def weights(total: int, *, ends: bool) -> int:
    """Bytes of the tensors, with or without the embedding and the head."""
    return sum(2 * math.prod(shape) for name, shape in shapes(total).items() if ends or name not in (EMBEDDING, HEAD))


def write_checkpoint(folder: Path, total: int) -> None:
    """Have torch write both files below `folder`."""
    subprocess.run(
        [sys.executable, "-m", "tests.bench.transfer.saved", str(folder), str(total)],
        cwd=Path(__file__).parents[3], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True,
    )  # fmt: skip


def _write(folder: Path, total: int) -> None:
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    parameters = {
        name: torch.nn.Parameter(torch.empty(shape, dtype=torch.bfloat16).uniform_(-1, 1))
        for name, shape in shapes(total).items()
    }
    optimizer = torch.optim.AdamW(parameters.values(), lr=6e-4)
    for parameter in parameters.values():
        optimizer.state[parameter] = {
            "step": torch.tensor(4000.0),
            "exp_avg": torch.rand(parameter.shape),
            "exp_avg_sq": torch.rand(parameter.shape),
        }
    saved = {
        "model_state_dict": {name: parameter.data for name, parameter in parameters.items()},
        "optimizer_state_dict": optimizer.state_dict(),
        "step": 4000,
        "args": argparse.Namespace(block_size=32, num_layers=_LAYERS, lr=6e-4, seed=1),
    }
    for name in (CHECKPOINT, TARGET):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    torch.save(saved, folder / CHECKPOINT)
    ends = {f"model.{EMBEDDING}": parameters[EMBEDDING].data, HEAD: parameters[HEAD].data}
    save_file(ends, folder / TARGET, metadata={"format": "pt"})
    with (folder / CHECKPOINT).open("rb") as file:
        os.fsync(file.fileno())


if __name__ == "__main__":
    _write(Path(sys.argv[1]), int(sys.argv[2]))
