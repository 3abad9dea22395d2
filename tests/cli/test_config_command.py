"""`config path`, `show` and `schema`, as commands."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from jsonschema import Draft202012Validator

from tests.cli.world import Desk


def test_path_is_the_file_that_is_used_whether_or_not_it_is_there(world: Desk, tmp_path: Path) -> None:
    assert world.json("config", "path") == {"path": str(world.config), "exists": True}
    assert world.run("config", "path").out == f"{world.config}\n"
    missing = tmp_path / "none.toml"
    assert world.json("--config", missing, "config", "path") == {"path": str(missing), "exists": False}
    assert world.run("--config", missing, "config", "path").out == (
        f"{missing} (no such file; dflash-tui init writes it)\n"
    )


def test_show_fills_in_defaults_and_marks_them(world: Desk) -> None:
    shown = world.json("config", "show")
    written = tomllib.loads(world.config.read_text())
    assert shown["path"] == str(world.config)
    assert shown["config"]["training"] == {"name": "slammed5", **written["training"]}
    assert shown["config"]["hosts"]["ct200"]["container"] == list(world.launcher)
    for key in ("training.name", "evaluation.block_size", "hosts.pve1.jump_only", "interface.theme"):
        assert key in shown["defaults"]
    assert not {"training.host", "evaluation.threads", "hosts.pve1.ssh", "baseline.previous.host"} & set(
        shown["defaults"]
    )
    text = world.run("config", "show").out
    assert 'name = "slammed5"  # default\n' in text
    assert "threads = 1\n" in text
    assert 'theme = "harbour"  # default\n' in text
    assert tomllib.loads(text) == shown["config"]


def test_what_a_host_or_a_baseline_leaves_out_is_said_as_it_is_meant(world: Desk) -> None:
    path = world.other_config(
        "bare.toml", hosts__ct129={"ssh": ""}, baseline={"file": "/here.json", "host": ""}, evaluation={"host": "ct129"}
    )
    shown = world.json("--config", path, "config", "show")
    assert shown["config"]["hosts"]["ct129"]["ssh"] == "ct129"
    assert shown["config"]["baseline"][0]["host"] == "local"


def test_show_keeps_secrets_of_an_environment(world: Desk) -> None:
    path = world.root / "secret.toml"
    path.write_text(f'{world.config_text()}\n[harness]\ncommand = ["x"]\nenvironment = {{ HF_TOKEN = "hf_geheim" }}\n')
    for ran in (world.run("--config", path, "config", "show"), world.run("--config", path, "config", "show", "--json")):
        assert ran.code == 0
        assert "hf_geheim" not in ran.out + ran.err
        assert "HF_TOKEN" in ran.out


def test_show_of_a_broken_config_is_its_sentence(world: Desk) -> None:
    sentence = world.run("--config", world.other_config("b.toml", training={"log": "x"}), "config", "show").failed(2)
    assert "training.log: found 'x', expected an absolute path" in sentence


def test_schema_is_one_that_validates_the_config(world: Desk) -> None:
    ran = world.run("config", "schema")
    assert (ran.code, ran.err) == (0, "")
    schema = json.loads(ran.out)
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(tomllib.loads(world.config.read_text()))
