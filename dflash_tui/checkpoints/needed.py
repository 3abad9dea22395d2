"""Which files of a checkpoint an evaluation reads, told from names: its weights and what describes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dflash_tui.checkpoints.dcp_metadata import METADATA
from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.names import is_temporary
from dflash_tui.checkpoints.opening import WEIGHT_SUFFIXES, is_dcp, is_weights_name, weight_file
from dflash_tui.checkpoints.slim_sidecar import is_sidecar

_INDEX = ".index.json"
_DESCRIPTION = re.compile(r"^(metadata|[^/]*(config|args|settings|hparams|hyperparameters)[^/]*)\.json$", re.I)
_OF_TEXT = re.compile(r"^(tokenizer|generation|processor|preprocessor|special_tokens)", re.I)


def evaluation_files(names: Sequence[str]) -> tuple[str, ...]:
    """The files to bring to an evaluation: the weights first (an index before its shards), then small descriptions.

    Optimizer, scheduler, random and trainer state stay where they are when the weights have a file of their own;
    a state file that is the only one holds the weights itself. Where names don't tell which file has the weights (none,
    several), all names are given back, and opening them says what is wrong.
    """
    try:
        main = weight_file(names)
    except CheckpointError:
        return tuple(names)
    descriptions = [
        name for name in names if _DESCRIPTION.match(name) and not _OF_TEXT.match(name) and not is_sidecar(name)
    ]
    return tuple(dict.fromkeys([main, *_shards(main, names), *sorted(descriptions)]))


def _shards(main: str, names: Sequence[str]) -> list[str]:
    """The files that an index may name: its suffix tells the format, so that no other weights beside it are taken. For
    a DCP folder its data files."""
    if is_dcp(main):
        folder = main.removesuffix(METADATA)
        return sorted(
            name for name in names if name.startswith(folder) and name.endswith(".distcp") and not is_temporary(name)
        )
    if not main.endswith(_INDEX):
        return []
    kind = main.removesuffix(_INDEX).lower()
    suffixes = tuple(suffix for suffix in WEIGHT_SUFFIXES if kind.endswith(suffix)) or WEIGHT_SUFFIXES
    return sorted(
        name
        for name in names
        if "/" not in name and name.lower().endswith(suffixes) and is_weights_name(name) and not is_temporary(name)
    )
