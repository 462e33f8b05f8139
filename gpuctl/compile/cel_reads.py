"""The fields that a CEL expression reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuctl.compile.cel_tree import Call, Loop, Name, Node, Select, parts_of

_OF_OPTIONALS = frozenset({"orValue", "value", "hasValue"})


@dataclass(frozen=True, slots=True)
class Read:
    """A path that is read: a variable, then fields one below the other, `*` for an entry. `places`: where each is
    named."""

    path: tuple[str, ...]
    places: tuple[int, ...]


def reads_of(tree: Node) -> Iterator[Read]:
    """The paths that an expression reads, each as far as it goes. Cost: linear in the nodes, times their nesting."""
    yield from _reads(tree, {})


def _reads(node: Node, variables: dict[str, Read | None]) -> Iterator[Read]:
    found = _read(node, variables)
    if found is not None:
        yield found
    elif isinstance(node, Loop):
        yield from _of_loop(node, variables)
    for below in _others(node, is_read=found is not None):
        yield from _reads(below, variables)


def _of_loop(node: Loop, variables: dict[str, Read | None]) -> Iterator[Read]:
    """A loop reads the entries of its list. A loop over no path only names a value: `optMap`."""
    over, named = _read(node.over, variables), _read(node.first, variables)
    inside = dict(variables)
    if over is not None:
        inside[node.variable] = entry = Read((*over.path, "*"), (*over.places, node.at))
        yield entry
    else:
        inside[node.variable] = None
        yield from _reads(node.over, variables)
    inside[node.total] = named
    yield from _reads(node.first, variables)
    for part in (node.condition, node.step, node.result):
        yield from _reads(part, inside)


def _others(node: Node, *, is_read: bool) -> tuple[Node, ...]:
    """The nodes below this one whose reads are collected separately."""
    if isinstance(node, Loop):
        return ()
    if not is_read:
        return parts_of(node)
    while isinstance(node, Select):
        node = node.operand
    if isinstance(node, Call):
        return (*node.arguments[1:], *_others(node.arguments[0], is_read=True))
    return ()


def _read(node: Node, variables: dict[str, Read | None]) -> Read | None:
    """The path that a node stands for; None for any other node."""
    match node:
        case Name(name=name):
            return variables[name] if name in variables else Read((name,), (node.at,))
        case Select(operand=operand, field=field):
            above = _read(operand, variables)
            return None if above is None else Read((*above.path, field), (*above.places, node.at))
        case Call(function=function, arguments=(operand, *_)) if function in _OF_OPTIONALS:
            return _read(operand, variables)
        case _:
            return None
