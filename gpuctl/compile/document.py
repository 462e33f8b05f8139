"""A YAML document: plain data, and the place of every key and value in it.

Places are found in the text only when a diagnostic needs one. Most documents have no mistake, and the places of ten
thousand documents would cost more memory than everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from gpuctl.compile import syntax
from gpuctl.compile.text import NO_PARAMS, Params, SourceText, diagnose
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan

Step = str | int
Path = tuple[Step, ...]
"""Keys and positions from a document's root to a value."""


MAX_MISTAKES = 100
"""The most mistakes of one document that are reported."""
MOST_TOLD = 1000
"""The most errors, and the most warnings, that are reported of one project's files, and of the cluster's own. After
that, only one mistake of each further document is looked for: finding all takes 0.1 ms and 1 KiB each."""


class Unread:
    """Stands in a document's data for a value that could not be read; its mistake is already reported."""

    __slots__ = ()

    def __reduce__(self) -> str:
        """Copies are UNREAD itself: it is recognised by identity."""
        return "UNREAD"


UNREAD = Unread()
CHARACTERS_A_VALUE = 100
"""So many characters of a text count as one value."""


_CHILDLESS: Mapping[Step, Place] = MappingProxyType({})


@dataclass(slots=True)
class Place:
    """Where a value begins: line and columns from 0; `end_column` is None if the value ends on another line.

    Lines and columns count from the beginning of the document's text. `children`: by key or position.
    """

    line: int
    column: int
    end_column: int | None
    key: Place | None = None
    children: Mapping[Step, Place] = field(default_factory=lambda: _CHILDLESS)


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """One document of a file. `data` is made of dict, list, str, int, Decimal, bool, None and UNREAD.

    `start` and `end`: the offsets of its text, `start` at the beginning of a line. `name`: the place of
    `metadata.name`, or else of the document's beginning. `sound`: False if a part of it could not be read. `most`: how
    many of its mistakes are reported.
    """

    source: SourceText
    start: int
    end: int
    data: Any
    name: SourceSpan
    sound: bool = True
    most: int = MAX_MISTAKES

    def span(self, path: Path) -> SourceSpan:
        """The place of the value at a path, on its first line. If the value is empty or begins on a later line than its
        key, the key's place. If the path leads nowhere, the place of its last existing part.
        """
        place = _find(_places(self), path)
        key = place.key
        if key is not None and (place.line != key.line or place.end_column == place.column):
            place = key
        return self._span(place)

    def key_span(self, path: Path) -> SourceSpan:
        """The place of the key at a path; of an entry of a list, the place of the entry."""
        place = _find(_places(self), path)
        return self._span(place.key or place)

    def text_span(self, path: Path, value: str, start: int, end: int) -> SourceSpan:
        """The place of a part of the text `value` at a path, by its characters; only its first line, if it has several.

        The text may be quoted, folded or on lines of its own: its place is found by searching its characters in order.
        """
        place = _find(_places(self), path)
        first = self.source.position(self.start)[0]
        here = self.source.offset(first + place.line) + place.column
        places = list(_character_places(self.source.text, here, self.end, value[:end]))
        if start >= len(places):
            return self.span(path)
        line, column = self.source.position(places[start])
        last = max((at for at in places[start:] if self.source.position(at)[0] == line), default=places[start])
        return self.source.span(line, column, self.source.position(last)[1] + 1)

    def following(self, path: Path) -> int:
        """An offset between the end of a list's entry and the next thing after it: the next entry of the list or of an
        enclosing list, else the document's end."""
        here, after = _places(self), None
        for step in path:
            after = here.children.get(step + 1, after) if isinstance(step, int) else after
            here = here.children.get(step, here)
        if after is None:
            return self.end
        first = self.source.position(self.start)[0]
        return self.source.offset(first + after.line) + after.column

    def diagnostic(self, code: str, span: SourceSpan, params: Params = NO_PARAMS, fix: str = "") -> Diagnostic:
        """An error at a place of this document."""
        return diagnose(self.source, code, span, params, fix)

    def mistake(
        self, code: str, path: Path, params: Params = NO_PARAMS, fix: str = "", *, at_key: bool = False
    ) -> Diagnostic:
        """An error of the value at a path, or of its key."""
        return self.diagnostic(code, self.key_span(path) if at_key else self.span(path), params, fix)

    @property
    def as_written(self) -> Document:
        """The document as it is in the file, if this one was made from it."""
        return self

    @property
    def origins(self) -> Mapping[Path, Origin]:
        """Where values that are not written in this document are written, by path; empty for a document of a file."""
        return _NO_ORIGINS

    def _span(self, place: Place) -> SourceSpan:
        line = self.source.position(self.start)[0] + place.line
        end = place.end_column
        if end is None:
            end = len(self.source.line(line).rstrip())
        return self.source.span(line, place.column + 1, end + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where a value is written that is part of another document."""

    document: Document
    path: Path

    def span(self, below: Path = ()) -> SourceSpan:
        """The place of the value, or of a part of it."""
        return self.document.span((*self.path, *below))


_NO_ORIGINS: Mapping[Path, Origin] = MappingProxyType({})


def origin_of(origins: Mapping[Path, Origin], path: Path) -> tuple[Origin | None, Path]:
    """Where a value of a document's spec is written: the origin of the longest prefix of its path that has one, and the
    rest of the path. None and (): in the document itself."""
    for length in range(len(path), 1, -1):
        origin = origins.get(path[:length])
        if origin is not None:
            return origin, path[length:]
    return None, ()


def values_in(value: Any, limit: int) -> int:
    """How many values a value consists of, itself included; counting stops shortly after the limit."""
    count, rest = 0, [value]
    while rest and count < limit:
        count += 1
        here = rest.pop()
        if isinstance(here, dict):
            rest.extend(here.values())
            count += sum(map(len, here)) // CHARACTERS_A_VALUE
        elif isinstance(here, list):
            rest.extend(here)
        elif isinstance(here, str):
            count += len(here) // CHARACTERS_A_VALUE
    return count


def _character_places(text: str, here: int, end: int, value: str) -> Iterator[int]:
    """The offsets of a value's characters in YAML, in order. A space may be written as a line break and an indent."""
    if text[here : here + 1] in {"|", ">"}:
        here = text.find("\n", here, end) + 1
    for character in value:
        while here < end and text[here] != character and not (character.isspace() and text[here].isspace()):
            here += 1
        if here >= end:
            return
        yield here
        here += 1


def _find(place: Place, path: Path) -> Place:
    for step in path:
        child = place.children.get(step)
        if child is None:
            return place
        place = child
    return place


@lru_cache(maxsize=2)  # a document may have 200,000 values, which take 40 MiB
def _places(document: Document) -> Place:
    """The places of a document. It has been read before, so its text is valid YAML. Cost: a parse."""
    text = document.source.text[document.start : document.end]
    stream = syntax.events(text)
    for event in stream:
        if type(event) is syntax.DocumentStartEvent:
            break
    return _place(next(stream), stream, {})


def _place(event: Any, stream: Iterator[Any], anchors: dict[str, Place]) -> Place:
    kind = type(event)
    start, end = event.start_mark, event.end_mark
    place = Place(line=start.line, column=start.column, end_column=end.column if end.line == start.line else None)
    if kind is syntax.AliasEvent:
        target = anchors.get(event.anchor)
        place.children = target.children if target else {}
        return place
    if event.anchor is not None:
        anchors[event.anchor] = place
    if kind is syntax.MappingStartEvent:
        last = _mapping(place, stream, anchors)
    elif kind is syntax.SequenceStartEvent:
        last = _sequence(place, stream, anchors)
    else:
        return place
    end = last.end_mark
    place.end_column = end.column if end.line == start.line else None
    return place


def _mapping(place: Place, stream: Iterator[Any], anchors: dict[str, Place]) -> Any:
    """Fill in a mapping's values; returns its end event. Of equal keys the first is kept, as in the data."""
    place.children = children = dict[Step, Place]()
    for event in stream:
        if type(event) is syntax.MappingEndEvent:
            return event
        key = _place(event, stream, anchors)
        value = _place(next(stream), stream, anchors)
        value.key = key
        children.setdefault(getattr(event, "value", ""), value)
    raise AssertionError("a mapping that was read before has an end")


def _sequence(place: Place, stream: Iterator[Any], anchors: dict[str, Place]) -> Any:
    place.children = children = dict[Step, Place]()
    for position, event in enumerate(stream):
        if type(event) is syntax.SequenceEndEvent:
            return event
        children[position] = _place(event, stream, anchors)
    raise AssertionError("a list that was read before has an end")
