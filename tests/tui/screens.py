"""The README's pictures, made by the app from the story.

python -m tests.tui.screens
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from dflash_tui.tui.app import DflashApp
from tests.tui import story
from tests.tui.recording import RecordingConsole

FOLDER = Path(__file__).parents[1] / "screens"
SIZES = {"overview-120x40.svg": (120, 40), "overview-80x24.svg": (80, 24)}
FONTS = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'


class PicturedApp(DflashApp):
    """The app, its pictures without fonts from elsewhere: an SVG in an <img> may load none, and a test should not."""

    def export_screenshot(self, **options: Any) -> str:
        """As Textual's, with the reader's own monospace font."""
        picture = re.sub(r"@font-face\s*{[^}]*}\s*", "", super().export_screenshot(**options))
        picture = picture.replace("font-family: Fira Code, monospace;", f"font-family: {FONTS};")
        return picture.replace("font-variant-east-asian: full-width;", "")


async def picture(width: int, height: int) -> str:
    """The overview at that size as SVG. The same state gives the same bytes."""
    app = PicturedApp(RecordingConsole(story.finished()))
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause()
        await pilot.pause()
        return app.export_screenshot(title="dflash-tui")


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    for name, (width, height) in SIZES.items():
        (FOLDER / name).write_text(asyncio.run(picture(width, height)), encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
