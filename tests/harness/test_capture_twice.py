"""Two captures of the same prompts at once, as after one that was left and asked for again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.harness.test_target import capture_request, captured, save_target


def test_captures_at_once_all_finish_and_overwrite_nothing(tmp_path: Path) -> None:
    save_target(tmp_path / "target")
    request = capture_request(tmp_path)
    names = ("one", "two", "three")
    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(lambda name: captured(tmp_path, request, name), names))
    assert [(record.state, record.error) for record in ended] == [("finished", None)] * 3
    assert sorted(file.name for file in (tmp_path / "states").iterdir()) == [f"p{i}.safetensors" for i in range(3)]
    logs = "".join((tmp_path / name / "log.txt").read_text() for name in names)
    assert [logs.count(f"p{i}.safetensors\n") for i in range(3)] == [1, 1, 1]
