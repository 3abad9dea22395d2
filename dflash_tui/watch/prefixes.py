"""What a transport puts around a log line (docker, syslog, Ray, torchrun), taken off before the line is read."""

from __future__ import annotations

import json
import re

_DOCKER = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) ")
_SYSLOG = re.compile(r"(?:<\d+>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,255} [^\s:]{1,128}(?:\[\d+\])?: ")
_RAY = re.compile(r"\([A-Za-z_][\w.:<>]{0,127} pid=\d+(?:, ip=[\w.:]+)?\) ?")
_RANK = re.compile(r"\[(?:rank|default)\d+\]: ?")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].{0,200}$")
_DRAWN_CR = re.compile(r"#015|\^M")


def bare(text: str) -> str:
    """The line as the program wrote it. A docker stamp stays in front (it is a time stamp like any other); a bar that a
    journal wrote with visible carriage returns becomes its last frame."""
    text = _unwrapped(text)
    stamp = ""
    if docker := _DOCKER.match(text):
        stamp, text = docker[0], text[docker.end() :]
    for prefix in (_SYSLOG, _RAY, _RANK):
        if found := prefix.match(text):
            text = text[found.end() :]
    text = _REPEATED.sub("", text)
    if "#015" in text or "^M" in text:
        frames = [frame for frame in _DRAWN_CR.split(text) if frame.strip()]
        text = frames[-1] if frames else ""
    return stamp + text


def _unwrapped(text: str) -> str:
    """The message inside a line of docker's json-file driver, its stamp in front; any other line unchanged."""
    if not (text.startswith('{"log":') and text.rstrip().endswith("}")):
        return text
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(record, dict) or not isinstance(record.get("log"), str):
        return text
    stamp = record.get("time")
    message = record["log"].rstrip("\r\n").split("\r")[-1]
    return f"{stamp} {message}" if isinstance(stamp, str) and _DOCKER.match(f"{stamp} ") else message
