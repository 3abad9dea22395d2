"""LINK_FALLBACK_COPY: the run directory's checkpoint is no hard link of the fetched one."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence

_HOW = {
    "copy": "copied",
    "reflink": "reflinked: no bytes until either side changes",
    "symlink": "linked symbolically: it breaks when the fetched file goes",
}


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Values (method,)."""
    link = evidence.fact(evaluation, "link.method")
    if link is None or link.value not in _HOW:
        return ()
    file = evidence.value(evaluation, "checkpoint.file")
    size = evidence.whole(file.get("size")) if isinstance(file, dict) else None
    cost = f" ({size:,} bytes)" if size is not None and link.value == "copy" else ""
    sentence = f"No hard link was possible in the run directory, so the checkpoint was {_HOW[link.value]}{cost}."
    return (Finding("LINK_FALLBACK_COPY", "note", sentence, (link.value,), (link.source,)),)
