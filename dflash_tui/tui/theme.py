"""Theme files: TOML with one colour a role. Ours lie in `themes/`, the user's in the config folder."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.theme import Theme

DEFAULT = "harbour"
PLAIN = "plain"

COLOURS = (
    "background", "raised", "foreground", "muted", "faint", "border", "focus", "accent",
    "better", "worse", "void", "block", "warn", "note", "bad", "bar", "track", "curve", "mark",
)  # fmt: skip
_COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


class ThemeError(Exception):
    """A theme file that can't be used; the sentence names the file, the key, what was found and what was expected."""


@dataclass(frozen=True)
class ThemeFile:
    """A theme as written: its name (what the config says), one line about it, dark or light, a colour for each role."""

    name: str
    about: str
    dark: bool
    colours: Mapping[str, str]


def shipped_folder() -> Path:
    """Where our themes lie: inside the package (wheel), else beside it (sdist, editable install)."""
    package = Path(__file__).parents[1]
    inside = package / "themes"
    return inside if inside.is_dir() else package.parent / "themes"


def load_themes(folders: Sequence[Path]) -> tuple[dict[str, ThemeFile], list[str]]:
    """Every usable theme of the folders by name, later folders winning, and a sentence for each file that is not."""
    themes: dict[str, ThemeFile] = {}
    complaints: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = read_theme(path)
            except ThemeError as error:
                complaints.append(str(error))
            else:
                themes[theme.name] = theme
    return themes, complaints


def find_theme(wanted: str, folders: Sequence[Path]) -> ThemeFile | None:
    """The theme of that name, else the default one, without reading every file: the one of its name is tried first.
    None when neither is there (or `wanted` is the plain one)."""
    if wanted == PLAIN:
        return None
    for name in (wanted, DEFAULT):
        for folder in reversed(folders):
            try:
                theme = read_theme(folder / f"{name}.toml")
            except ThemeError:
                continue
            if theme.name == name:
                return theme
        if (theme_of := load_themes(folders)[0].get(name)) is not None:
            return theme_of
    return None


def read_theme(path: Path) -> ThemeFile:
    """One theme file. Raises ThemeError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ThemeError(f"{path}: can't be read ({error})") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ThemeError(f"{path}: not TOML: {error}") from error
    _keys(path, "", data, ("name", "about", "dark", "colours"))
    name = _value(path, data, "name", str)
    if name == PLAIN or not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ThemeError(f"{path}: name: found {name!r}, expected small letters, digits and hyphens, and not {PLAIN!r}")
    colours = _value(path, data, "colours", dict)
    _keys(path, "colours.", colours, COLOURS)
    for key in COLOURS:
        if key not in colours:
            raise ThemeError(f"{path}: colours.{key} is missing; a theme gives a colour for each role")
        if not isinstance(colours[key], str) or not _COLOUR.fullmatch(colours[key]):
            raise ThemeError(f"{path}: colours.{key}: found {colours[key]!r}, expected a colour such as '#56B4E9'")
    about = _value(path, data, "about", str) if "about" in data else ""
    return ThemeFile(name, about, _value(path, data, "dark", bool), colours)


def _value(path: Path, data: Mapping[str, Any], key: str, kind: type) -> Any:
    words = {str: "text", bool: "true or false", dict: "a table"}
    if key not in data:
        raise ThemeError(f"{path}: {key} is missing; expected {words[kind]}")
    if not isinstance(data[key], kind):
        raise ThemeError(f"{path}: {key}: found {data[key]!r}, expected {words[kind]}")
    return data[key]


def _keys(path: Path, prefix: str, data: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise ThemeError(f"{path}: {prefix}{key}: unknown key; {hint}")


def textual_theme(theme: ThemeFile) -> Theme:
    """The theme as Textual takes it: its own colours by role, ours as variables `$role-…`."""
    c = theme.colours
    return Theme(
        name=theme.name,
        dark=theme.dark,
        primary=c["accent"],
        secondary=c["focus"],
        accent=c["accent"],
        warning=c["warn"],
        error=c["bad"],
        success=c["better"],
        foreground=c["foreground"],
        background=c["background"],
        surface=c["raised"],
        panel=c["raised"],
        variables={f"role-{role}": colour for role, colour in c.items()},
    )


def plain_theme() -> Theme:
    """For NO_COLOR: the terminal's own two colours; bold, underline, reverse and glyphs carry the meaning."""
    default = "ansi_default"
    own = dict.fromkeys(
        (
            "border", "border-blurred", "ansi-background", "ansi-foreground", "block-cursor-foreground",
            "block-cursor-background", "block-hover-background", "input-cursor-background", "input-cursor-foreground",
            "input-selection-background", "input-selection-foreground", "screen-selection-background",
            "screen-selection-foreground", "scrollbar", "scrollbar-hover", "scrollbar-active", "scrollbar-background",
            "scrollbar-corner-color", "scrollbar-background-hover", "scrollbar-background-active",
        ),
        default,
    )  # fmt: skip
    return Theme(
        name=PLAIN,
        ansi=True,
        primary=default,
        secondary=default,
        accent=default,
        warning=default,
        error=default,
        success=default,
        foreground=default,
        background=default,
        surface=default,
        panel=default,
        boost=default,
        variables={**own, "button-focus-text-style": "reverse", **{f"role-{role}": default for role in COLOURS}},
    )
