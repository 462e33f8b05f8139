"""YAML events to documents. Everything that is refused is reported on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpuctl.compile import syntax
from gpuctl.compile.document import MAX_MISTAKES, MOST_TOLD, UNREAD, Document, values_in
from gpuctl.compile.scalars import NotFinite, OutOfRange, kind_of, plain_scalar
from gpuctl.compile.text import NO_PARAMS, Params, SourceText, diagnose
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan

MAX_DOCUMENTS = 20_000
MAX_DEPTH = 50
MAX_VALUES = 200_000
"""Keys and values of one document."""
MAX_ALIASED = 10_000
"""The most values of a document that come through aliases. Each use of an alias counts; a text counts 1 for each 100
characters."""

_STR_TAG = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """The text of a document that could not be read."""

    source: SourceText
    start: int
    end: int

    @property
    def text(self) -> str:
        """The text of the fragment."""
        return self.source.text[self.start : self.end]


@dataclass(slots=True)
class Read:
    """The content of a file: its documents in order, the unreadable parts, and why. `begun` counts empty documents
    too."""

    documents: list[Document] = field(default_factory=list)
    fragments: list[Fragment] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    begun: int = 0


class _Frame:
    """A mapping or list that is being filled. `keys`: the event of each key of a mapping so far.

    `begin`: the event that opened it.
    """

    __slots__ = ("begin", "key", "keys", "value")

    def __init__(self, value: dict[str, Any] | list[Any], begin: Any) -> None:
        self.value = value
        self.begin = begin
        self.keys: dict[str, Any] = {}
        self.key: Any = _NO_KEY


_NO_KEY = object()
_DROPPED = object()
"""States of a mapping's frame: the next value is a key; the next value belongs to a refused key and is dropped."""


class Builder:
    """Builds documents from events. `begin`: where the current document begins.

    `first_line`: the line of the file at which the text begins. `given_up`: the current document exceeds a limit.
    """

    def __init__(self, source: SourceText, out: Read, offset: int, told: int = 0) -> None:
        self.source = source
        self.out = out
        self.told = told
        self.offset = offset
        self.first_line = source.position(offset)[0] if offset else 1
        self.begin = offset
        self.given_up = False
        self._reset()

    def _reset(self) -> None:
        self.root: Any = None
        self.first: Any = None
        self.stack: list[_Frame] = []
        self.anchors: dict[str, Any] = {}
        self.aliased = 0
        self.values = 0
        self.name: SourceSpan | None = None
        self.mistakes = len(self.out.diagnostics)

    def take(self, events: Iterable[Any]) -> bool:
        """Take events in order; False if one of them makes the current document be given up."""
        actions = self._ACTIONS
        for event in events:
            action = actions.get(type(event))
            if action is not None:
                action(self, event)
                if self.given_up:
                    return False
        return True

    def _span(self, event: Any) -> SourceSpan:
        start, end = event.start_mark, event.end_mark
        end_column = end.column + 1 if end.line == start.line else 0
        return self.source.span(self.first_line + start.line, start.column + 1, end_column)

    def unclosed(self) -> SourceSpan | None:
        """The place of the innermost open bracket."""
        begin = self.stack[-1].begin if self.stack else None
        return self._span(begin) if begin is not None and begin.flow_style else None

    def _report(self, code: str, event: Any, params: Params = NO_PARAMS) -> None:
        most = MAX_MISTAKES if self.told + self.mistakes < MOST_TOLD else 0
        if len(self.out.diagnostics) - self.mistakes >= most:
            code, params, self.given_up = "GPU1020", {"limit": MAX_MISTAKES}, True
        self.out.diagnostics.append(diagnose(self.source, code, self._span(event), params))

    def _start(self, event: Any) -> None:
        self._reset()
        self.out.begun += 1
        self.given_up = self.out.begun > MAX_DOCUMENTS
        mark = event.start_mark
        self.begin = self.offset + mark.index - mark.column

    def _end(self, event: Any) -> None:
        end = self.offset + event.start_mark.index
        if self.root is not None:
            self.out.documents.append(
                Document(
                    source=self.source,
                    start=self.begin,
                    end=end,
                    data=self.root,
                    name=self.name or self._span(self.first),
                    sound=len(self.out.diagnostics) == self.mistakes,
                )
            )
        self.begin = self.offset + event.end_mark.index
        self._reset()

    def _scalar(self, event: Any) -> None:
        value: Any = event.value
        if event.tag is not None and event.tag != _STR_TAG:
            self._report("GPU1012", event, {"tag": event.tag.replace("tag:yaml.org,2002:", "!!")})
            value = UNREAD
        elif event.implicit[0]:
            try:
                value = plain_scalar(value)
            except NotFinite:
                self._report("GPU1014", event, {"text": value})
                value = UNREAD
            except OutOfRange:
                self._report("GPU1015", event, {"text": value})
                value = UNREAD
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        self._put(value, event)

    def _open(self, event: Any) -> None:
        if len(self.stack) >= MAX_DEPTH:
            self._report("GPU1008", event, {"limit": MAX_DEPTH})
            self.given_up = True
            return
        if event.tag is not None:
            self._report("GPU1012", event, {"tag": event.tag.replace("tag:yaml.org,2002:", "!!")})
        value: dict[str, Any] | list[Any] = {} if type(event) is syntax.MappingStartEvent else []
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        self._put(value, event)
        self.stack.append(_Frame(value, event))

    def _close(self, _: Any) -> None:
        self.stack.pop()

    def _alias(self, event: Any) -> None:
        name, value = event.anchor, UNREAD
        if name not in self.anchors:
            self._report("GPU1011", event, {"name": name})
        elif any(frame.value is self.anchors[name] for frame in self.stack):
            self._report("GPU1010", event, {"name": name})
        else:
            value = self.anchors[name]
            self.aliased += values_in(value, MAX_ALIASED - self.aliased + 1)
            if self.aliased > MAX_ALIASED:
                self._report("GPU1009", event, {"name": name, "limit": MAX_ALIASED})
                self.given_up = True
        self._put(value, event)

    def _put(self, value: Any, event: Any) -> None:
        """Put a value where it belongs: as the document itself, an entry of a list, a key, or the value of a key."""
        self.values += 1
        if self.values > MAX_VALUES:
            self._report("GPU1021", event, {"limit": MAX_VALUES})
            self.given_up = True
        if not self.stack:
            self.root, self.first = value, event
            return
        frame = self.stack[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is _NO_KEY:
            frame.key = self._key(value, event, frame.keys)
        else:
            if frame.key is not _DROPPED:
                frame.value[frame.key] = value
                if frame.key == "name" and len(self.stack) == 2 and self._in_metadata():
                    self.name = self._span(event)
            frame.key = _NO_KEY

    def _in_metadata(self) -> bool:
        root = self.stack[0].value
        return isinstance(root, dict) and root.get("metadata") is self.stack[1].value

    def _key(self, value: Any, event: Any, keys: dict[str, Any]) -> Any:
        if value == "<<" and event.implicit[0]:
            self._report("GPU1013", event)
        elif not isinstance(value, str):
            if value is not UNREAD:
                self._report("GPU1004", event, {"found": kind_of(value)})
        elif value in keys:
            self._report("GPU1003", event, {"key": value, "line": self._span(keys[value]).line})
        else:
            keys[value] = event
            return value
        return _DROPPED

    _ACTIONS: ClassVar[Mapping[type[Any], Callable[[Builder, Any], None]]] = {
        syntax.ScalarEvent: _scalar,
        syntax.MappingStartEvent: _open,
        syntax.SequenceStartEvent: _open,
        syntax.MappingEndEvent: _close,
        syntax.SequenceEndEvent: _close,
        syntax.AliasEvent: _alias,
        syntax.DocumentStartEvent: _start,
        syntax.DocumentEndEvent: _end,
    }
    """The action for each event. One table for all builders: a table in each would be a reference cycle per file."""
