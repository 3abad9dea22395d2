"""The floor under every dialect: ``key=value``, ``key: value`` and ``key value``, in any mixture."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dflash_tui.watch.parsers.keys import collect, known, normal
from dflash_tui.watch.reading import Reading

_DIGITS = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_CLOCK = r"(?:\d{1,6} days?, ?)?(?:\d{1,6}:)?\d{1,6}:\d\d(?:\.\d+)?"
_SPAN = (
    r"(?:\d+(?:\.\d+)?\s?(?:days?|d|hours?|hrs?|h|minutes?|mins?|m)\s?){1,4}"
    r"(?:\d+(?:\.\d+)?\s?(?:seconds?|secs?|s))?(?![\w/])"
)
_SPEED_UNIT = (
    r"(?:tok(?:en)?s?/s(?:ec(?:ond)?)?|samples?/s(?:ec)?|it/s|steps?/s(?:ec)?|s(?:ec)?/step|s(?:ec)?/it)"
    r"(?:/gpu|/device)?"
)
_ODD = r"(?:nan(?:\((?:ind|snan)\))?|inf(?:inity)?|n/a|none|null)"
_UNIT = rf"(?:[KMGTBk]?{_SPEED_UNIT}|[KMGT]i?B|ms|us|min|s|%|[KMGTB])"
_VALUE = re.compile(
    rf"(?<![\w.#/\\-])(?:"
    rf"(?P<time>{_CLOCK})(?![\w:])"
    rf"|(?P<span>{_SPAN})"
    rf"|(?P<number>{_DIGITS})(?:\s?/\s{{0,12}}(?P<of>\d(?:[\d,_.]{{0,24}}\d)?(?![\w/])))?"
    rf"(?P<unit>{_UNIT}(?![\w])|\s[KMGTBk]?{_SPEED_UNIT}(?![\w/]|\s*[=:]?\s*(?:[-+.\d]|{_ODD}))|\s(?:ms|min)(?!\w))?"
    rf"(?![\w]|\.\d)"
    rf"|(?P<odd>[-+]?{_ODD})(?![\w/])"
    rf"|(?P<tensor>tensor\([^()]{{0,120}}\))"
    rf")",
    re.IGNORECASE,
)
_CUT = re.compile(r"[|,;·•│┃\t(\[{]|:(?=[A-Za-z_])| - |\s{2,}|>>|\]\s|\)\s|: (?=\S)")
_SPEED = re.compile(rf"\s?(?P<scale>[KMGTBk]?)(?P<unit>{_SPEED_UNIT})", re.IGNORECASE)
_SAID_BEFORE = frozenset(
    ("info", "debug", "completed", "done", "train", "training", "trainer", "at", "current", "finished", "global",
     "optimizer", "rank", "step", "epoch")
)  # fmt: skip
_OTHER_BLOCKS = re.compile(r"kv|cache|page|cuda|triton|vllm|kernel|attention", re.IGNORECASE)


def read(text: str) -> Reading | None:
    """A reading of every number that has a key, None when no number has one that means something to a training."""
    if "Watchdog caught" in text or "ProcessGroupNCCL" in text or text.lstrip().startswith("wandb:"):
        return None  # a watchdog's sequence numbers are no steps, a closing summary's values are no news
    items = list(_items(text))
    if not any(known(normal(key)) for key, _ in items):
        return None
    reading = collect(items)
    if reading is not None and reading.block_size is not None and reading.step is None and _OTHER_BLOCKS.search(text):
        return None  # a server's cache or a kernel has block sizes too
    return reading


def _items(text: str) -> Iterator[tuple[str, str]]:
    end = 0
    for match in _VALUE.finditer(text):
        key, explicit = _key(text[end : match.start()])
        end = match.end()
        if match["number"] and match["unit"] and (speed := _SPEED.fullmatch(match["unit"])):
            # A glued unit says what the number is, whatever stands before it.
            yield speed["unit"], match["number"] + speed["scale"]
            continue
        value = f"{match['number']}/{match['of']}" if match["of"] else match[0]
        name = key if explicit and known(normal(key)) else _implied(key) or (key if explicit else "")
        if name:
            yield name, value


def _key(before: str) -> tuple[str, bool]:
    """The text between the last value and this one, cut to what can be the key; whether ``=`` or ``:`` follows it."""
    stripped = before.rstrip()
    explicit = stripped.endswith(("=", ":"))
    stripped = stripped.rstrip("=: [")
    if stripped.endswith(")") and "(" in stripped:
        begin = stripped.rindex("(")
        return _tail(stripped[:begin]) + stripped[begin:], explicit
    return _tail(stripped), explicit


def _tail(text: str) -> str:
    text = text[-160:]
    cuts = [match.end() for match in _CUT.finditer(text)]
    return text[cuts[-1] :].strip() if cuts else text.strip()


def _implied(key: str) -> str:
    """A key without ``=`` or ``:`` counts only if it is a known one, maybe after words that change nothing."""
    words = key.split()
    for length in (3, 2, 1):
        if len(words) >= length and known(normal(" ".join(words[-length:]))):
            rest = words[:-length]
            if all(word.lower().strip("[]:") in _SAID_BEFORE or "]" in word or ".py" in word for word in rest):
                return " ".join(words[-length:])
            return ""
    return ""
