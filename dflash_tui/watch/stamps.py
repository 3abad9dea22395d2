"""The time that a log line carries, in the notations trainings use."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo

_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_ZONES = {"UTC": 0, "GMT": 0, "CET": 60, "CEST": 120}  # names that mean one thing everywhere; others stay naive

_ISO = re.compile(
    r"(?<![\d/])(?P<y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)[T_ ]+(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?"
    r"(?:(?P<z>Z|\s?[+-]\d\d:?\d\d)(?![\d:]))?"
)
_US = re.compile(
    r"(?<!\d)(?P<m>\d\d)/(?P<d>\d\d)/(?P<y>\d{4}),? (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?"
)
_COMPACT = re.compile(r"(?<!\d)(?P<y>20\d\d)(?P<m>\d\d)(?P<d>\d\d)[-_T](?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d)(?!\d)")
_DATE_COMMAND = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<b>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)"
    r"(?: (?P<n>[A-Z]{2,5}))? (?P<y>\d{4})"
)
_RFC1123 = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<d>\d{1,2}) (?P<b>[A-Z][a-z]{2}) (?P<y>\d{4}) "
    r"(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?: (?P<n>[A-Z]{2,5})| ?(?P<z>[+-]\d{4}))?"
)
_UNIX = re.compile(r"\[?(?P<u>\d{10}(?:\.\d{1,9})?)\]?[\s:]")
_NOTATIONS = (_ISO, _US, _COMPACT, _DATE_COMMAND, _RFC1123)


def take_stamp(text: str) -> tuple[datetime | None, str]:
    """The first time stamp, and the text with it (and any further one) blanked: its digits are no values."""
    if unix := _UNIX.match(text):
        seconds = float(unix["u"])
        if 1_000_000_000 <= seconds < 4_200_000_000:
            return datetime.fromtimestamp(seconds, UTC), " " + text[unix.end() :]
    found: datetime | None = None
    first = len(text)
    for notation in _NOTATIONS:
        for match in notation.finditer(text):
            stamp = _stamp(match)
            if stamp is not None and match.start() < first:
                found, first = stamp, match.start()
        if first < len(text):
            text = notation.sub(lambda match: " | " if _stamp(match) else match[0], text)
            break
    return found, text


def _stamp(match: re.Match[str]) -> datetime | None:
    parts = match.groupdict()
    month = _MONTHS.get(parts["b"], 0) if parts.get("b") else int(parts["m"])
    fraction = int(((parts.get("f") or "") + "000000")[:6])
    try:
        return datetime(
            int(parts["y"]), month, int(parts["d"]), int(parts["H"]), int(parts["M"]), int(parts["S"]), fraction,
            tzinfo=_zone(parts.get("z"), parts.get("n")),
        )  # fmt: skip
    except ValueError:
        return None


def _zone(offset: str | None, name: str | None) -> tzinfo | None:
    if name is not None:
        return timezone(timedelta(minutes=_ZONES[name])) if name in _ZONES else None
    if offset is None:
        return None
    if offset == "Z":
        return UTC
    digits = offset.strip().replace(":", "")
    minutes = int(digits[1:3]) * 60 + int(digits[3:5])
    return timezone(timedelta(minutes=-minutes if digits[0] == "-" else minutes))
