from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dflash_tui.checkpoints.files import local_files
from dflash_tui.checkpoints.opening import read_configs, read_structure
from dflash_tui.checkpoints.settings import resolve_settings
from dflash_tui.demo.corpus import DATA, EVALUATED
from dflash_tui.demo.loading import borrowed, load_drafter, load_in_float
from dflash_tui.demo.muon import Muon, orthogonal
from dflash_tui.demo.training import Course, Recipe, read_rows

LINE = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] "
    r"step=(\d+)/(\d+) loss=(\d+\.\d{4}) lr=\d\.\d\de[-+]\d\d block_size=32 tok/s=\d+\.\dK"
)
PATIENCE = 60.0


def _argv(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "dflash_tui.demo.trainer", str(out), "--min-step", "0", *more]


def _train(out: Path, *more: str) -> list[str]:
    subprocess.run(_argv(out, *more), check=True, timeout=PATIENCE)
    return (out.parent / "train.log").read_text(encoding="utf-8").splitlines()


@contextmanager
def _training(out: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(_argv(out, *more), stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _wait(until: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until():
        assert process.poll() is None, "the trainer ended too early"
        assert time.monotonic() < deadline, "the trainer took too long"
        time.sleep(0.02)


def _logged(out: Path, text: str) -> int:
    log = out.parent / "train.log"
    return log.read_text(encoding="utf-8").count(text) if log.exists() else 0


def _load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint folder of a whole training of six steps, saved at three and six."""
    out = tmp_path_factory.mktemp("run") / "checkpoints"
    _train(out, "--steps", "6", "--save-every", "3", "--log-every", "2")
    return out


def test_the_log_has_the_lines_that_a_console_reads(finished: Path) -> None:
    lines = (finished.parent / "train.log").read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"\[.{19}\] drafter 0\.\d\dM params, target target, block_size=32, ready in \d+\.\ds", lines[0])
    steps = [found for line in lines if (found := LINE.fullmatch(line))]
    assert [(int(found[1]), int(found[2])) for found in steps] == [(2, 6), (4, 6), (6, 6)]
    saved = [line.split("saved checkpoint: ")[1] for line in lines if "saved checkpoint" in line]
    assert saved == [str(finished / f"step_{number}" / "checkpoint.pt") for number in (3, 6)]
    assert lines[-1].endswith("training finished")


def test_the_settings_lie_beside_the_log(finished: Path) -> None:
    assert json.loads((finished.parent / "train_args.json").read_text()) == {
        "block_size": 32,
        "max_steps": 6,
        "save_every": 3,
        "target": "target",
        "target_layer_ids": [1, 3, 4],
        "mask_token_id": 3,
        "num_gpus": 0,
    }


def test_a_checkpoint_holds_drafter_frozen_parts_optimizer_step_and_settings(finished: Path) -> None:
    content = _load(finished / "step_6" / "checkpoint.pt")
    model = content["model_state_dict"]
    frozen = {"embed_tokens.weight", "lm_head.weight", "verifier_norm.weight"}
    assert set(model) == set(load_drafter(DATA / "baseline").state_dict()) | frozen
    assert {value.dtype for value in model.values()} == {torch.bfloat16}
    target, embedding = load_in_float(DATA / "target")
    assert torch.equal(model["embed_tokens.weight"].float(), embedding)
    assert torch.equal(model["lm_head.weight"].float(), embedding)
    assert torch.equal(model["verifier_norm.weight"].float(), target.norm.weight)
    assert content["step"] == 6
    assert content["optimizer_state_dict"]["state"]


def test_a_checkpoint_alone_says_what_its_weights_cannot(finished: Path) -> None:
    files = local_files(finished / "step_3" / "checkpoint.pt")
    settings = resolve_settings(read_structure(files), read_configs(files), {})
    assert (settings.block_size, settings.taps, settings.mask_token_id) == (32, (1, 3, 4), 3)
    assert (settings.rope_theta, settings.rms_norm_eps, settings.layer_masks) == (10000.0, 1e-6, ("full",))


def test_weights_move_from_checkpoint_to_checkpoint_and_the_target_parts_do_not(finished: Path) -> None:
    first, second = (_load(finished / f"step_{n}" / "checkpoint.pt")["model_state_dict"] for n in (3, 6))
    assert {name for name in first if torch.equal(first[name], second[name])} >= {"embed_tokens.weight"}
    assert not torch.equal(first["fc.weight"], second["fc.weight"])


def test_a_second_run_appends_to_the_log_and_the_same_seed_gives_the_same_weights(
    finished: Path, tmp_path: Path
) -> None:
    logs = {_seed: _train(tmp_path / _seed / "out", "--steps", "3", "--seed", _seed) for _seed in ("0", "1")}
    weights = {seed: _load(tmp_path / seed / "out" / "step_3" / "checkpoint.pt")["model_state_dict"] for seed in logs}
    assert not torch.equal(weights["0"]["fc.weight"], weights["1"]["fc.weight"])
    again = _train(tmp_path / "0" / "out", "--steps", "3", "--seed", "0")
    assert again[: len(logs["0"])] == logs["0"]
    assert len(again) == 2 * len(logs["0"])
    repeated = _load(tmp_path / "0" / "out" / "step_3" / "checkpoint.pt")["model_state_dict"]
    assert all(torch.equal(value, repeated[name]) for name, value in weights["0"].items())


def test_a_tethered_trainer_ends_when_its_starter_is_gone(tmp_path: Path) -> None:
    out = tmp_path / "checkpoints"
    with _training(out, "--tether", "--steps", "100000") as process:
        _wait(lambda: _logged(out, "step=") > 0, process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=5)
        process.stdin = None


def test_a_tethered_trainer_ends_even_before_its_first_log_line(tmp_path: Path) -> None:
    out = tmp_path / "checkpoints"
    subprocess.run(_argv(out, "--tether", "--steps", "100000"), stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE)
    assert not _logged(out, "training finished")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_and_silently(how: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "checkpoints"
    with _training(out, "--steps", "100000") as process:
        _wait(lambda: _logged(out, "step=") > 0, process)
        process.send_signal(how)
        assert process.wait(timeout=5) == -how


def test_a_killed_trainer_leaves_no_partial_checkpoint_under_a_final_name(tmp_path: Path) -> None:
    out = tmp_path / "checkpoints"
    with _training(out, "--steps", "100000", "--save-every", "1") as process:
        for count in range(2, 12, 3):
            _wait(lambda count=count: _logged(out, "saved") >= count, process)  # type: ignore[misc]
        process.kill()
        process.wait()
    written = list(out.glob("*/checkpoint.pt"))
    assert len(written) >= 11
    for path in written:
        assert _load(path)["step"] == int(path.parent.name.removeprefix("step_"))
    assert {path.name for path in out.glob("*/*")} <= {"checkpoint.pt", "checkpoint.pt.tmp"}


def test_a_missing_file_ends_it_with_one_sentence(tmp_path: Path) -> None:
    rows = tmp_path / "none.jsonl"
    ended = subprocess.run(
        _argv(tmp_path / "checkpoints", "--rows", str(rows)), capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.returncode == 1
    assert ended.stderr == f"{rows}: cannot be read (No such file or directory)\n"


def test_a_step_takes_no_less_time_than_asked(tmp_path: Path) -> None:
    started = time.monotonic()
    subprocess.run([*_argv(tmp_path / "out", "--steps", "4"), "--min-step", "0.5"], check=True, timeout=PATIENCE)
    assert time.monotonic() - started >= 2


def test_training_lowers_the_loss() -> None:
    torch.set_num_threads(1)
    drafter = load_drafter(DATA / "baseline")
    parts = borrowed(*load_in_float(DATA / "target"), drafter.settings.taps)
    course = Course(drafter, parts, read_rows(DATA / "rows.jsonl", EVALUATED), Recipe(fall=400, lr=5e-3, block_size=32))
    losses = [course.step().loss for _ in range(40)]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (16, 16)])
def test_a_muon_update_has_singular_values_near_one(shape: tuple[int, int]) -> None:
    update = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonal(update))
    assert values.min() > 0.3
    assert values.max() < 1.3


def test_both_kinds_of_parameters_descend() -> None:
    matrix, vector = nn.Parameter(torch.full((4, 4), 2.0)), nn.Parameter(torch.full((4,), 2.0))
    optimizer = Muon([("layer.weight", matrix), ("norm.weight", vector)], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        (matrix.diagonal().square().sum() + vector.square().sum()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert matrix.diagonal().abs().max() < 1
    assert vector.abs().max() < 0.5
