"""What the exit codes mean: the same for every command."""

from __future__ import annotations

DONE, FAILED, USAGE, NOT_COMPARABLE, INTERRUPTED = 0, 1, 2, 3, 130
