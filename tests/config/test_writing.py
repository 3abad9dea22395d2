from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from dflash_tui.config import Config, ConfigError, EvaluationConfig, HostConfig, TrainingConfig, parse_config
from dflash_tui.config.keys import TABLES
from dflash_tui.config.writing import config_text
from tests.config.made import configs

SMALL = Config(
    path="config.toml",
    training=TrainingConfig("slammed5", "ct200", "/w/train.log", "/w/checkpoints"),
    evaluation=EvaluationConfig("local", "/e", "/m", "/e/prompts.jsonl", ("/e/hs",)),
    hosts={"pve1": HostConfig("pve1", ssh="root@pve1"), "ct200": HostConfig("ct200", via="pve1", container=("pct",))},
)


@given(configs())
def test_what_is_written_is_read_again(config: Config) -> None:
    assert parse_config(config_text(config), config.path) == config


def test_every_key_is_explained_once_whether_it_is_set_or_not() -> None:
    text = config_text(SMALL)
    for table in ("training", "evaluation", "hosts"):
        for key in TABLES[table].values():
            assert text.count(f"  # {key.means}\n") == 1, key.means
    for table in ("drafter", "baseline", "harness", "interface"):
        assert f"\n# [{table}]" in text or f"\n# [[{table}]]" in text


def test_the_file_says_its_version_and_a_single_folder_stands_alone() -> None:
    lines = config_text(SMALL).splitlines()
    assert "version = 1" in lines
    assert any(line.startswith('hidden_states = "/e/hs"') for line in lines)
    assert any(line.startswith("# threads = 0") for line in lines)


def test_a_name_that_is_no_utf_8_is_refused_in_a_sentence() -> None:
    odd = replace(SMALL, training=replace(SMALL.training, log="/w/\udcff.log"))
    with pytest.raises(ConfigError, match=r"^config\.toml: .*a name that is not UTF-8 can't stand in TOML"):
        config_text(odd)
