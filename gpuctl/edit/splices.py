"""Changes of one field as splices of a document's text: everything outside of a splice stays the same, byte for byte.

A value on one line is replaced in place; a new field becomes a line of its own, at its place in the order of the
schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gpuctl.edit.nodes import Form, Node, comments, line_break, line_end, line_start, next_line
from gpuctl.edit.values import INDENT, Value, inline, pair

Path = tuple[str, ...]
Order = Callable[[Path], Sequence[str]]
"""The fields of the mapping at a path, in the order of the schema."""


class _Removed:
    """The value of a field that is to be removed."""


REMOVED: Final = _Removed()


class Splice(NamedTuple):
    """Replaces the text between two offsets."""

    start: int
    end: int
    text: str


def applied(text: str, splices: Iterable[Splice]) -> str:
    """The text after splices that do not overlap. Cost: linear."""
    parts, at = list[str](), 0
    for splice in sorted(splices):
        parts += [text[at : splice.start], splice.text]
        at = splice.end
    return "".join([*parts, text[at:]])


class NotSpliced(ValueError):
    """The text has a form in which the change can't be made. The message says which; `at`: an offset."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.at = at


def change(text: str, root: Node, path: Path, value: Value | _Removed, order: Order) -> Splice | None:
    """The splice that gives a field a value or removes it; None if there is nothing to remove.

    Raises NotSpliced. Cost: linear in the document.
    """
    here = root
    for depth, key in enumerate(path):
        found = here.find(key) if here.form.is_mapping else None
        if found is None:
            if isinstance(value, _Removed):
                return None
            _must_be_mapping(here)
            return _inserted(text, here, path[: depth + 1], _nested(path[depth + 1 :], value), order)
        key_node, inner = found
        rest = path[depth + 1 :]
        if not rest:
            if isinstance(value, _Removed):
                return _removed(text, root, path[: depth + 1])
            return _replaced(text, key_node, inner, value, in_flow=here.form.is_flow)
        if inner.form is Form.PLAIN and inner.text in {"", "~", "null", "Null", "NULL"}:
            if isinstance(value, _Removed):
                return None
            return _filled(text, here, inner, {rest[0]: _nested(rest[1:], value)})
        here = inner
    return None


def _must_be_mapping(node: Node) -> None:
    if node.form is Form.ALIAS:
        raise NotSpliced("its value is an alias, which stands for a value of other fields too", node.start)
    if not node.form.is_mapping:
        raise NotSpliced("there is no mapping to put the field into", node.start)


def _nested(path: Path, value: Value) -> Value:
    for key in reversed(path):
        value = {key: value}
    return value


def _filled(text: str, parent: Node, empty: Node, value: dict[str, Value]) -> Splice:
    """A mapping for a key without a value."""
    if parent.form.is_flow or not empty.is_empty:
        lead = " " if empty.is_empty else ""
        return Splice(empty.start, empty.end, f"{lead}{inline(value, in_flow=parent.form.is_flow)}")
    ((field, inner),) = value.items()
    return _line_after(text, empty.end, _entry(field, inner, parent.column + INDENT))


def _inserted(text: str, mapping: Node, path: Path, value: Value, order: Order) -> Splice:
    """A new entry of a mapping: after the last one that comes before it in the schema."""
    key = path[-1]
    if mapping.form is Form.FLOW_MAPPING:
        if not mapping.pairs:
            opened = text.index("{", mapping.start) + 1
            return Splice(opened, opened, pair(key, value))
        last_key, last = mapping.pairs[-1]
        end = max(last_key.end, last.end)
        return Splice(end, end, f", {pair(key, value)}")
    fields = list(order(path[:-1]))
    earlier = frozenset(fields[: fields.index(key)] if key in fields else fields)
    before = [pair_ for pair_ in mapping.pairs if pair_[0].text in earlier]
    entry = _entry(key, value, mapping.column)
    if before:
        last_key, last = before[-1]
        return _line_after(text, max(last_key.end, last.end), entry)
    start = mapping.pairs[0][0].start
    return Splice(start, start, f"{entry.lstrip(' ')}{line_break(text, start)}{' ' * mapping.column}")


def _entry(key: str, value: Value, column: int) -> str:
    return f"{' ' * column}{inline(key)}: {inline(value)}"


def _line_after(text: str, offset: int, line: str) -> Splice:
    """A line of its own below the line of an offset; a last line without a line break keeps having none."""
    broken = line_break(text, offset)
    at = next_line(text, offset)
    if at == len(text) and line_start(text, at) != at:
        return Splice(at, at, f"{broken}{line}")
    return Splice(at, at, f"{line}{broken}")


def _replaced(text: str, key: Node, old: Node, value: Value, *, in_flow: bool) -> Splice:
    new = inline(value, in_flow=in_flow)
    if old.is_empty:
        return Splice(old.start, old.end, f" {new}")
    if not old.form.is_block:
        start = old.begin_of_content(text)
        if comments(text, old, start, old.end):
            raise NotSpliced("the value has comments in it, which would be lost", start)
        return Splice(start, old.end, new)
    start = text.index(":", key.end) + 1
    end = _end_of_lines(text, old)
    if comments(text, old, start, end):
        raise NotSpliced("the value has comments in it, which would be lost", start)
    return Splice(start, end, f" {new}")


def _end_of_lines(text: str, node: Node) -> int:
    """The end of a value's last line, without its break, for a value without a closing mark."""
    last = node
    while last.form.is_mapping or last.form.is_list:
        if last.form.is_flow:
            return last.end
        key, inner = last.pairs[-1] if last.pairs else (None, last.items[-1])
        if key is not None and inner.is_empty:
            return max(key.end, inner.end)
        last = inner
    if last.form is not Form.BLOCK_SCALAR:
        return last.end
    return last.start + len(text[last.start : last.end].rstrip("\n\r\x85\u2028\u2029"))


def _removed(text: str, root: Node, path: Path) -> Splice:
    """Remove a field. If its mapping has no other field, that becomes an empty mapping."""
    mapping = root
    for step in path[:-1]:
        found = mapping.find(step)
        assert found is not None  # noqa: S101 - the path leads to a field that was found
        mapping = found[1]
    position = next(at for at, found in enumerate(mapping.pairs) if found[0].text == path[-1])
    key, value = mapping.pairs[position]
    if mapping.form is Form.FLOW_MAPPING:
        return _removed_in_flow(mapping, position)
    if comments(text, value, key.end, max(key.end, _end_of_lines(text, value))):
        raise NotSpliced("the value has comments in it, which would be lost", key.start)
    if len(mapping.pairs) == 1:
        return Splice(key.start, max(key.end, _end_of_lines(text, value)), "{}")
    start = line_start(text, key.start)
    if text[start : key.start].strip(" "):
        raise NotSpliced("the field is on a line with others", key.start)
    end = line_end(text, _end_of_lines(text, value))
    after = next_line(text, end) if end < len(text) else end
    if after == end and start:  # the last line, without a break: that of the line before goes
        start -= len(line_break(text, start))
    return Splice(start, after, "")


def _removed_in_flow(mapping: Node, position: int) -> Splice:
    key, value = mapping.pairs[position]
    if position + 1 < len(mapping.pairs):
        return Splice(key.start, mapping.pairs[position + 1][0].start, "")
    end = max(key.end, value.end)
    if position:
        before_key, before = mapping.pairs[position - 1]
        return Splice(max(before_key.end, before.end), end, "")
    return Splice(key.start, end, "")
