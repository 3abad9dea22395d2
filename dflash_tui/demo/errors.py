"""What can go wrong while the demo's world is put up."""

from __future__ import annotations


class DemoError(Exception):
    """The demo can't start or go on; the message is one sentence with what to do about it."""
