"""What can go wrong with a transfer. Nothing partial is under a final name after any of these."""

from __future__ import annotations


class TransferError(Exception):
    """A transfer could not be planned or done; the message is one sentence that names hosts and paths."""


class DestinationTaken(TransferError):
    """Something else already has the final name at the destination. It is left as it is."""


class NoSpace(TransferError):
    """The destination has too few bytes or inodes free."""


class SourceChanged(TransferError):
    """The source is not the file that was planned any more: it is being written, or was replaced. Plan again."""


class TransferCut(TransferError):
    """A connection broke or a stream ended early, and trying again did not help. Worth trying later."""


class TransferCorrupt(TransferError):
    """The hashes at the two ends differ. What arrived was thrown away."""
