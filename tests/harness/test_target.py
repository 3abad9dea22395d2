"""The Qwen3 target against transformers, and capture of missing hidden states as a real process."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_tui.harness import rundir
from dflash_tui.harness.errors import PromptRefused, Refused
from dflash_tui.harness.mapped import Maps
from dflash_tui.harness.target import complete, load_target
from dflash_tui.harness.target_files import eos_ids, open_target
from dflash_tui.records.process import ExitRecord
from dflash_tui.records.requests import CaptureRequest
from tests.harness.world import generator, harness, needed, text_of

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 80, "vocab_size": 101,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "attention_bias": False, "hidden_act": "silu",
    "max_position_embeddings": 512, "eos_token_id": 100,
}  # fmt: skip


def save_target(folder: Path, *, tied: bool = False, shards: int = 1, **changes: Any) -> Path:
    """A random Qwen3 model as transformers would save it."""
    config = {**CONFIG, "tie_word_embeddings": tied, **changes}
    hidden, inner, draw = 48, 80, generator(0)
    tensors = {"model.embed_tokens.weight": torch.randn(101, hidden, generator=draw)}
    for i in range(4):
        shapes = {
            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner), "self_attn.q_proj": (64, hidden),
            "self_attn.k_proj": (32, hidden), "self_attn.v_proj": (32, hidden), "self_attn.o_proj": (hidden, 64),
            "self_attn.q_norm": (16,), "self_attn.k_norm": (16,),
        }  # fmt: skip
        for name, shape in shapes.items():
            noise = torch.randn(shape, generator=draw) / 5
            tensors[f"model.layers.{i}.{name}.weight"] = noise + 1 if len(shape) == 1 else noise
    tensors["model.norm.weight"] = torch.ones(hidden)
    if not tied:
        tensors["lm_head.weight"] = torch.randn(101, hidden, generator=draw)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    names = sorted(tensors)
    files = (
        ["model.safetensors"]
        if shards == 1
        else [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    )
    for i, file in enumerate(files):
        save_file({name: tensors[name] for name in names[i::shards]}, folder / file)
    if shards > 1:
        index = {"metadata": {}, "weight_map": {name: files[i % shards] for i, name in enumerate(names)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def capture_request(root: Path, prompts: int = 3) -> CaptureRequest:
    """A prompt set p0, p1, … beside a target, and the request to capture it."""
    (root / "states").mkdir()
    lines = [{"id": f"p{i}", "prompt": text_of(f"p{i}"), "token_ids": [5 + i, 7, 11]} for i in range(prompts)]
    (root / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return CaptureRequest(
        target=os.fspath(root / "target"),
        prompts_path=os.fspath(root / "prompts.jsonl"),
        hidden_states=os.fspath(root / "states"),
        taps=(0, 2),
        max_new_tokens=20,
    )


def captured(root: Path, request: CaptureRequest, name: str = "run") -> ExitRecord:
    run_dir = root / name
    run_dir.mkdir()
    rundir.write(run_dir / rundir.CAPTURE, request)
    harness("capture", run_dir, "--foreground")
    return rundir.read(run_dir / rundir.EXIT, ExitRecord)


@pytest.mark.parametrize(("tied", "shards"), [(False, 1), (True, 1), (False, 3)])
def test_completions_and_states_are_those_of_transformers(tmp_path: Path, tied: bool, shards: int) -> None:
    transformers = needed("transformers")
    folder = save_target(tmp_path / "target", tied=tied, shards=shards)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model, vocabulary = load_target(open_target(folder), Maps())
    made = complete(model, vocabulary, [3, 1, 4, 1, 5], (0, 2), (), 24)
    with torch.no_grad():
        out = theirs(torch.tensor([made.tokens]), output_hidden_states=True)
    assert out.logits[0, 4:-1].argmax(-1).tolist() == list(made.tokens[5:])
    expected = torch.cat((out.hidden_states[1], out.hidden_states[3]), dim=-1)[0, :-1]
    torch.testing.assert_close(made.hidden, expected, rtol=1e-4, atol=1e-4)


def test_a_completion_ends_with_its_eos_token(tmp_path: Path) -> None:
    source = open_target(save_target(tmp_path / "target"))
    model, vocabulary = load_target(source, Maps())
    free = complete(model, vocabulary, [3, 1, 4], (1,), (), 20)
    assert not free.ended
    assert len(free.tokens) == 23
    third = free.tokens[5]
    made = complete(model, vocabulary, [3, 1, 4], (1,), (third,), 20)
    assert made.ended
    assert made.tokens == free.tokens[: free.tokens.index(third, 3) + 1]
    assert made.hidden.shape == (len(made.tokens) - 1, 48)


def test_a_target_that_gives_no_finite_logits_is_no_reference(tmp_path: Path) -> None:
    save_target(tmp_path / "target")
    model, vocabulary = load_target(open_target(tmp_path / "target"), Maps())
    broken = replace(vocabulary, embedding=vocabulary.embedding * torch.nan)
    with pytest.raises(PromptRefused, match="not finite after 3 tokens"):
        complete(model, broken, [6, 7, 11], (0, 2), (100,), 20)


def test_eos_comes_from_the_generation_config_first(tmp_path: Path) -> None:
    folder = save_target(tmp_path / "target")
    assert eos_ids(open_target(folder)) == (100,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [98, 99]}')
    assert eos_ids(open_target(folder)) == (98, 99)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["Qwen3_5ForConditionalGeneration"]}, "Qwen3_5ForConditionalGeneration"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"rope_theta": None}, "rope_theta is None"),
    ],
)
def test_a_target_that_is_not_plain_qwen3_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    source = open_target(save_target(tmp_path / "target", **changes))
    with pytest.raises(Refused, match=reason):
        load_target(source, Maps())


@pytest.mark.parametrize(("tap", "reason"), [(3, "after the final norm"), (4, "blocks 0 … 3"), (-1, "blocks 0 … 3")])
def test_a_tap_without_one_meaning_is_refused(tmp_path: Path, tap: int, reason: str) -> None:
    model, vocabulary = load_target(open_target(save_target(tmp_path / "target")), Maps())
    with pytest.raises(Refused, match=reason):
        complete(model, vocabulary, [3], (1, tap), (), 4)


def test_a_target_with_an_absent_shard_or_tensor_is_refused(tmp_path: Path) -> None:
    folder = save_target(tmp_path / "target", shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(Refused, match="model-00002-of-00002"):
        open_target(folder)
    source = open_target(save_target(tmp_path / "other", tie_word_embeddings=False, tied=True))
    with pytest.raises(Refused, match=r"no tensor lm_head\.weight"):
        load_target(source, Maps())


def test_capture_makes_the_missing_files_and_leaves_the_others_alone(tmp_path: Path) -> None:
    save_target(tmp_path / "target")
    request = capture_request(tmp_path)
    assert captured(tmp_path, request).state == "finished"
    files = sorted((tmp_path / "states").iterdir())
    assert [file.name for file in files] == ["p0.safetensors", "p1.safetensors", "p2.safetensors"]
    files[1].unlink()
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in (files[0], files[2])}
    assert captured(tmp_path, request, "again").state == "finished"
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in before} == before
    progress = [json.loads(line) for line in rundir.lines(tmp_path / "again" / rundir.PROGRESS)]
    assert (progress[-1]["phase"], progress[-1]["done"], progress[-1]["total"]) == ("done", 1, 1)
    tensors = load_file(files[1])
    model, vocabulary = load_target(open_target(tmp_path / "target"), Maps())
    made = complete(model, vocabulary, [6, 7, 11], (0, 2), (100,), 20)
    assert tensors["tokens"].tolist() == list(made.tokens)
    assert torch.equal(tensors["hidden"], made.hidden.bfloat16())


def test_capture_goes_round_a_link_to_nothing_and_says_so(tmp_path: Path) -> None:
    save_target(tmp_path / "target")
    request = capture_request(tmp_path)
    (tmp_path / "states").mkdir(exist_ok=True)
    link = tmp_path / "states" / "p1.safetensors"
    link.symlink_to(tmp_path / "gone")
    assert captured(tmp_path, request).state == "finished"
    assert sorted(file.name for file in (tmp_path / "states").iterdir() if file.exists()) == [
        "p0.safetensors", "p2.safetensors"
    ]  # fmt: skip
    assert f"p1: left out: {link}: a link to nothing" in (tmp_path / "run" / rundir.LOG).read_text()


def test_capture_of_named_prompts_only(tmp_path: Path) -> None:
    save_target(tmp_path / "target")
    request = capture_request(tmp_path)
    assert captured(tmp_path, replace(request, prompts=("p2",))).state == "finished"
    assert [file.name for file in (tmp_path / "states").iterdir()] == ["p2.safetensors"]
    ended = captured(tmp_path, replace(request, prompts=("p2", "nobody")), "strangers")
    assert ended.state == "failed"
    assert "no prompt nobody in it" in str(ended.error)


def test_capture_of_text_uses_the_targets_tokenizer_or_says_what_is_missing(tmp_path: Path) -> None:
    save_target(tmp_path / "target")
    request = capture_request(tmp_path, prompts=1)
    Path(request.prompts_path).write_text('{"id": "p0", "prompt": "b a b"}\n')
    ended = captured(tmp_path, request)
    assert ended.state == "failed"
    assert f"{tmp_path / 'target' / 'tokenizer.json'}: not there" in str(ended.error)
    tokenizer: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"a": 8, "b": 9, "?": 0}, "unk_token": "?"},
    }  # fmt: skip
    (tmp_path / "target" / "tokenizer.json").write_text(json.dumps(tokenizer))
    needed("tokenizers")
    assert captured(tmp_path, request, "again").state == "finished"
    assert load_file(tmp_path / "states" / "p0.safetensors")["tokens"][:3].tolist() == [9, 8, 9]
