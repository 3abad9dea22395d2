"""The names that `move` had here."""

from __future__ import annotations

from dflash_tui.transfer.move import Moved, TransferProgress, move

__all__ = ["Moved", "TransferProgress", "move"]
