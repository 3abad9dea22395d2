"""Builds the demo's data from nothing: `python -m dflash_tui.demo.build_target OUT`; about six CPU minutes, no network.

Stages, each reading what those before it wrote: text (tokenizer, prompts), target, rows, baseline, hidden-states.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dflash_tui.demo.corpus import EVALUATED, Document, Task, documents, evaluation_documents, tasks
from dflash_tui.demo.loading import borrowed, load_in_float
from dflash_tui.demo.pretraining import Pretraining, answers_exactly, pretrain
from dflash_tui.demo.run import REFUSALS
from dflash_tui.demo.tokens import END, MASK, Tokenizer, learn, prompt_text
from dflash_tui.demo.training import Course, Recipe, Row, init_from_target, read_rows
from dflash_tui.harness import rundir
from dflash_tui.harness.capture import capture
from dflash_tui.harness.drafter import Drafter
from dflash_tui.harness.target import Target
from dflash_tui.harness.transformer import Shape
from dflash_tui.records.requests import CaptureRequest
from dflash_tui.records.settings import DrafterSettings

STAGES = ("text", "target", "rows", "baseline", "hidden-states")
VOCABULARY, LAYERS, INTERMEDIATE, POSITIONS = 384, 6, 384, 1024
SHAPE = Shape(
    hidden_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    rope_theta=10000.0,
    rms_norm_eps=1e-6,
    attention_bias=False,
)
TAPS = (1, 3, 4)
CAPTURED = EVALUATED[:3]
"""The prompts whose hidden states are shipped; the others are for the demo's user to capture."""
BASELINE_BLOCK = 16
BASELINE_KNOWS = ("binary_search", "merge_sort", "word_count")
"""The evaluated tasks that the baseline was trained on, beside all that are not evaluated."""
TARGET_STEPS = 1000
_TEXT_SEED, _TARGET_SEED, _ROWS_SEED = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stages that are asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dflash_tui.demo.build_target", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder that receives the data")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="only these, in this order")
    parser.add_argument("--target-steps", type=int, default=TARGET_STEPS)
    parser.add_argument("--rows-per-task", type=int, default=40)
    parser.add_argument("--usual", type=float, default=0.6, help="share of usual names in the drafters' rows")
    parser.add_argument("--baseline-steps", type=int, default=320)
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        _build(given, tasks())
    except REFUSALS as error:
        _say(str(error))
        return 1
    return 0


def _build(given: argparse.Namespace, by_id: dict[str, Task]) -> None:
    if "text" in given.stages:
        build_text(given.out, by_id)
    if "target" in given.stages:
        build_target(given.out, by_id, given.target_steps)
    if "rows" in given.stages:
        build_rows(given.out, by_id, given.rows_per_task, given.usual)
    if "baseline" in given.stages:
        build_baseline(given.out, by_id, given.baseline_steps)
    if "hidden-states" in given.stages:
        build_hidden_states(given.out)


def build_text(out: Path, by_id: dict[str, Task]) -> None:
    """Learn the tokenizer and write it and the prompt set."""
    texts = [
        f"{document.instruction}\n{document.program}"
        for document in itertools.islice(documents(by_id, list(by_id), _TEXT_SEED), 100 * len(by_id))
    ]
    tokenizer = learn(texts, VOCABULARY)
    (out / "target").mkdir(exist_ok=True)
    tokenizer.save(out / "target" / "tokenizer.json")
    prompts = [
        {"id": d.task, "prompt": prompt_text(d.instruction), "token_ids": tokenizer.prompt(d.instruction)}
        for d in evaluation_documents(by_id)
    ]
    _write_lines(out / "prompts.jsonl", prompts)


def build_target(out: Path, by_id: dict[str, Task], steps: int) -> None:
    """Train the target and write its folder, and the instructions it has seen."""
    tokenizer = Tokenizer.load(out / "target" / "tokenizer.json")
    recipe = Pretraining(steps)
    drawn = documents(by_id, list(by_id), _TARGET_SEED)
    started = time.process_time()
    weights = pretrain(
        Target(SHAPE, LAYERS, INTERMEDIATE),
        VOCABULARY,
        (_row(tokenizer, document) for document in drawn),
        recipe,
        lambda step, loss: _say(
            f"target step {step}/{steps} loss {loss:.4f} {time.process_time() - started:.0f} CPU s"
        ),
    )
    write_safetensors(out / "target" / "model.safetensors", {f"model.{name}": value for name, value in weights.items()})
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **_shape(),
        "eos_token_id": tokenizer.ids[END],
        "num_hidden_layers": LAYERS,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    }
    _write_json(out / "target" / "config.json", config)
    lines = training_instructions(by_id, steps)
    (out / "target_instructions.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def training_instructions(by_id: dict[str, Task], steps: int) -> list[str]:
    """The different instructions that a target's training of so many steps reads, sorted."""
    count = steps * Pretraining(steps).sequences
    drawn = itertools.islice(documents(by_id, list(by_id), _TARGET_SEED), count)
    return sorted({document.instruction for document in drawn})


def build_rows(out: Path, by_id: dict[str, Task], per_task: int, usual: float) -> None:
    """Write the drafters' training rows: different documents that the target answers word for word by itself."""
    tokenizer = Tokenizer.load(out / "target" / "tokenizer.json")
    model, embedding = load_in_float(out / "target")
    chosen: dict[str, dict[str, Row]] = {name: {} for name in by_id}
    for document in itertools.islice(documents(by_id, list(by_id), _ROWS_SEED, usual), 8 * per_task * len(by_id)):
        rows, row = chosen[document.task], _row(tokenizer, document)
        if len(rows) < per_task and document.instruction not in rows and answers_exactly(model, embedding, row):
            rows[document.instruction] = row
    lines = [dataclasses.asdict(row) for rows in chosen.values() for row in rows.values()]
    _write_lines(out / "rows.jsonl", lines)
    _say(f"rows: {len(lines)}, fewest for a task {min(map(len, chosen.values()))}")


def build_baseline(out: Path, by_id: dict[str, Task], steps: int) -> None:
    """Train the drafter of another distribution and write it in the z-lab layout."""
    tokenizer = Tokenizer.load(out / "target" / "tokenizer.json")
    model, embedding = load_in_float(out / "target")
    drafter = Drafter(
        DrafterSettings(
            hidden_size=SHAPE.hidden_size,
            num_hidden_layers=1,
            num_attention_heads=SHAPE.num_attention_heads,
            num_key_value_heads=SHAPE.num_key_value_heads,
            head_dim=SHAPE.head_dim,
            intermediate_size=INTERMEDIATE,
            vocab_size=VOCABULARY,
            taps=TAPS,
            block_size=BASELINE_BLOCK,
            mask_token_id=tokenizer.ids[MASK],
            rope_theta=SHAPE.rope_theta,
            rms_norm_eps=SHAPE.rms_norm_eps,
            layer_masks=("full",),
        )
    )
    init_from_target(drafter, model.state_dict(), LAYERS - 1, seed=0)
    names = [name for name in by_id if name not in EVALUATED or name in BASELINE_KNOWS]
    recipe = Recipe(fall=steps, lr=1e-2, block_size=BASELINE_BLOCK)
    course = Course(drafter, borrowed(model, embedding, TAPS), read_rows(out / "rows.jsonl", names), recipe)
    for number in range(1, steps + 1):
        step = course.step()
        if number % 20 == 0:
            _say(f"baseline step {number}/{steps} loss {step.loss:.4f}")
    (out / "baseline").mkdir(exist_ok=True)
    write_safetensors(out / "baseline" / "model.safetensors", drafter.state_dict())
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        **_shape(),
        "block_size": BASELINE_BLOCK,
        "dflash_config": {"mask_token_id": tokenizer.ids[MASK], "target_layer_ids": list(TAPS)},
        "layer_types": ["full_attention"],
        "num_hidden_layers": 1,
        "num_target_layers": LAYERS,
        "tie_word_embeddings": False,
    }
    _write_json(out / "baseline" / "config.json", config)


def build_hidden_states(out: Path) -> None:
    """Let the harness capture the hidden states that are there from the start."""
    (out / "hidden_states").mkdir(exist_ok=True)
    request = CaptureRequest(
        target=str(out / "target"),
        prompts_path=str(out / "prompts.jsonl"),
        hidden_states=str(out / "hidden_states"),
        taps=TAPS,
        prompts=CAPTURED,
        target_name="tiny-target",
    )
    with tempfile.TemporaryDirectory() as folder:
        rundir.write(Path(folder) / rundir.CAPTURE, request)
        capture(Path(folder))


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as bfloat16, sorted by name, in the safetensors format (header length, JSON header, data)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name in sorted(tensors):
        value = tensors[name].detach().to(torch.bfloat16).contiguous()
        raw = bytes(value.view(torch.uint8).flatten().tolist())
        header[name] = {
            "dtype": "BF16",
            "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def _row(tokenizer: Tokenizer, document: Document) -> Row:
    prompt, completion = tokenizer.prompt(document.instruction), tokenizer.completion(document.program)
    return Row(document.task, tuple(prompt), tuple(completion))


def _shape() -> dict[str, Any]:
    return {
        "attention_bias": False,
        "dtype": "bfloat16",
        "head_dim": SHAPE.head_dim,
        "hidden_act": "silu",
        "hidden_size": SHAPE.hidden_size,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": POSITIONS,
        "num_attention_heads": SHAPE.num_attention_heads,
        "num_key_value_heads": SHAPE.num_key_value_heads,
        "rms_norm_eps": SHAPE.rms_norm_eps,
        "rope_theta": SHAPE.rope_theta,
        "vocab_size": VOCABULARY,
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _write_lines(path: Path, values: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(value, separators=(",", ":")) + "\n" for value in values), encoding="utf-8")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
