from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given

from dflash_tui.config import Config
from dflash_tui.config.resolved import HIDDEN, resolve
from dflash_tui.config.writing import config_text
from tests.config.made import configs


def dotted(tables: dict[str, Any]) -> set[str]:
    """The dotted key of every value; a baseline's by its name."""
    found = set()
    for name, table in tables.items():
        inner = {item["name"]: item for item in table} if name == "baseline" else table
        if name in ("hosts", "baseline"):
            found |= {f"{name}.{which}.{key}" for which, item in inner.items() for key in item}
        else:
            found |= {f"{name}.{key}" for key in table}
    return found


@given(configs())
def test_every_value_is_the_file_s_own_or_marked_as_a_default(config: Config) -> None:
    written = tomllib.loads(config_text(config))
    del written["version"]
    resolved = resolve(config, written)
    assert dotted(resolved.tables) == dotted(written) | set(resolved.defaults)
    assert not dotted(written) & set(resolved.defaults)


@given(configs())
def test_what_is_needed_is_always_said_and_secrets_never(config: Config) -> None:
    tables = resolve(config, tomllib.loads(config_text(config))).tables
    for name, host in tables.get("hosts", {}).items():
        assert host.get("ssh", name) if not host.get("container") else "ssh" not in host
    for baseline in tables.get("baseline", []):
        assert baseline["host"]
    assert set(tables.get("harness", {}).get("environment", {}).values()) <= {HIDDEN}
