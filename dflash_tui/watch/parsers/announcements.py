"""Sentences about what happened: a checkpoint was saved, the training was resumed, ended, or died."""

from __future__ import annotations

import re

from dflash_tui.watch.reading import Announcement

_PATH = r"[`'\"]?(?P<path>[^\s`'\",;]{1,400})"
_SAVED = re.compile(
    rf"\b(?:saved|wrote|written)\b(?: (?:the|a|new|model|training|full|state|drafter|draft)){{0,3}}"
    rf" ?(?:checkpoint|ckpt|model|weights)?(?: state)?"
    rf"(?:\s*:\s*|\s+(?:to|at|in|as|into)\s+|\s+(?=[`'\"]?[/.~\w-]{{1,400}}/)){_PATH}",
    re.IGNORECASE,
)
_SAVING = re.compile(
    rf"\bsaving\b(?: (?:the|a|new|model|training|full)){{0,3}} ?(?:checkpoint|ckpt|model)"
    rf"(?:\s*:\s*|\s+(?:to|at|in|as)\s+){_PATH}",
    re.IGNORECASE,
)
_RESUMED = re.compile(
    rf"\b(?:auto-?)?resum(?:ed|ing)\b(?: \w+){{0,2}} from(?: (?:the |a )?(?:checkpoint|ckpt))?[:\s]+{_PATH}"
    rf"|\b(?:loaded from|loading|restored from) checkpoint[:\s]+(?:from )?"
    rf"[`'\"]?(?P<loaded>[^\s`'\",;]{{1,400}}/[^\s`'\",;]{{1,400}})",
    re.IGNORECASE,
)
_STARTED = re.compile(r"\*{3,} ?running training ?\*{3,}|\bstarting training\b|\bstarting trainer\b", re.IGNORECASE)
_FINISHED = re.compile(
    r"\btraining (?:is )?(?:complete|completed|finished|done|ended)\b|\bfinished training\b|\btraining run finished\b"
    r"|\*{3,} ?train metrics ?\*{3,}",
    re.IGNORECASE,
)
_EVALUATING = re.compile(
    r"\*{3,} ?running evaluation ?\*{3,}|^\s*(?:running|starting) (?:evaluation|validation)\b", re.IGNORECASE
)
_ERRORS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"CUDA out of memory|OutOfMemoryError"), "a GPU ran out of memory"),
    (re.compile(r"No space left on device|\bErrno 28\b"), "the disk is full"),
    (re.compile(r"Disk quota exceeded|\bErrno 122\b"), "the disk quota is used up"),
    (re.compile(r"Watchdog caught collective operation timeout"), "a collective operation timed out"),
    (re.compile(r"^\s*Killed\s*$|\bSIGKILL\b"), "the trainer was killed"),
    (re.compile(r"got signal: (?:1|15)\b|\bSIGHUP\b|\bSIGTERM\b"), "the trainer was ended by a signal"),
    (
        re.compile(r"^\s*(?:[a-z_]\w{0,60}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Interrupt)\b(?::|\s*$)"),
        "the trainer died",
    ),
)
_STEP = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt)[-_ ]?0*(\d{1,12})(?!\d)", re.IGNORECASE)


def read(text: str) -> Announcement | None:
    """The announcement that a line makes, None for an ordinary one."""
    for pattern, meaning in _ERRORS:
        if pattern.search(text):
            return Announcement("error", f"{meaning}: {text.strip()[:300]}")
    if found := _RESUMED.search(text):
        return _about("resumed", text, found["path"] or found["loaded"])
    if found := _SAVED.search(text):
        return _about("saved", text, found["path"])
    if found := _SAVING.search(text):
        return _about("saving", text, found["path"])
    if _FINISHED.search(text):
        return Announcement("finished", text.strip()[:300])
    if _STARTED.search(text):
        return Announcement("started", text.strip()[:300])
    if _EVALUATING.search(text):
        return Announcement("evaluating", text.strip()[:300])
    return None


def _about(kind: str, text: str, path: str) -> Announcement:
    path = path.rstrip(".)")
    steps = _STEP.findall(path) or _STEP.findall(text)
    step = int(steps[-1]) if steps else None
    sentence = text.strip()[:300]
    if kind == "resumed":
        return Announcement("resumed", sentence, path, step)
    return Announcement("saved" if kind == "saved" else "saving", sentence, path, step)
