"""YAML as a stream of events, each with the place where it begins and ends. Only this module knows the YAML library.

The parser is libyaml's if PyYAML was built with it, else PyYAML's own: some ten times slower, with the same events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

try:
    from yaml._yaml import CParser as FastParser
except ImportError:  # PyYAML without libyaml
    FastParser = yaml.SafeLoader  # type: ignore[misc, assignment]

__all__ = [
    "UNCLOSED",
    "AliasEvent",
    "DocumentEndEvent",
    "DocumentStartEvent",
    "Event",
    "FastParser",
    "MappingEndEvent",
    "MappingStartEvent",
    "NotYaml",
    "Parser",
    "PlainParser",
    "ScalarEvent",
    "SequenceEndEvent",
    "SequenceStartEvent",
    "events",
    "plain_load",
]

Parser: TypeAlias = Any
"""A class whose instances are made from a text and have `get_event`."""

PlainParser: Parser = yaml.SafeLoader
_FASTEST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NotYaml(ValueError):
    """The text is not YAML from some place on. `line` and `column`: the place of the mistake; `stopped`: the line that
    the parser got to. All count from 0 in the parsed text."""

    def __init__(self, problem: str, line: int, column: int, stopped: int, fix: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix
        self.line = line
        self.column = column
        self.stopped = stopped


def events(text: str, parser: Parser = FastParser) -> Iterator[Event]:
    """The events of a text in order. Raises NotYaml where it stops being YAML, after the events before that place.

    Cost: linear in the text; nothing is kept.
    """
    try:
        next_event = parser(text).get_event
        while (event := next_event()) is not None:
            yield event
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error) from None
    except yaml.YAMLError as error:
        raise NotYaml(str(error), 0, 0, 0) from None


def _not_yaml(error: yaml.MarkedYAMLError) -> NotYaml:
    problem, context = str(error.problem), str(error.context)
    stopped = error.problem_mark or error.context_mark
    opened = error.context_mark or stopped
    if stopped is None or opened is None:
        return NotYaml(problem, 0, 0, 0)
    unclosed = "quoted scalar" in context and "unexpected" in problem
    unclosed = unclosed or ("flow" in context and stopped.line != opened.line)
    known = ((said, fix) for found, said, fix in _WORDS if found in problem)
    said, fix = UNCLOSED if unclosed else next(known, (problem, ""))
    mark = opened if unclosed or "simple key" in context else stopped
    return NotYaml(said, mark.line, mark.column, stopped.line, fix)


UNCLOSED = ("what is opened here is not closed", "close the quote or bracket")
"""A problem and its fix."""
_QUOTE = "put the value in quotes"
_INDENT = "indent it like the lines around it"
_WORDS = (
    (
        "mapping values are not allowed",
        'a ":" is not expected here',
        'put a value with ": " in it in quotes, or indent',
    ),
    ("did not find expected key", "this line is not indented like the keys around it", _INDENT),
    ("expected <block end>", "this line is not indented like the lines around it", _INDENT),
    ("expected '-' indicator", "this line is not indented like the entries of its list", _INDENT),
    ("could not find expected ':'", 'this line has no ":"', "write key: value"),
    ("sequence entries are not allowed", "a list entry is not expected here", "begin the list on a line of its own"),
    ("cannot start any token", "this character cannot begin a value without quotes", _QUOTE),
    (
        "unknown escape character",
        "there is no such escape in double quotes",
        "use single quotes, or double the backslash",
    ),
    ("expected ',' or", "a comma is missing here, or what is opened is not closed", ""),
    ("<document start>", "a second document needs a line of --- before it", "add the line ---"),
)
"""Parts of the library's messages, the problem in gpuctl's words, and its fix."""


def plain_load(content: bytes) -> list[Any]:
    """A file's content by PyYAML's own fastest loader. Only `bench compile` uses it, to compare."""
    return list(yaml.load_all(content, Loader=_FASTEST_LOADER))
