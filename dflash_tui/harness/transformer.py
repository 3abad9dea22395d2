"""The parts that Qwen3-class models are made of, shared by drafter and target: weights keep their stored dtype,
arithmetic is in the dtype of the activations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KeysValues = tuple[Tensor, Tensor]
"""Keys (rotated) and values of one layer, each [key/value heads, N, head_dim]."""


@dataclass(frozen=True)
class Shape:
    """What an attention layer needs to know of its model; names as in HF configs."""

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float
    attention_bias: bool


class Linear(nn.Linear):
    """A linear map that keeps its stored dtype and computes in its input's, casting the weight as it is used."""

    def forward(self, x: Tensor) -> Tensor:
        """[…, in] -> […, out]."""
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) ⊙ weight over the last axis; the mean is taken in float32, the weight is plain."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[…, size] -> the same."""
        wide = x.float()
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return normed.to(x.dtype) * self.weight.to(x.dtype)


class SwiGLU(nn.Module):
    """down(silu(gate x) ⊙ up x)."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden, intermediate, bias=False)
        self.up_proj = Linear(hidden, intermediate, bias=False)
        self.down_proj = Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[…, hidden] -> the same."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def rotations(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [N, head_dim] of NeoX rotary embedding at absolute positions [N], float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions.float()[:, None] * (1.0 / theta**exponents)[None, :]
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """NeoX rotation (halves, not pairs) of [N, heads, head_dim] by `rotations` of the same N positions."""
    cos, sin = (part[:, None, :].to(x.dtype) for part in turn)
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Attention(nn.Module):
    """Grouped-query attention with per-head norms before the rotation."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = s.num_attention_heads, s.num_key_value_heads, s.head_dim
        self.theta = s.rope_theta
        queries, keys, bias = self.heads * self.head_dim, self.kv_heads * self.head_dim, s.attention_bias
        self.q_proj = Linear(s.hidden_size, queries, bias=bias)
        self.k_proj = Linear(s.hidden_size, keys, bias=bias)
        self.v_proj = Linear(s.hidden_size, keys, bias=bias)
        self.o_proj = Linear(queries, s.hidden_size, bias=bias)
        self.q_norm = RMSNorm(self.head_dim, s.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, s.rms_norm_eps)

    def keys_values(self, x: Tensor, positions: Tensor) -> KeysValues:
        """Keys and values [kv heads, N, head_dim] of vectors [N, D] at absolute positions [N]."""
        keys = self.k_norm(self.k_proj(x).view(-1, self.kv_heads, self.head_dim))
        keys = rotate(keys, rotations(positions, self.head_dim, self.theta))
        values = self.v_proj(x).view(-1, self.kv_heads, self.head_dim)
        return keys.transpose(0, 1), values.transpose(0, 1)

    def forward(self, x: Tensor, positions: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Queries from [N, D] at positions [N] over M keys and values; mask [N, M] is True where visible -> [N, D]."""
        queries = self.q_norm(self.q_proj(x).view(-1, self.heads, self.head_dim))
        queries = rotate(queries, rotations(positions, self.head_dim, self.theta)).transpose(0, 1)
        mixed = F.scaled_dot_product_attention(
            queries[None], keys[None], values[None], attn_mask=mask, enable_gqa=self.heads != self.kv_heads
        )[0]
        out: Tensor = self.o_proj(mixed.transpose(0, 1).reshape(x.shape[0], -1))
        return out
