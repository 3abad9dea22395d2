"""Fixtures of the host tests."""

from __future__ import annotations

from tests.sshd import sshd

__all__ = ["sshd"]
