"""What is installed is whole: from a wheel, from a source archive, and from an editable checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
WEIGHTS_LIMIT = 4 << 20  # bytes of model weights shipped with the demo
THEMES = {path.name for path in (REPOSITORY / "themes").glob("*.toml")}
LOAD = (
    "from dflash_tui.tui.theme import load_themes, shipped_folder\n"
    "themes, complaints = load_themes((shipped_folder(),))\n"
    "assert not complaints, complaints\n"
    "from dflash_tui.evals.ship import harness_file\n"
    "print(*sorted(themes), harness_file().sha256)"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the unpacked wheel in `wheel` and the unpacked source archive in `sdist`."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    (archive,) = folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "wheel")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "sdist", filter="data")
    return folder


def loaded(place: Path, folder: Path) -> str:
    """Themes and harness identity as seen by an interpreter that finds the package in `place` only."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_themes_and_harness_are_the_same_from_wheel_archive_and_checkout(built: Path, tmp_path: Path) -> None:
    (source,) = (built / "sdist").iterdir()
    here = loaded(REPOSITORY, tmp_path)
    assert len(here.split()) == len(THEMES) + 1
    assert loaded(built / "wheel", tmp_path) == here
    assert loaded(source, tmp_path) == here


def test_the_wheel_holds_the_demo_s_data_and_no_tests(built: Path) -> None:
    names = {path.relative_to(built / "wheel").as_posix() for path in (built / "wheel").rglob("*")}
    assert "dflash_tui/demo/data/target/model.safetensors" in names
    assert "dflash_tui/demo/data/prompts.jsonl" in names
    assert {f"dflash_tui/themes/{name}" for name in THEMES} <= names
    assert not [name for name in names if name.startswith("tests")]


def test_the_shipped_weights_are_small() -> None:
    data = REPOSITORY / "dflash_tui" / "demo" / "data"
    weights = [path for path in data.rglob("model*.safetensors")]
    assert len(weights) >= 2
    assert sum(path.stat().st_size for path in weights) <= WEIGHTS_LIMIT


def test_torch_is_an_extra_and_pinned_to_the_tested_version() -> None:
    metadata = (REPOSITORY / "pyproject.toml").read_text()
    needed, extras = metadata.split("[project.optional-dependencies]")
    assert "torch" not in needed
    assert 'eval = ["torch==2.13.0"]' in extras
    assert "2.13.0" in (REPOSITORY / "README.md").read_text()
