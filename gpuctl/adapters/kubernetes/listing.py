"""Reads a list as it comes over the wire: one object is decoded at a time, so no answer is in memory as a whole.

Five hundred objects may be five megabytes, or five hundred if a tenant has filled their annotations.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gpuctl.adapters.kubernetes.decoding import decode_at
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import text
from gpuctl.model.state import Body

MOST_CHARACTERS = 1 << 26
"""No API server stores an object whose text is nearly as large as this."""
_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Objects of a list, the list's version, and the token to request the next page; "" on the last page."""

    items: list[Body] = field(default_factory=list)
    resource_version: str = ""
    token: str = ""


def read_page(kind: Kind, chunks: Iterable[bytes], keep: Callable[[Body], Body]) -> Page:
    """The objects, each as `keep` leaves it. Raises ValueError for anything but a list, or for half of one.

    Cost: as decoding it whole; memory for one object, two chunks and what is kept.
    """
    found: list[Body] = []
    facts: dict[str, Any] = {}
    read = _Reader(chunks)
    read.take("{")
    while read.next() != "}":
        if facts:
            read.take(",")
        name = read.value()
        read.take(":")
        if name == "items" and read.next() == "[":
            found.extend(keep(_typed(kind, body)) for body in _elements(read))
            facts[name] = True
        else:
            facts[str(name)] = read.value()
    version, token = (text(facts, "metadata", key) for key in ("resourceVersion", "continue"))
    return Page(items=found, resource_version=version, token=token)


def _elements(read: _Reader) -> Iterator[Any]:
    read.take("[")
    while read.next() != "]":
        yield read.value()
        if read.next() != "]":
            read.take(",")
    read.take("]")


def _typed(kind: Kind, body: Any) -> Body:
    """An item of a list, with its kind added: the items do not state their kind."""
    if not isinstance(body, dict):
        raise ValueError("an item of the list is no object")  # noqa: TRY004 - as for any other answer that is no list
    body["apiVersion"], body["kind"] = kind
    return body


class _Reader:
    """Reads JSON values one after another from text that comes in chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._characters = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0

    def next(self) -> str:
        """The next character that is no space, without consuming it. Raises ValueError at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise ValueError("half a list")

    def take(self, character: str) -> None:
        """Consume a character. Raises ValueError if another one is there."""
        if self.next() != character:
            raise ValueError(f"no {character!r} where a list has one")
        self._at += 1

    def value(self) -> Any:
        """The next value. Raises ValueError for no value, or half of one."""
        self.next()
        while True:
            begin = self._at
            try:
                found, end = decode_at(self._text, begin)
            except ValueError:
                if not self._more():
                    raise
                continue
            if end < len(self._text) or not self._more():  # a number at the end of the text may go on
                self._at += end - begin
                return found

    def _more(self) -> bool:
        """Read as much again as the text that is not decoded yet, so that a large value is not decoded for each chunk.

        Afterwards the text begins with the undecoded part, even if nothing more has come.
        """
        pieces = [self._text[self._at :]]
        missing = len(pieces[0])
        if missing > MOST_CHARACTERS:
            raise ValueError("a value that is larger than any object")
        ended = True
        for chunk in self._chunks:
            pieces.append(self._characters.decode(chunk))
            missing -= len(pieces[-1])
            ended = False
            if missing <= 0:
                break
        self._text, self._at = "".join(pieces), 0
        return not ended
