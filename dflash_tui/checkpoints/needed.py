"""Which files of a checkpoint an evaluation reads, told from names: its weights and what describes them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.names import is_temporary
from dflash_tui.checkpoints.opening import WEIGHT_SUFFIXES, is_dcp, is_weights_name, weight_file
from dflash_tui.checkpoints.slim_sidecar import is_sidecar

_INDEX = ".index.json"
_DESCRIPTION = re.compile(
    r"^(metadata|meta|meta_\d+|[^/]*(config|args|settings|hparams|hyperparameters)[^/]*)\.json$", re.I
)
_OF_TEXT = re.compile(r"^(tokenizer|generation|processor|preprocessor|special_tokens)", re.I)


def evaluation_files(names: Sequence[str]) -> tuple[str, ...]:
    """The files to bring to an evaluation: the weights first (an index or a DCP description before its parts), then
    small descriptions.

    Optimizer, scheduler, random and trainer state stay where they are when the weights have a file of their own;
    a state file that is the only one holds the weights itself. Where names don't tell which file has the weights (none,
    several, one of each rank), all names are given back, and opening them says what is wrong.
    """
    try:
        main = weight_file(names)
    except CheckpointError:
        return tuple(names)
    where = posixpath.dirname(main)
    descriptions = [name for name in names if posixpath.dirname(name) in ("", where) and _describes(name)]
    return tuple(dict.fromkeys([main, *_parts(main, where, names), *sorted(descriptions)]))


def _describes(name: str) -> bool:
    base = posixpath.basename(name)
    return bool(_DESCRIPTION.match(base)) and not _OF_TEXT.match(base) and not is_sidecar(base)


def _parts(main: str, where: str, names: Sequence[str]) -> list[str]:
    """The files beside `main` that it may name: its suffix tells the format, so that no other weights are taken."""
    beside = [name for name in names if posixpath.dirname(name) == where and not is_temporary(name)]
    if is_dcp(main):
        return sorted(name for name in beside if name.endswith(".distcp"))
    if not main.endswith(_INDEX):
        return []
    kind = main.removesuffix(_INDEX).lower()
    suffixes = tuple(suffix for suffix in WEIGHT_SUFFIXES if kind.endswith(suffix)) or WEIGHT_SUFFIXES
    return sorted(name for name in beside if name.lower().endswith(suffixes) and is_weights_name(name))
