"""Making the app quickly: nothing of Textual is imported before this is called."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dflash_tui.tui.app import DflashApp


def make_app(**options: Any) -> DflashApp:
    """A `DflashApp` with these options, the garbage collector resting until its first paint wakes it.

    Imports and the first layout make many objects and no garbage: without the rest, a twentieth of the start's CPU time
    goes into looking for some.
    """
    gc.disable()
    from dflash_tui.tui.app import DflashApp

    return DflashApp(**options)
