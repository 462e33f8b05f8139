"""An upper bound on the cost of a CEL expression for declarations of a size, computed before it is evaluated.

The library stops loops after ITERATIONS in all, and refuses expressions nested deeper than 32; it counts neither time
nor memory. The cost of one step of a loop is bounded here: by the length of the texts that are compared and joined, by
the entries of lists, and by a list of functions whose cost is known. `map` and `filter` copy their list with each entry
they add, so they cost the square of its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.compile.cel_tree import Call, Constant, Loop, Made, Name, Node, Select, all_of_tree
from gpuctl.compile.patterns import NotAPattern, Pattern, pattern_of
from gpuctl.compile.rule_form import STEPS

ITERATIONS = 10_000
"""The iterations of all loops of an evaluation, after which the library gives up (`comprehension_max_iterations`)."""
_UNITS_A_STEP = 100
"""A unit is about the time of evaluating one node: some 50 ns. A step of a policy is some ten microseconds, rounded
up."""
_BYTES_A_UNIT = 20
"""Bytes copied or compared in a unit: 2,000 bytes a step, so that no evaluation makes more than some 100 MB."""
ENTRY_BYTES = 64
"""The bytes that an entry of a list counts as."""
_PATTERN_OPERATIONS_A_UNIT = 50
_PATTERN_COMPILED = 200
"""Compiling a pattern, which each evaluation does, costs as much as matching so many bytes."""
_TAKEN_OVER_BYTES_A_UNIT = 2
"""The library copies the data that it takes over from Python: this many bytes in a unit."""

_COMPARE = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"})
_PLAIN = frozenset({
    "_&&_", "_||_", "!_", "_?_:_", "@not_strictly_false", "_-_", "_*_", "_/_", "_%_", "-_", "_[_]", "_[?_]", "_?._",
    "dyn", "type", "hasValue", "value", "orValue", "or", "optional.of", "optional.none", "optional.ofNonZeroValue",
})  # fmt: skip
_READ = frozenset({"size", "int", "uint", "double", "bool", "string", "bytes", "duration"})
"""Functions that read their whole argument."""
FUNCTIONS = _COMPARE | _PLAIN | _READ | {"_+_", "@in", "contains", "matches"}
"""All functions that a policy may call. None of them reads clocks, time zones or files."""


@dataclass(frozen=True, slots=True)
class Size:
    """Upper bounds on a value: its bytes, and the entries of the longest list or mapping in it."""

    bytes: int = 8
    entries: int = 0


@dataclass(slots=True)
class _Account:
    patterns: Mapping[str, Pattern]
    data: Size
    units: int = 0
    variables: dict[str, Size] = field(default_factory=dict)

    def read(self, size: int, times: int) -> None:
        self.units += times * (size // _BYTES_A_UNIT)


def patterns_of(tree: Node) -> Mapping[str, Pattern]:
    """The regular expressions of an expression. Raises NotAPattern, also if one is not a literal."""
    found: dict[str, Pattern] = {}
    for node in all_of_tree(tree):
        if isinstance(node, Call) and node.function == "matches":
            match node.arguments:
                case (_, Constant(value=str(text))):
                    found[text] = pattern_of(text)
                case _:
                    raise NotAPattern("what matches compares with must be a literal", "write the pattern out")
    return found


def most_steps(tree: Node, patterns: Mapping[str, Pattern], data: Size) -> int:
    """The most steps that an evaluation may take on data of that size; more than STEPS: it must not be evaluated."""
    account = _Account(patterns, data, units=data.bytes // _TAKEN_OVER_BYTES_A_UNIT)
    _visit(tree, 1, account)
    return min(1 + account.units // _UNITS_A_STEP, STEPS + 1)


def _visit(node: Node, times: int, account: _Account) -> Size:
    """Charge a node that is evaluated `times` times; returns the largest size of its result."""
    account.units += times
    match node:
        case Constant(value=value):
            return Size(len(value) * 4 if isinstance(value, str | bytes) else 8)
        case Name(name=name):
            return account.variables.get(name, account.data)
        case Select():
            return _visit(node.operand, times, account)
        case Made():
            parts = [_visit(part, times, account) for part in node.parts]
            made = Size(
                sum(part.bytes + ENTRY_BYTES for part in parts), max([len(parts), *(part.entries for part in parts)])
            )
            account.read(ENTRY_BYTES * len(parts), times)
            return made
        case Loop():
            return _loop(node, times, account)
        case Call():
            return _call(node, [_visit(part, times, account) for part in node.arguments], times, account)
        case _:
            raise AssertionError(node)


def _call(node: Call, sizes: list[Size], times: int, account: _Account) -> Size:
    whole = Size(sum(size.bytes for size in sizes), sum(size.entries for size in sizes))
    largest = Size(max((size.bytes for size in sizes), default=8), max((size.entries for size in sizes), default=0))
    if node.function in _COMPARE:
        account.read(min(size.bytes for size in sizes), times)
        return Size()
    if node.function in _READ:
        account.read(whole.bytes, times)
        return whole
    match node.function:
        case "_+_":
            account.read(whole.bytes, times)
            return whole
        case "@in":
            account.read(whole.bytes, times)
        case "contains":
            account.read(sizes[0].bytes * (1 + sizes[-1].bytes // 16), times)
        case "matches":
            pattern = node.arguments[1]
            size = account.patterns[str(pattern.value)].size if isinstance(pattern, Constant) else STEPS
            account.units += times * (1 + size * (sizes[0].bytes + _PATTERN_COMPILED) // _PATTERN_OPERATIONS_A_UNIT)
        case _:
            return largest
    return Size()


def _loop(node: Loop, times: int, account: _Account) -> Size:
    """Charge a loop: its step runs for each entry, each time that the loop is entered, up to the library's limit."""
    over = _visit(node.over, times, account)
    first = _visit(node.first, times, account)
    inner = min(times * over.entries, ITERATIONS)
    hidden = {name: account.variables.get(name) for name in (node.variable, node.total)}
    account.variables |= {node.variable: over, node.total: Size()}
    _visit(node.condition, inner, account)
    added = _visit(node.step, inner, account)
    total = first
    if isinstance(node.step, Call):
        turns = min(over.entries, ITERATIONS)
        is_list = isinstance(node.first, Made)
        total = Size(first.bytes + turns * added.bytes, max(first.entries, turns, added.entries) if is_list else 0)
        if is_list:
            account.read(turns * ENTRY_BYTES, inner)
    account.variables[node.total] = total
    result = _visit(node.result, times, account)
    for name, size in hidden.items():
        if size is None:
            del account.variables[name]
        else:
            account.variables[name] = size
    return result
