"""Frames of progress bars (tqdm, and the notebook form of it) inside a record, which may hold other text as well."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from dflash_tui.watch.numbers import counted, duration, number
from dflash_tui.watch.parsers.keys import collect
from dflash_tui.watch.reading import Reading

_FRAME = re.compile(
    r"(?P<percent>\d{1,3})%\|[^|\[\]]{0,512}\|\s{0,64}(?P<count>[\d.,]{1,20}[KMGTk]?)/(?P<total>[\d.,]{1,20}[KMGTk]?)"
    r" ?\[(?P<inside>[^\]]{0,2048})\]"
)
_ENDLESS = re.compile(r"(?<!\S)(?P<count>\d{1,15})(?:it|step|steps|batch) \[(?P<inside>[^\]]{0,2048})\]")
_NOTEBOOK = re.compile(
    r"\[\s{0,20}(?P<count>\d{1,15})/(?P<total>\d{1,15})\s+(?P<elapsed>[\d:]{4,20}) < (?P<eta>[\d:?]{1,20})"
    r"(?P<inside>[^\]]{0,512})\]"
)
_RATE = re.compile(r"\s*(?P<value>[\d.]{1,20}|\?)\s?(?P<unit>[\w ]{0,24}/s|s/[\w ]{1,24})\s*")
_STEP_UNITS = frozenset(("it", "step", "steps", "batch", "batches", "iter"))
_EPOCH = re.compile(r"\bepoch[ :#]{1,3}(\d{1,9})\b", re.IGNORECASE)
_DESCRIPTION = re.compile(r"[^={}\[\]]{0,160}\Z")


def split(text: str) -> Iterator[str | Reading]:
    """The record in its order: a Reading for each whole frame, the text around frames as it stands."""
    end = 0
    for kind, match in _frames(text):
        before = text[end : match.start()]
        described = _DESCRIPTION.search(before)
        description = described[0] if described is not None and (not end or not before.strip()) else ""
        if left := before[: len(before) - len(description)]:
            yield left
        yield _reading(kind, match, description.strip().rstrip(":").strip())
        end = match.end()
    if end < len(text):
        yield text[end:]


def _frames(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    if "%|" in text:
        for match in _FRAME.finditer(text):
            yield "frame", match
    elif " < " in text:
        for match in _NOTEBOOK.finditer(text):
            yield "notebook", match
    elif " [" in text:
        for match in _ENDLESS.finditer(text):
            yield "endless", match


def _reading(kind: str, match: re.Match[str], description: str) -> Reading:
    parts = match.groupdict()
    timing, _, postfix = parts["inside"].partition(", ")
    rate_text, _, postfix = postfix.partition(", ")
    if kind == "notebook":
        timing = f"{parts['elapsed']}<{parts['eta']}"
        rate_text, _, postfix = parts["inside"].lstrip(", ").partition(", ")
    elapsed, _, eta = timing.partition("<")
    pairs = [item.partition("=") for item in postfix.split(", ")] if postfix else []
    extra = collect((key, value) for key, equals, value in pairs if equals) or Reading()
    if kind == "notebook" and (epoch := re.search(r"Epoch ([\d.]{1,12})/(\d{1,9})", parts["inside"])):
        extra = replace(extra, epoch=number(epoch[1]), epochs=number(epoch[2]))
    if extra.epoch is None and (epoch := _EPOCH.search(description)):
        extra = replace(extra, epoch=number(epoch[1]))
    rate = _RATE.fullmatch(rate_text)
    counts_steps = rate is None or _counts_steps(rate["unit"])
    frame = replace(
        extra,
        bar=True,
        description=description[-160:],
        step=counted(number(parts["count"])) if counts_steps else None,
        total=counted(number(parts.get("total") or "")) if counts_steps else None,
        elapsed_seconds=duration(elapsed),
        eta_seconds=duration(eta),
    )
    speed = number(rate["value"]) if rate is not None and counts_steps else None
    if rate is None or speed is None or not math.isfinite(speed) or speed <= 0:
        return frame
    if rate["unit"].startswith("s/"):
        return replace(frame, step_seconds=frame.step_seconds or speed)
    return replace(frame, steps_per_second=speed)


def _counts_steps(unit: str) -> bool:
    word = unit[2:] if unit.startswith("s/") else unit[:-2]
    return word.strip() in _STEP_UNITS
