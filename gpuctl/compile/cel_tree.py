"""CEL expressions as trees, read from the library's serialized form of a checked expression.

That form is a protobuf message, `cel.expr.CheckedExpr`. The library brings no classes for it, so its few fields are
read here. The tree gives what the library does not: the most an expression may cost, and which fields it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Field: TypeAlias = tuple[int, "int | bytes"]


@dataclass(frozen=True, slots=True)
class Node:
    """Part of an expression. `at`: the position in the text by which it is named."""

    at: int


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal. `value` is None for null and for types that no rule reads."""

    value: str | bytes | int | None


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`operand.field`, also written `operand["field"]` and `operand.?field`; `tested`: only whether it exists is
    asked."""

    operand: Node
    field: str
    tested: bool = False


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A call of a function or operator. The first argument of a method is the value that it is called on."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Made(Node):
    """A list, or the keys and values of a mapping."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Loop(Node):
    """A comprehension: `all`, `exists`, `map`, and so on. `step` computes the next `total` from `total` and
    `variable`."""

    variable: str
    over: Node
    total: str
    first: Node
    condition: Node
    step: Node
    result: Node


def tree_of(checked: bytes) -> Node:
    """The tree of a checked expression, as the library serializes it. Cost: linear in its size."""
    message = _bytes(checked, 2)
    positions = {}
    for number, entry in _fields(_bytes(message, 5)):
        if number == 4:
            pair = dict(_fields(_as_bytes(entry)))
            positions[pair.get(1, 0)] = pair.get(2, 0)
    return _node(_bytes(message, 4), {key: at for key, at in positions.items() if isinstance(at, int)})


def parts_of(node: Node) -> tuple[Node, ...]:
    """The nodes right below one."""
    match node:
        case Select():
            return (node.operand,)
        case Call():
            return node.arguments
        case Made():
            return node.parts
        case Loop():
            return (node.over, node.first, node.condition, node.step, node.result)
        case _:
            return ()


def all_of_tree(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    left = [node]
    while left:
        here = left.pop()
        yield here
        left.extend(reversed(parts_of(here)))


def _node(message: bytes, positions: Mapping[Any, int]) -> Node:
    """The node of a message of the form `Expr`; its nesting is bounded by the library."""
    fields = dict(_fields(message))
    at = positions.get(fields.get(2, 0), 0)
    (number, body), *_ = [(number, _as_bytes(fields[number])) for number in range(3, 10) if number in fields]
    match number:
        case 3:
            return _constant(body, at)
        case 4:
            return Name(at, _text(body, 1))
        case 5:
            parts = dict(_fields(body))
            field, tested = _as_bytes(parts[2]).decode("utf-8", "replace"), bool(parts.get(3, 0))
            return Select(at, _node(_as_bytes(parts[1]), positions), field, tested=tested)
        case 6:
            inside = _fields(body)
            called = [_node(_as_bytes(part), positions) for key, part in inside if key in {1, 3}]
            (function,) = [_as_bytes(part).decode() for key, part in inside if key == 2]
            return _called(function, tuple(called), at)
        case 7:
            return Made(at, tuple(_node(_as_bytes(part), positions) for key, part in _fields(body) if key == 1))
        case 8:
            entries = [_as_bytes(entry) for key, entry in _fields(body) if key == 2]
            halves = [_as_bytes(half) for entry in entries for key, half in _fields(entry) if key in {3, 4}]
            return Made(at, tuple(_node(half, positions) for half in halves))
        case _:
            found = {key: _as_bytes(part) for key, part in _fields(body)}
            nodes = {key: _node(found[key], positions) for key in (2, 4, 5, 6, 7)}
            variable, total = found[1].decode(), found[3].decode()
            return Loop(at, variable, nodes[2], total, nodes[4], nodes[5], nodes[6], nodes[7])


def _called(function: str, arguments: tuple[Node, ...], at: int) -> Node:
    match function, arguments:
        case (("_?._" | "_[_]" | "_[?_]"), (operand, Constant(value=str(field)))):
            return Select(at, operand, field)
        case _:
            return Call(at, function, arguments)


def _constant(body: bytes, at: int) -> Constant:
    for number, value in _fields(body):
        match number, value:
            case 6, bytes():
                return Constant(at, value.decode("utf-8", "replace"))
            case 7, bytes():
                return Constant(at, value)
            case ((2 | 3 | 4), int()):
                return Constant(at, value)
            case _:
                pass
    return Constant(at, None)


def _fields(message: bytes) -> list[Field]:
    """The numbers and values of a message's fields, in protobuf's wire format."""
    found: list[Field] = []
    here = 0
    while here < len(message):
        tag, here = _varint(message, here)
        kind = tag & 7
        if kind == 2:
            size, here = _varint(message, here)
            found.append((tag >> 3, message[here : here + size]))
            here += size
        elif kind == 0:
            value, here = _varint(message, here)
            found.append((tag >> 3, value))
        else:
            here += 8 if kind == 1 else 4
    return found


def _varint(message: bytes, here: int) -> tuple[int, int]:
    value = message[here]
    if value < 128:
        return value, here + 1
    value = shift = 0
    while True:
        byte = message[here]
        value |= (byte & 127) << shift
        here, shift = here + 1, shift + 7
        if byte < 128:
            return value, here


def _as_bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""


def _bytes(message: bytes, number: int) -> bytes:
    return next((_as_bytes(value) for key, value in _fields(message) if key == number), b"")


def _text(message: bytes, number: int) -> str:
    return _bytes(message, number).decode("utf-8", "replace")
