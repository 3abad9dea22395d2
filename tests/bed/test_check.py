"""Trust and `check` on the whole bed: a jump on the way, another user, hosts that can't reach each other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.bed.bed import Bed


def _check(bed: Bed, code: int) -> dict[tuple[str, str], dict[str, Any]]:
    ran = bed.run("check", "--json")
    assert ran.code == code, ran
    return {(item["group"], item["name"]): item for item in json.loads(ran.out)["items"]}


def _failed(items: dict[tuple[str, str], dict[str, Any]]) -> list[tuple[str, str]]:
    return [place for place, item in items.items() if item["state"] == "fail"]


def _fingerprint(folder: Path) -> str:
    listed = subprocess.run(["ssh-keygen", "-lf", folder / "host_key.pub"], capture_output=True, text=True, check=True)
    return listed.stdout.split()[1]


def test_a_user_without_rights_a_jump_and_unknown_keys(bed: Bed) -> None:
    items = _check(bed, 0)
    assert items["hosts", "pve1"]["sentence"].startswith(f"root@pve1 by way of {bed.gate.listens}:22 in ")
    assert "eva@" in items["hosts", "ct129"]["sentence"]

    bed.evaluations.chmod(0o555)  # somebody else's folder
    items = _check(bed, 1)
    assert _failed(items) == [("evaluation", "root")]
    sentence = items["evaluation", "root"]["sentence"]
    assert f"ct129:{bed.evaluations} can't be written (Permission denied), expected a folder for runs" in sentence
    assert "let its owner give this user write permission" in sentence
    bed.evaluations.chmod(0o755)

    known = bed.home / ".ssh" / "known_hosts"
    before = known.read_text()
    known.write_text("".join(line for line in before.splitlines(True) if bed.gate.known not in line))
    items = _check(bed, 1)
    assert _failed(items) == [("hosts", "pve1 host key")]
    assert f"pve1 --fingerprint {_fingerprint(bed.gate.folder)}" in items["hosts", "pve1 host key"]["sentence"]
    assert items["training", "log"]["sentence"] == "not tried: pve1 can't be reached"
    added = bed.json("trust", "ct200", "--fingerprint", _fingerprint(bed.gate.folder))
    assert [key["host"] for key in added["added"]] == ["gate"]
    assert sorted(known.read_text().splitlines()) == sorted(before.splitlines())
    assert _failed(_check(bed, 0)) == []
