"""What this room raises: one sentence each, fit for `exit.json`."""

from __future__ import annotations


class HarnessError(Exception):
    """Work that cannot go on; the message is one sentence that names the file, what was found and what to do."""


class Refused(HarnessError):
    """A checkpoint, target or drafter that this harness does not evaluate; nothing was measured."""


class WrongModel(HarnessError):
    """The weights on disk are not those that the manifest asks for."""


class PromptRefused(HarnessError):
    """One prompt (or its hidden states) cannot be used; the others can."""


class ForeignFeatures(PromptRefused):
    """Hidden states that are sound and of something else: another target, other layers, another text."""


class FeaturesThere(HarnessError):
    """Hidden states have that name already; they are never overwritten."""


class TorchMissing(HarnessError):
    """This Python has no torch."""


class EndedAtLogout(HarnessError):
    """This host ends what a login session started; nothing was begun."""


class Stopped(BaseException):
    """A signal that ends a run arrived. Not an `Exception`: nothing that handles a failed prompt may swallow it."""
