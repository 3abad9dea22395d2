"""Theme files: found wherever the package lies, refused with the place of the fault, readable by everybody."""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_tui.tui.theme import COLOURS, PLAIN, ThemeError, find_theme, load_themes, read_theme, shipped_folder
from tests.tui import story
from tests.tui.recording import RecordingConsole

OURS = ("chalk", "ember", "harbour", "parchment")
# Machado, Oliveira & Fernandes 2009, severity 1.0, on linear RGB
DEFICIENCIES = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour: str) -> tuple[float, float, float]:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return red, green, blue


def contrast(one: str, other: str) -> float:
    """WCAG 2.2 contrast ratio."""
    light, dark = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(linear, (one, other))), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def oklab(colour: str, seen: str) -> tuple[float, float, float]:
    rgb = linear(colour)
    r, g, b = (min(1.0, max(0.0, sum(m * c for m, c in zip(row, rgb, strict=True)))) for row in DEFICIENCIES[seen])
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def distance(one: str, other: str, seen: str) -> float:
    return math.dist(oklab(one, seen), oklab(other, seen))


def test_two_dark_and_two_light_themes_are_shipped() -> None:
    themes, complaints = load_themes([shipped_folder()])
    assert complaints == []
    assert tuple(themes) == OURS
    assert sorted(theme.dark for theme in themes.values()) == [False, False, True, True]


@pytest.mark.parametrize("name", OURS)
def test_text_of_every_role_can_be_read_on_both_grounds(name: str) -> None:
    colours = read_theme(shipped_folder() / f"{name}.toml").colours
    for role in (
        "foreground",
        "muted",
        "accent",
        "better",
        "worse",
        "void",
        "block",
        "warn",
        "note",
        "bad",
        "curve",
        "mark",
    ):
        for ground in ("background", "raised"):
            assert contrast(colours[role], colours[ground]) >= 4.5, (role, ground)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("seen", DEFICIENCIES)
def test_better_and_worse_and_severities_stay_apart_for_every_eye(name: str, seen: str) -> None:
    colours = read_theme(shipped_folder() / f"{name}.toml").colours
    assert distance(colours["better"], colours["worse"], seen) >= 0.08
    for one, other in itertools.combinations(("block", "warn", "note"), 2):
        assert distance(colours[one], colours[other], seen) >= 0.08, (one, other)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("warn = ", "wran = "), "colours.wran: unknown key; did you mean 'warn'?"),
        (('note = "#', 'note = "blue#'), "colours.note: found 'blue#"),
        (("dark = true", 'dark = "yes"'), "dark: found 'yes', expected true or false"),
        (('name = "harbour"', "name = 3"), "name: found 3, expected text"),
        (('name = "harbour"', 'name = "plain"'), "expected small letters, digits and hyphens, and not 'plain'"),
        (("[colours]", "[colours"), "not TOML"),
        (("mark = ", "# mark = "), "colours.mark is missing"),
    ],
)
def test_a_broken_theme_file_is_one_sentence_with_file_and_key(
    change: tuple[str, str], sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((shipped_folder() / "harbour.toml").read_text().replace(*change, 1))
    with pytest.raises(ThemeError) as error:
        read_theme(path)
    assert str(error.value).startswith(f"{path}: ")
    assert sentence in str(error.value)


def test_a_users_theme_is_found_beside_ours_and_wins_over_one_of_the_same_name(tmp_path: Path) -> None:
    text = (shipped_folder() / "ember.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace('name = "ember"', 'name = "night-shift"'))
    (tmp_path / "ember.toml").write_text(text.replace("#17130F", "#000000"))
    folders = (shipped_folder(), tmp_path)
    assert set(load_themes(folders)[0]) == {*OURS, "night-shift"}
    assert find_theme("night-shift", folders) == load_themes(folders)[0]["night-shift"]
    found = find_theme("ember", folders)
    assert found is not None
    assert found.colours["background"] == "#000000"


def test_a_broken_file_of_the_user_does_not_hide_the_other_themes(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("name = ")
    themes, complaints = load_themes((shipped_folder(), tmp_path))
    assert tuple(themes) == OURS
    assert len(complaints) == 1
    assert "broken.toml: not TOML" in complaints[0]


async def test_an_unknown_theme_name_is_said_and_the_default_used(tmp_path: Path) -> None:
    from dflash_tui.tui.app import DflashApp

    app = DflashApp(RecordingConsole(story.EMPTY), theme="habour")
    async with app.run_test() as pilot:
        await pilot.pause()
        assert app.theme == "harbour"
        assert any("found 'habour'" in note.message for note in app._notifications)


@pytest.mark.parametrize("name", [*OURS, PLAIN])
async def test_every_theme_paints_every_screen(name: str) -> None:
    from dflash_tui.tui.app import DflashApp

    app = DflashApp(RecordingConsole(story.running()), theme=name)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        for keys in (("5",), ("1",), ("question_mark", "escape"), ("q", "escape"), ("ctrl+p", "escape")):
            await pilot.press(*keys)
        await pilot.pause()
        assert app.theme == name


def test_themes_are_found_in_a_wheels_layout_too(tmp_path: Path) -> None:
    package = tmp_path / "dflash_tui"
    (package / "tui").mkdir(parents=True)
    for part in ("__init__.py", "tui/__init__.py", "tui/theme.py"):
        shutil.copy(Path(shipped_folder().parent, "dflash_tui", part), package / part)
    shutil.copytree(shipped_folder(), package / "themes")
    code = "from dflash_tui.tui.theme import shipped_folder, load_themes; print(*load_themes([shipped_folder()])[0])"
    printed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert tuple(printed.stdout.split()) == OURS


def test_a_theme_gives_a_colour_to_every_role_that_panels_use() -> None:
    from dflash_tui.tui.widgets.paint import STYLES

    used = {word.removeprefix("$role-") for style in STYLES.values() for word in style.split() if word.startswith("$")}
    assert used <= set(COLOURS)
