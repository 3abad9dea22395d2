"""The machine behind a training."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_tui.hosts.local import LocalHost
from dflash_tui.watch.machine import Gpu, read_machine


def nvidia_smi(folder: Path, prints: str, status: int = 0) -> None:
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {status}\n")
    script.chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


async def test_reads_load_memory_gpus_and_space(bin_folder: Path) -> None:
    nvidia_smi(bin_folder, "97, 71680, 81920\n95, [N/A], 81920")
    found = await read_machine(LocalHost("gpu"), str(bin_folder))
    assert found.load is not None
    assert found.memory_total is not None
    assert found.memory_available is not None
    assert 0 < found.memory_available <= found.memory_total
    assert found.gpu == (Gpu(97, 71680, 81920), Gpu(95, None, 81920))
    assert found.gpus == "2 GPUs · 96 %"
    assert found.free is not None
    assert found.free > 0


@pytest.mark.parametrize(
    ("prints", "status"),
    [("Failed to initialize NVML: Unknown Error", 0), ("NVIDIA-SMI has failed", 9), ("", 0), ("ERR!, ERR!, ERR!", 0)],
)
async def test_says_when_no_gpu_can_be_seen(bin_folder: Path, prints: str, status: int) -> None:
    nvidia_smi(bin_folder, prints, status)
    found = await read_machine(LocalHost("gpu"), str(bin_folder / "not" / "yet"))
    assert found.gpu == ()
    assert found.gpus is not None
    assert "no GPU to be seen on gpu" in found.gpus


async def test_a_host_without_the_tool_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await read_machine(LocalHost("bare"))
    assert (found.load, found.memory_total, found.gpu) == (None, None, ())
    assert found.free is not None
