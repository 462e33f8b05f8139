"""Escape untrusted text, such as names and messages of a server, in output for people and programs.

Control characters can drive a terminal, marks that change the direction of text can hide content, and Markdown can
contain links and mentions. The log of a CI job is read by its runner: GitHub's obeys `##[command]` anywhere in a line,
and `::command::` at its start, Azure's `##vso[command]`, and TeamCity's `##teamcity[command]`. All of them become
visible escapes; nothing is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_COMMAND = re.compile(r"##(?=\w*\[)")
"""Source: learn.microsoft.com, "Logging commands"; jetbrains.com, "TeamCity, Service Messages"."""
_BLANKS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Python takes for printable but that are not visible: fillers of Hangul and Braille, joiners,
selectors of variants. Source: Default_Ignorable_Code_Point in DerivedCoreProperties.txt, Unicode 17, and U+2800."""
_MARKS = re.compile(r"([\\`*_\[\]<|~&])")
_LINKS = re.compile(r"(?<=www)\.|:(?=//)", re.IGNORECASE)
_MENTIONS = re.compile(r"([@#!%])(?=\w)|(?<=\bGH)(-)(?=\d)", re.IGNORECASE)
"""What GitHub or GitLab would link: people, issues, merge requests, milestones."""
_DOLLAR = "<span>$</span>"
"""GitHub takes text between two of them for a formula, in which `%` and more hide text, even behind a backslash;
GitLab makes a link of one before a number. Source: docs.github.com, "Writing mathematical expressions"."""


def printable(text: str) -> str:
    """The text with control characters, line breaks, other invisible marks and commands as visible escapes."""
    if not is_visible(text):
        text = "".join(c if is_visible(c) else ascii(c)[1:-1] for c in text)
    return _without_mark(text, r"#\\x23")


def without_command(line: str) -> str:
    """A whole line of printable parts, changed so that the parts together are no command either."""
    line = _without_mark(line, r"#\\x23")
    return line.replace("::", "\\x3a:", 1) if line.lstrip().startswith("::") else line


def printable_lines(text: str) -> str:
    """As `printable`, for a text of several lines; line breaks stay."""
    return text if _is_plain(text) else "\n".join(map(printable, text.split("\n")))


def json_text(value: Any, indent: int | None = None, *, sort_keys: bool = False) -> str:
    """JSON without invisible characters and commands: those that JSON allows in strings are escaped as well."""
    text = json.dumps(value, indent=indent, sort_keys=sort_keys, ensure_ascii=False)
    return _without_mark(_escaped(text, _in_json), r"#\\u0023")


def yaml_text(text: str) -> str:
    """Escape invisible characters and commands in YAML, where all of them are in double-quoted strings."""
    return _without_mark(_escaped(text, _in_yaml), r"#\\x23")


def markdown_text(text: str) -> str:
    """Text for Markdown, with markup, links, mentions and formulas escaped."""
    plain = _MARKS.sub(r"\\\1", printable(text))
    return _MENTIONS.sub(r"\g<0><!-- -->", _LINKS.sub(r"\\\g<0>", plain)).replace("$", _DOLLAR)


def markdown_code(text: str) -> str:
    """Text as code in a line of Markdown."""
    return f"`{printable(text).replace('`', chr(39))}`"


def _without_mark(text: str, instead: str) -> str:
    """The text with another form of the mark that begins a command. Most texts have none."""
    return _COMMAND.sub(instead, text) if "##" in text else text


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    """The text with the invisible characters of its lines escaped. Most texts have none."""
    if _is_plain(text):
        return text
    return "\n".join(
        line if is_visible(line) else "".join(c if is_visible(c) else escape(c) for c in line)
        for line in text.split("\n")
    )


def _is_plain(text: str) -> bool:
    """Whether no line has anything to escape. Cost: a fifth of checking each line by itself."""
    return is_visible(text.replace("\n", ""))


def is_visible(text: str) -> bool:
    """Whether a text is visible as it is, in one line. Cost: for ASCII, that of `isprintable`."""
    return text.isprintable() and (text.isascii() or _BLANKS.search(text) is None)


def _in_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _in_yaml(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"
