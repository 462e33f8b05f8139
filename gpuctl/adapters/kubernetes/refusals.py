"""Shortens a refusal to what a person needs: the field, the value if it is short, and the reason.

The server puts the whole value into its sentence: a pod template as 2,000 characters of JSON (in older versions Go), or
the difference between two objects. For a rule about names it adds the regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuctl.diag.escapes import printable
from gpuctl.k8s.objects import items, text
from gpuctl.model.state import Body

_LONGEST = 800
_LONGEST_VALUE = 60
_MOST = 3
_VALUE = re.compile(r"(Invalid|Unsupported|Duplicate) value: ")
_EXPRESSION = re.compile(r", regex used for validation is '.*'(?=\)$)", re.DOTALL)
_PATCH = re.compile(r"^failed to create typed patch object \([^)]*\): ")
_GOT = re.compile(r", got &\{(?P<value>.*)\}$", re.DOTALL)
_CHANGED = re.compile(r"^[-+].*", re.MULTILINE)


def said(code: int, status: Body) -> str:
    """The refusal in one line: each mistake once, at most three of them; else the server's own words, cut at 800."""
    mistakes = list(dict.fromkeys(_mistakes(status))) if code == 422 else []
    more = [f"and {len(mistakes) - _MOST} more"] if len(mistakes) > _MOST else []
    told = "; ".join([*mistakes[:_MOST], *more]) or _of_the_body(text(status, "message")) or f"HTTP status {code}"
    told = printable(told)
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]}..."


def _mistakes(status: Body) -> Iterator[str]:
    for cause in items(status, "details", "causes"):
        field, why = text(cause, "field"), _reason(text(cause, "message"))
        if why:
            yield why if field in {"", "[]"} else f"{field}: {why}"


def _reason(message: str) -> str:
    """A sentence of the server without its superfluous parts."""
    sentence, _, difference = message.partition("\n@@")
    if difference:
        changed = ", ".join(f"{line[0]} {line[1:].strip(' ,')}" for line in _CHANGED.findall(difference))
        return f"{sentence} ({changed})"
    sentence = _EXPRESSION.sub("", message)
    found = _VALUE.match(sentence)
    if found is None:
        return sentence
    value, why = _parted(sentence[found.end() :])
    if len(value) > _LONGEST_VALUE:
        value = f"{value[:_LONGEST_VALUE]}..." if value.startswith('"') else ""
    return ": ".join(part for part in (value, why) if part) if why else f"{found[0]}{value}"


def _parted(told: str) -> tuple[str, str]:
    """Split `VALUE: reason` into both parts: the value is text in quotes, a number, or text between brackets."""
    depth, quoted, escaped = 0, False, False
    for place, mark in enumerate(told):
        if escaped or (quoted and mark == "\\"):
            escaped = not escaped
        elif mark == '"':
            quoted = not quoted
        elif not quoted and mark in "{[(":
            depth += 1
        elif not quoted and mark in "}])":
            depth -= 1
        elif not quoted and depth == 0 and told.startswith(": ", place):
            return told[:place], told[place + 2 :]
    return told, ""


def _of_the_body(message: str) -> str:
    """The server's message; if a body does not fit its kind, only the place in the body and a short value, as Go prints
    it."""
    if not _PATCH.search(message):
        return message
    place = _PATCH.sub("", message)
    found = _GOT.search(place)
    if found is None:
        return place
    short = f", got {found['value']}" if len(found["value"]) <= _LONGEST_VALUE else ""
    return f"{place[: found.start()]}{short}"
