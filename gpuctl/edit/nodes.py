"""The values of a YAML document with their places in its text, from the events of the compiler's own parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any

from gpuctl.compile import syntax

BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n\r\x85\u2028\u2029]*")
_DECORATION = re.compile(r"(?:[&!][^\s,\[\]{}]*\s+)+")


class Form(Enum):
    """The kind of a value, and how it is written."""

    PLAIN = "a scalar without quotes"
    QUOTED = "a scalar in quotes"
    BLOCK_SCALAR = "lines of text after | or >"
    ALIAS = "an alias"
    BLOCK_MAPPING = "a mapping, one entry a line"
    FLOW_MAPPING = "a mapping in braces"
    BLOCK_LIST = "a list, one entry a line"
    FLOW_LIST = "a list in brackets"

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys."""
        return self in {Form.BLOCK_MAPPING, Form.FLOW_MAPPING}

    @property
    def is_list(self) -> bool:
        """Whether it has entries without keys."""
        return self in {Form.BLOCK_LIST, Form.FLOW_LIST}

    @property
    def is_flow(self) -> bool:
        """Whether it is in brackets or braces."""
        return self in {Form.FLOW_MAPPING, Form.FLOW_LIST}

    @property
    def is_block(self) -> bool:
        """Whether it ends with its lines, not with a mark of its own."""
        return self in {Form.BLOCK_MAPPING, Form.BLOCK_LIST, Form.BLOCK_SCALAR}


@dataclass(slots=True)
class Node:
    """A value. `start`, `end`: offsets in the text, `start` before its anchor and tag; `column`: from 0.

    `pairs`: the keys and values of a mapping; `items`: the entries of a list; `text`: the content of a scalar.
    `decorated`: it has an anchor or a tag.
    """

    form: Form
    start: int
    end: int
    column: int
    text: str = ""
    decorated: bool = False
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written: `key:` without a value."""
        return self.start == self.end

    @property
    def children(self) -> Iterator[Node]:
        """Keys, values and entries, in the order of the text."""
        for key, value in self.pairs:
            yield key
            yield value
        yield from self.items

    def find(self, key: str) -> tuple[Node, Node] | None:
        """The pair of a key."""
        return next((pair for pair in self.pairs if pair[0].text == key), None)

    def begin_of_content(self, text: str) -> int:
        """Where the value begins behind its anchor and tag."""
        found = _DECORATION.match(text, self.start, self.end) if self.decorated else None
        return found.end() if found else self.start


def root_of(text: str) -> Node:
    """The value of a document's text. The text has been read before, so it is valid YAML.

    Cost: a parse of the text.
    """
    stream = syntax.events(text)
    for event in stream:
        if isinstance(event, syntax.DocumentStartEvent):
            break
    return _node(next(stream), stream)


def _node(event: Any, stream: Iterator[Any]) -> Node:
    start, end = event.start_mark, event.end_mark
    decorated = not isinstance(event, syntax.AliasEvent) and (event.anchor is not None or event.tag is not None)
    node = Node(form=_form(event), start=start.index, end=end.index, column=start.column, decorated=decorated)
    if isinstance(event, syntax.ScalarEvent):
        node.text = event.value
    elif isinstance(event, syntax.MappingStartEvent):
        last = _mapping(node, stream)
        node.end = last.end_mark.index if event.flow_style else node.pairs[-1][1].end
        node.column = node.column if event.flow_style else node.pairs[0][0].column
    elif isinstance(event, syntax.SequenceStartEvent):
        last = _list(node, stream)
        node.end = last.end_mark.index if event.flow_style else node.items[-1].end
    return node


def _form(event: Any) -> Form:
    match event:
        case syntax.AliasEvent():
            return Form.ALIAS
        case syntax.MappingStartEvent():
            return Form.FLOW_MAPPING if event.flow_style else Form.BLOCK_MAPPING
        case syntax.SequenceStartEvent():
            return Form.FLOW_LIST if event.flow_style else Form.BLOCK_LIST
        case _ if event.style in {"|", ">"}:
            return Form.BLOCK_SCALAR
        case _:
            return Form.QUOTED if event.style in {'"', "'"} else Form.PLAIN


def _mapping(node: Node, stream: Iterator[Any]) -> Any:
    for event in stream:
        if isinstance(event, syntax.MappingEndEvent):
            return event
        key = _node(event, stream)
        node.pairs.append((key, _node(next(stream), stream)))
    raise AssertionError("a mapping that was read before has an end")


def _list(node: Node, stream: Iterator[Any]) -> Any:
    for event in stream:
        if isinstance(event, syntax.SequenceEndEvent):
            return event
        node.items.append(_node(event, stream))
    raise AssertionError("a list that was read before has an end")


def comments(text: str, node: Node, start: int, end: int) -> list[str]:
    """The comments between two offsets that are not part of a scalar of the node."""
    found = []
    bounds = [start, *(bound for leaf in _leaves(node) for bound in (leaf.start, leaf.end)), end]
    for gap, (left, right) in enumerate(pairwise(bounds)):
        if gap % 2 == 0 and max(left, start) < min(right, end):
            found.extend(_COMMENT.findall(text, max(left, start), min(right, end)))
    return found


def _leaves(node: Node) -> Iterator[Node]:
    if not node.form.is_mapping and not node.form.is_list:
        yield node
    for child in node.children:
        yield from _leaves(child)


def line_end(text: str, offset: int) -> int:
    """The end of an offset's line, before its break; on the last line, the text's end."""
    found = BREAK.search(text, offset)
    return found.start() if found else len(text)


def next_line(text: str, offset: int) -> int:
    """The beginning of the line after an offset's; on the last line, the text's end. An offset at the beginning of a
    line is returned itself."""
    if offset == 0 or _at_line_start(text, offset):
        return offset
    found = BREAK.search(text, offset)
    return found.end() if found else len(text)


def line_start(text: str, offset: int) -> int:
    """Where the line of an offset begins."""
    breaks = [found.end() for found in BREAK.finditer(text, max(0, offset - 4096), offset)]
    if breaks:
        return breaks[-1]
    return 0 if offset <= 4096 else max((found.end() for found in BREAK.finditer(text, 0, offset)), default=0)


def line_break(text: str, offset: int) -> str:
    """The line break in use before an offset, else after it, else the plain one."""
    before = [found.group() for found in BREAK.finditer(text, max(0, offset - 4096), offset)]
    if before:
        return before[-1]
    found = BREAK.search(text)
    return found.group() if found else "\n"


def _at_line_start(text: str, offset: int) -> bool:
    return text[offset - 1] in "\n\x85\u2028\u2029" or (text[offset - 1] == "\r" and text[offset : offset + 1] != "\n")
