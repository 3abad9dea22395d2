"""The hosts of a config: launchers that can't be used are refused with the key, before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dflash_tui.config import ConfigError, parse_config
from dflash_tui.console.links import check_launchers, make_hosts

CONFIG = """
[training]
host = "c"
log = "/log"
checkpoints = "/run/checkpoints"
[hosts.gpu1]
[hosts.c]
via = "gpu1"
container = {container}
attached = {attached}
"""


def text(*words: str, attached: bool = False) -> str:
    return CONFIG.format(container=list(words), attached=str(attached).lower())


def test_a_prefix_that_would_spoil_bytes_is_a_config_error_with_its_key() -> None:
    config = parse_config(text("docker", "exec", "-it", "trainer"), "c.toml")
    with pytest.raises(ConfigError, match=r"^c\.toml: hosts\.c\.container: .*take -t out of the prefix"):
        check_launchers(config)


def test_a_command_says_so_as_a_matter_of_usage(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text("srun", "--overlap"))
    command = [sys.executable, "-m", "dflash_tui", "--config", str(path), "--state", str(tmp_path), "status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"{path}: hosts.c.container: `srun --overlap`: without --jobid=N" in done.stderr


@pytest.mark.parametrize(
    ("words", "attached", "detaches"),
    [
        (("docker", "exec", "t"), False, True),
        (("docker", "exec", "t"), True, False),
        (("srun", "--jobid=7"), False, False),
    ],
)
def test_attached_makes_any_launcher_one_that_leaves_nothing_running(
    words: tuple[str, ...], attached: bool, detaches: bool
) -> None:
    config = parse_config(text(*words, attached=attached), "c.toml")
    check_launchers(config)
    host = make_hosts(config)["c"]
    assert (host.detaches, host.dear) == (detaches, True)
