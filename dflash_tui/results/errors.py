"""What can go wrong with a result. Every message is one sentence that names the file and what to do."""

from __future__ import annotations


class ResultError(Exception):
    """The family: anything in this room that could not be done."""


class ResultDamaged(ResultError):
    """A result file is not what it should be; the sentence names file and line or key."""


class NothingMeasured(ResultError):
    """A run, or the part of it that was asked for, has no block yet."""


class NotRecognised(ResultError):
    """A file holds none of the result shapes that can be read; the sentence says which keys were found."""


class UnknownReference(ResultError):
    """A run id, pin name or path that names nothing, or more than one thing; the sentence lists what exists."""


class PinRefused(ResultError):
    """A pin can't be made: its name is taken by other content, or is no name, or the result is void."""


class PinDamaged(ResultError):
    """A pin's files no longer have the hash that they were pinned with."""


class NothingInCommon(ResultError):
    """Two results share no prompts, or no horizon that both can be cut to."""
