"""What the console learns of an evaluation host in one answer, and that asking never costs a torch import."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash_tui.checkpoints.files import local_files
from dflash_tui.checkpoints.identity import quick_id
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.harness.cache import write_features
from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.codec import from_data
from dflash_tui.records.settings import DrafterSettings
from tests.cases import known
from tests.harness.world import REPOSITORY, World, golden, harness, metadata, world

RAW = "cases/checkpoints/raw-step/step_4000/checkpoint.pt"


def asked(tiny: World, **changes: Any) -> dict[str, Any]:
    request = {
        "checkpoint": os.fspath(tiny.case.folder), "target": os.fspath(tiny.target.folder),
        "prompts_path": os.fspath(tiny.root / "prompts.jsonl"), "hidden_states": [os.fspath(tiny.hidden_states)],
        "space_at": os.fspath(tiny.root / "not" / "yet"), **changes,
    }  # fmt: skip
    found = harness("survey", stdin=json.dumps(request))
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)  # type: ignore[no-any-return]


def sentences(answer: dict[str, Any], about: str, severity: str = "error") -> list[str]:
    problems = [*answer["problems"], *(problem for cache in answer["caches"] for problem in cache["problems"])]
    return [p["sentence"] for p in problems if p["about"] == about and p["severity"] == severity]


def cached(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The prompts as the only folder of hidden states has them."""
    (cache,) = answer["caches"]
    return list(cache["prompts"])


@pytest.fixture
def tiny(tmp_path: Path) -> World:
    folder = tmp_path / "world"
    folder.mkdir()
    return world(folder)


@pytest.fixture
def drafter_folder(tiny: World) -> Path:
    """A z-lab folder with nothing beside config and weights."""
    folder = tiny.root / "drafter"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny.case.folder / name, folder / name)
    return folder


def test_a_host_where_everything_is_in_order(tiny: World, drafter_folder: Path) -> None:
    answer = asked(tiny, checkpoint=os.fspath(drafter_folder))
    assert answer["problems"] == []
    assert answer["target"]["config_sha256"] == tiny.target.config_sha256
    assert answer["target"]["bytes"] == (tiny.target.folder / "model.safetensors").stat().st_size
    checkpoint = answer["checkpoint"]
    settings = from_data(DrafterSettings, checkpoint["settings"], "settings")
    assert replace(settings, sources={}) == replace(tiny.case.settings, sources={})
    assert settings.sources["block_size"] == f"{drafter_folder / 'config.json'}: block_size"
    assert from_data(Audit, checkpoint["audit"], "audit").embedding == "target"
    assert checkpoint["quick_id"] == quick_id(read_structure(local_files(drafter_folder)).directory)
    assert len(checkpoint["weights_id"]) == 64
    assert [(p["id"], p["features"]) for p in cached(answer)] == [
        ("p0", "p0.safetensors"), ("p1", "p1.safetensors"), ("p2", "p2.safetensors"), ("p3", None)
    ]  # fmt: skip
    first = cached(answer)[0]
    assert (first["sha256"], first["features_id"]) == (
        tiny.manifest.prompts[0].sha256, tiny.manifest.prompts[0].features_id
    )  # fmt: skip
    assert (first["layer_ids"], first["prompt_len"], first["completion_len"]) == ([1, 3, 5], 10, 46)
    assert first["identity"]["target_config_sha256"] == tiny.target.config_sha256
    assert first["mtime"] == pytest.approx((tiny.hidden_states / "p0.safetensors").stat().st_mtime)
    host = answer["host"]
    assert host["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert host["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert host["memory_total"] >= host["memory_available"] > 0
    assert host["free_bytes"] > 0
    assert answer["memory_needed"] > 1 << 29


def test_the_first_prompts_are_those_asked(tiny: World) -> None:
    assert [p["id"] for p in asked(tiny, prompts_asked=2)["prompts"]] == ["p0", "p1"]


def test_raw_weights_without_a_config_name_what_nothing_says(tiny: World) -> None:
    answer = asked(tiny, checkpoint=os.fspath(known(RAW)), overrides={"rope_theta": 1e6})
    assert answer["checkpoint"]["settings"] is None
    assert answer["checkpoint"]["step"] == 4000
    (sentence,) = sentences(answer, "drafter settings")
    assert "mask_token_id" in sentence
    assert "rope_theta," not in sentence


def test_raw_weights_with_the_drafters_config_named_are_complete(tiny: World) -> None:
    config = os.fspath(tiny.case.folder / "config.json")
    answer = asked(tiny, checkpoint=os.fspath(known(RAW)), drafter_config=config)
    checkpoint = answer["checkpoint"]
    assert answer["problems"] == []
    assert checkpoint["settings"]["block_size"] == 8
    assert (checkpoint["audit"]["embedding"], checkpoint["audit"]["head"]) == ("equal", "equal")
    assert checkpoint["audit"]["unused"] == ["verifier_norm.weight"]


def test_the_same_weights_have_one_identity_in_every_container(tiny: World, drafter_folder: Path) -> None:
    raw = asked(tiny, checkpoint=os.fspath(known(RAW)))["checkpoint"]["weights_id"]
    assert raw == asked(tiny, checkpoint=os.fspath(drafter_folder))["checkpoint"]["weights_id"]


def test_another_family_is_an_error_by_its_name(tiny: World, drafter_folder: Path) -> None:
    other = golden("dflash2-b8").folder
    for name in ("config.json", "model.safetensors"):
        shutil.copy(other / name, drafter_folder / name)
    answer = asked(tiny, checkpoint=os.fspath(drafter_folder))
    assert answer["checkpoint"]["audit"]["family"] == "dflash2"
    assert any("keys are those of dflash2" in sentence for sentence in sentences(answer, "checkpoint"))


def test_a_damaged_checkpoint_is_a_sentence(tiny: World, drafter_folder: Path) -> None:
    weights = drafter_folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    answer = asked(tiny, checkpoint=os.fspath(drafter_folder))
    assert answer["checkpoint"] is None
    assert "model.safetensors" in sentences(answer, "checkpoint")[0]
    assert len(answer["prompts"]) == 4


def test_what_is_wrong_with_a_checkpoint_says_where_it_lies(tiny: World, tmp_path: Path) -> None:
    damaged, none = tmp_path / "damaged", tmp_path / "drafter.json"
    damaged.mkdir()
    (damaged / "model.safetensors").write_bytes(b"\0" * 100)
    none.write_text("{}")
    for path in (damaged, none):
        (said,) = sentences(asked(tiny, checkpoint=os.fspath(path)), "checkpoint")
        assert said.startswith(f"{path}")


def test_a_missing_tensor_is_an_error_that_names_it(tiny: World, drafter_folder: Path) -> None:
    tensors = load_file(drafter_folder / "model.safetensors")
    del tensors["hidden_norm.weight"]
    save_file(tensors, drafter_folder / "model.safetensors")
    answer = asked(tiny, checkpoint=os.fspath(drafter_folder))
    assert any("hidden_norm.weight" in sentence for sentence in sentences(answer, "checkpoint"))


def test_hidden_states_that_cannot_be_used_do_not_count_and_say_why(tiny: World, drafter_folder: Path) -> None:
    (tiny.hidden_states / "p0.safetensors").unlink()
    (tiny.hidden_states / "p0.safetensors").symlink_to("/nowhere/p0.safetensors")
    (tiny.hidden_states / "p1.safetensors").unlink()
    hidden, tokens = torch.ones(55, 192, dtype=torch.bfloat16), list(range(56))
    write_features(tiny.hidden_states, "p1", hidden, tokens, metadata(tiny.target, "p1", 10, (2, 4, 6)))
    answer = asked(tiny, checkpoint=os.fspath(drafter_folder))
    assert [(p["found"], p["features"]) for p in cached(answer)] == [
        (True, None), (True, None), (True, "p2.safetensors"), (False, None)
    ]  # fmt: skip
    assert "p0.safetensors" in sentences(answer, "prompt p0", "warn")[0]
    assert "layers 2,4,6, the drafter taps 1,3,5" in sentences(answer, "prompt p1", "warn")[0]


def test_a_cache_without_a_usable_file_says_how_many_prompts_and_what_makes_them(tiny: World) -> None:
    empty = tiny.root / "empty"
    (sentence,) = sentences(asked(tiny, hidden_states=[os.fspath(empty)], prompts_asked=3), "hidden states")
    own = f"put your own there, for they can't be captured: {tiny.target.folder}/config.json: hidden_size is None; "
    own += "expected a number"
    assert sentence == (
        f"{empty}: none of the 3 prompts asked has hidden states, for that folder does not exist; {own}"
    )
    empty.mkdir()
    for name in ("p1", "p2"):
        (empty / f"{name}.safetensors").write_bytes(b"short")
    (sentence,) = sentences(asked(tiny, hidden_states=[os.fspath(empty)], prompts_asked=3), "hidden states")
    assert f"{empty}: none of the 3 prompts asked has usable hidden states, 2 have some that are refused" in sentence
    assert f"first {empty}/p1.safetensors: " in sentence
    assert sentence.endswith(f"move what is refused away and {own}")


def test_a_host_without_target_prompts_or_checkpoint_gets_one_error_each(tiny: World) -> None:
    answer = asked(tiny, target="/nowhere", prompts_path="/nowhere.jsonl", checkpoint="/nowhere.pt")
    for about in ("target", "prompts", "checkpoint"):
        assert len(sentences(answer, about)) == 1
        assert "/nowhere" in sentences(answer, about)[0]


def test_a_target_with_an_absent_shard_is_an_error_that_names_it(tiny: World) -> None:
    folder = tiny.target.folder
    names = list(load_file(folder / "model.safetensors"))
    index = {"metadata": {}, "weight_map": {names[0]: "model.safetensors", names[1]: "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-2.safetensors" in sentences(asked(tiny), "target")[0]


def test_a_prompt_set_says_the_line_that_is_wrong(tiny: World) -> None:
    path = tiny.root / "prompts.jsonl"
    for line, reason in (
        ('{"id": "p0", "prompt": "again"}', "appears twice"),
        ('{"id": "../p9", "prompt": "x"}', "cannot name a file"),
        ('{"id": "p9"}', '"id" and "prompt"'),
        ('{"id": "p9", "prompt": "x", "token_ids": []}', "token_ids"),
        ("{", "not JSON"),
    ):
        good = path.read_text()
        path.write_text(good + line + "\n")
        (sentence,) = sentences(asked(tiny), "prompts")
        assert reason in sentence
        path.write_text(good)


def test_a_request_that_is_none_is_refused() -> None:
    refused = harness("survey", stdin="[]")
    assert refused.returncode == 1
    assert "survey request" in refused.stderr


def test_a_python_without_torch_is_said_with_the_command_to_run(tiny: World) -> None:
    found = harness("survey", stdin="{}", python=["-S"])
    answer = json.loads(found.stdout)
    assert answer["host"]["torch"] is None
    assert "-m pip install torch" in sentences(answer, "torch")[0]


def test_the_answer_is_utf_8_whatever_the_host_s_charset(tiny: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    (tiny.target.folder).rename(tiny.root / "target-τ")
    found = harness("survey", stdin=json.dumps({"target": os.fspath(tiny.root / "target-τ")}))
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["target"]["name"] == "target-τ"


def test_a_survey_imports_no_torch(tiny: World) -> None:
    request = json.dumps({
        "checkpoint": os.fspath(known(RAW)), "target": os.fspath(tiny.target.folder),
        "prompts_path": os.fspath(tiny.root / "prompts.jsonl"), "hidden_states": [os.fspath(tiny.hidden_states)],
    })  # fmt: skip
    program = (
        "import sys; from dflash_tui.harness.__main__ import main; status = main(['survey']);"
        "print([name for name in sys.modules if name.partition('.')[0] in ('torch', 'numpy')], file=sys.stderr);"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=request, capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    assert done.stderr == "[]\n"
    assert json.loads(done.stdout)["checkpoint"]["weights_id"]


def test_it_runs_out_of_a_zip_that_holds_its_own_rooms_only(tiny: World, tmp_path: Path) -> None:
    archive = tmp_path / "harness.pyz"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr(
            "__main__.py", "import sys\nfrom dflash_tui.harness.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
        )
        made.write(REPOSITORY / "dflash_tui" / "__init__.py", "dflash_tui/__init__.py")
        for room in ("harness", "measure", "checkpoints", "records"):
            for path in sorted((REPOSITORY / "dflash_tui" / room).glob("*.py")):
                made.write(path, f"dflash_tui/{room}/{path.name}")
    run_dir = tiny.write()
    command = [sys.executable, "-P", os.fspath(archive), "evaluate", os.fspath(run_dir), "--foreground"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(tiny.blocks()) == 90


def _capture_refused(tiny: World, **changes: object) -> str:
    path = tiny.target.folder / "config.json"
    plain = {
        "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "rms_norm_eps": 1e-6, "num_hidden_layers": 0, "intermediate_size": 128, "rope_theta": 1e6,
    }  # fmt: skip
    path.write_text(json.dumps({**json.loads(path.read_text()), **plain, **changes}))
    return str(asked(tiny, checkpoint=None)["capture_refused"])


def test_why_nothing_can_be_captured_is_told_before_it_is_tried(tiny: World) -> None:
    assert "architectures ['Qwen3MoeForCausalLM']" in _capture_refused(tiny, architectures=["Qwen3MoeForCausalLM"])
    assert "rope_scaling is {'factor': 4}" in _capture_refused(tiny, rope_scaling={"factor": 4})
    assert "head_dim is None; expected a number" in _capture_refused(tiny, rope_scaling=None, head_dim=None)
    assert "no tensor norm.weight among 2" in _capture_refused(tiny, head_dim=16)
