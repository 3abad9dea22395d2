"""Everything that can be wrong with a checkpoint, as one family. Each message is a sentence that names the file."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from dflash_tui.checkpoints.sentences import sentence

_UNFORESEEN = (RecursionError, MemoryError, ValueError, ArithmeticError, LookupError, TypeError, struct.error)

P = ParamSpec("P")
R = TypeVar("R")


class CheckpointError(Exception):
    """A checkpoint can't be used as asked; the message names the file, what was found and what to do.

    Names that come out of files are escaped in it, and it is never longer than a screen.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(sentence(message))


class CheckpointIncomplete(CheckpointError):
    """The file ends before its own directory says it should, or has no directory yet."""


class CheckpointDamaged(CheckpointError):
    """The bytes contradict each other: a record of the wrong size, a tensor that reaches past its storage."""


class CheckpointUnsupported(CheckpointError):
    """A format, an architecture or a setting that this version can't evaluate; the message names it."""


class SettingsMissing(CheckpointError):
    """Settings that raw weights can't tell are in no config. `fields` names them."""

    def __init__(self, message: str, fields: tuple[str, ...]) -> None:
        super().__init__(message)
        self.fields = fields


class SettingsConflict(CheckpointError):
    """Two sources contradict each other (a config and the weights, or two spellings in one config)."""


class TargetUnknown(CheckpointError):
    """A stored embedding or head can't be told from the target's, because the target's hash was not given."""


def guarded(reader: Callable[P, R]) -> Callable[P, R]:
    """A reader of a file (its first text argument) for which bytes that nobody foresaw are damage, not a crash.

    What is nested or large beyond what this process can hold, and numbers that it can't handle, are CheckpointDamaged.
    """

    @wraps(reader)
    def read(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return reader(*args, **kwargs)
        except _UNFORESEEN as error:
            file = next((item for item in (*args, *kwargs.values()) if isinstance(item, str)), "the checkpoint")
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise CheckpointDamaged(f"{file}: can't be read ({reason}); fetch the file again") from error

    return read
