"""Everything that can be wrong with a checkpoint, as one family. Each message is a sentence that names the file."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint can't be used as asked; the message names the file, what was found and what to do."""


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
