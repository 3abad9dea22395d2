"""What may go wrong below, as one tuple for those who turn it into a sentence on a screen."""

from __future__ import annotations

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.config import ConfigError
from dflash_tui.evals.errors import EvaluationError
from dflash_tui.hosts.base import HostError
from dflash_tui.records.codec import RecordError
from dflash_tui.results.errors import ResultError
from dflash_tui.transfer.errors import TransferError


class ConsoleError(Exception):
    """Something asked of the console can't be done; the sentence says why and what to do."""


class BadArgument(ConsoleError):
    """What was asked for can't be meant: wrong usage, whatever the hosts hold."""


class AlreadyMoving(ConsoleError):
    """What is asked for is done already by another job of this console."""


TROUBLE = (
    CheckpointError,
    ConfigError,
    ConsoleError,
    EvaluationError,
    HostError,
    OSError,
    RecordError,
    ResultError,
    TransferError,
)
