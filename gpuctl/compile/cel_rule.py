"""Policies in CEL, checked and evaluated by cel-cpp. Only this module knows the library.

The library checks types, bounds nesting and iterations, and matches with RE2. `cel_cost` bounds the remaining cost of
an evaluation before it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional

from gpuctl.compile.cel_cost import FUNCTIONS, Size, most_steps, patterns_of
from gpuctl.compile.cel_reads import Read, reads_of
from gpuctl.compile.cel_scope import ROOTS, TOTALS, Value, field_problem
from gpuctl.compile.cel_tree import Call, Node, all_of_tree, tree_of
from gpuctl.compile.cel_words import named_value, said, value_at
from gpuctl.compile.document import Path
from gpuctl.compile.patterns import NotAPattern, Pattern
from gpuctl.compile.rule_causes import Cause, shown_value
from gpuctl.compile.rule_form import STEPS, TooMuch
from gpuctl.compile.shape import nearest

_ENVIRONMENT = cel.NewEnv(variables=dict.fromkeys(ROOTS, cel.Type.DYN), extensions=[ext_optional.ExtOptional()])
_PLACED = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_STATUS = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_NAME = r"\w+"
_UNDECLARED = re.compile(r"undeclared reference to '(\w+)")
_MOST_FLAWS = 20
_MOST_ENTRIES = 100
"""If the entries of a list with more than this break a policy, the list is marked as a whole."""
_MOST_READS = 3
_UNNAMED: Path = ("metadata", "name")


@dataclass(frozen=True, slots=True)
class CelFlaw:
    """What is wrong with an expression; `start` and `end` are the characters of its text that are marked."""

    problem: str
    start: int
    end: int
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where and why a declaration breaks a rule, and the steps it took. `failure`: why the rule can't be evaluated."""

    causes: tuple[Cause, ...] = ()
    steps: int = 1
    failure: str = ""


class CelRule:
    """A compiled expression that declarations are checked against, one after another."""

    def __init__(self, expression: Any, tree: Node, patterns: Mapping[str, Pattern], reads: tuple[Read, ...]) -> None:
        self.tree = tree
        self._expression = expression
        self._patterns = patterns
        self._steps: dict[Size, int] = {}
        self.paths = tuple(dict.fromkeys(read.path for read in reads))
        """The paths that are read: a variable and the fields below it, `*` for an entry."""
        self.reads = frozenset({*(path[0] for path in self.paths), *(".".join(path[:2]) for path in self.paths)})
        """The variables that are read, and the fields right below them."""

    @property
    def of_a_change(self) -> bool:
        """Whether the rule compares with what was declared before."""
        return not self.reads.isdisjoint({"old", "oldTotal"})

    def held_against(self, kind: str, values: Mapping[str, Value], at: Path | None) -> Verdict:
        """Evaluate the rule for a declaration. `at`: the field to mark, if the policy names one. Raises TooMuch.

        Cost: the steps of the verdict, each some ten microseconds at most.
        """
        sizes = [value.size for value in values.values()]
        steps = self._most_steps(Size(sum(s.bytes for s in sizes), max(s.entries for s in sizes)))
        if steps > STEPS:
            raise TooMuch
        data = {name: value.value for name, value in values.items()}
        holds = self._holds(data)
        if holds is True:
            return Verdict(steps=steps)
        place = at or self._place(kind)
        if isinstance(holds, str):
            return Verdict((Cause(_above(place), ""),), steps, holds)
        return self._breach(kind, data, place, steps)

    def _most_steps(self, size: Size) -> int:
        """The bound on steps, computed for both sizes rounded up to powers of two."""
        size = Size(1 << size.bytes.bit_length(), 1 << size.entries.bit_length())
        if size not in self._steps:
            self._steps[size] = most_steps(self.tree, self._patterns, size)
        return self._steps[size]

    def _holds(self, data: Mapping[str, Any]) -> bool | str:
        """Whether the rule holds; a text says why it can't be evaluated."""
        try:
            found = self._expression.eval(data=data)
        except (RuntimeError, TypeError, ValueError) as error:
            problem = str(error)
        else:
            if found.type() == cel.Type.BOOL:
                return bool(found.value())
            problem = str(found.value()) if found.type() == cel.Type.ERROR else f"it gives {found.type().name()}"
        if "Iteration budget exceeded" in problem:
            raise TooMuch
        return _problem(problem)

    def _place(self, kind: str) -> Path:
        """The field that the expression reads; of several fields, their common path."""
        fields = {path for path in (_field(kind, path) for path in self.paths) if path}
        found = [path for path in fields if not any(path == other[: len(path)] for other in fields - {path})]
        common: list[str] = []
        for steps in zip(*found, strict=False):
            if len(set(steps)) > 1:
                break
            common.append(steps[0])
        return tuple(common) or _UNNAMED

    def _breach(self, kind: str, data: dict[str, Any], place: Path, steps: int) -> Verdict:
        """Mark the place. If it leads into a list, mark the entries that break the rule by themselves."""
        told = [said(kind, path, data) for path in self.paths if "*" not in path]
        why = ", ".join([*dict.fromkeys(filter(None, told))][:_MOST_READS]) or "it is false"
        above = _above(place)
        entries = value_at(data["object"], above)
        if above == place or not isinstance(entries, list) or not 0 < len(entries) <= _MOST_ENTRIES:
            return Verdict((Cause(above, why),), steps)
        taken = steps * (len(entries) + 2)
        if taken > STEPS or self._holds(_with(data, above, [])) is not True:
            return Verdict((Cause(above, why),), steps)
        wrong = [n for n, each in enumerate(entries) if self._holds(_with(data, above, [each])) is False]
        below = tuple(step for step in place[len(above) + 1 :] if step != "*")
        causes = tuple(Cause((*above, n, *below), self._entry(place, above, entries[n])) for n in wrong)
        return Verdict(causes or (Cause(above, why),), taken)

    def _entry(self, place: Path, above: Path, entry: Any) -> str:
        """Why an entry breaks the rule, by those of its fields that the rule reads."""
        start = ("object", *above, "*")
        paths = [path for path in self.paths if path[: len(start)] == start and len(path) > len(start)]
        told = [
            named_value(".".join(path[len(start) :]), value_at(entry, path[len(start) :]))
            for path in paths[:_MOST_READS]
        ]
        return ", ".join(told) or f"an entry of {place[len(above) - 1]} is {shown_value(entry)}"


def cel_rule(text: str, kind: str) -> CelRule | list[CelFlaw]:
    """The rule of an expression about declarations of a kind, or its flaws. Cost: linear in the text."""
    try:
        expression = _ENVIRONMENT.compile(text)
    except (RuntimeError, TypeError, ValueError) as error:
        return list(_compiler_flaws(str(error), text))
    given = expression.return_type()
    if given.name() not in {"BOOL", "DYN"}:
        return [CelFlaw(f"it gives {given.name()}, not true or false", 0, len(text))]
    tree = tree_of(expression.serialize())
    reads = tuple(reads_of(tree))
    flaws = [*_unknown_functions(tree, text), *_unknown_fields(reads, kind, text)]
    try:
        patterns = patterns_of(tree)
    except NotAPattern as error:
        flaws.append(CelFlaw(f"matches: {error.problem}", 0, len(text), error.fix))
        patterns = {}
    if not flaws and most_steps(tree, patterns, Size(1, 1)) > STEPS:
        flaws.append(CelFlaw(f"it may take more than {STEPS} steps on the smallest declaration", 0, len(text)))
    return flaws[:_MOST_FLAWS] or CelRule(expression, tree, patterns, reads)


def _compiler_flaws(told: str, text: str) -> Iterator[CelFlaw]:
    """The flaws that the library reports, each with line and column from 1; -1 if it has no place."""
    lines = text.split("\n")
    found = _PLACED.findall(told)[:_MOST_FLAWS]
    for row, column, problem in found:
        line = int(row)
        if 1 <= line <= len(lines):
            at = sum(len(each) + 1 for each in lines[: line - 1]) + max(int(column) - 1, 0)
            undeclared = _UNDECLARED.match(problem)
            named = re.escape(undeclared[1]) if undeclared else _NAME
            yield CelFlaw(_problem(problem), *_word(text, at, named))
        else:
            yield CelFlaw(_problem(problem), 0, len(text))
    if not found:
        yield CelFlaw(_problem(told), 0, len(text))


def _problem(told: str) -> str:
    """The first line of the library's message, without its kind of error and its list of all tokens that could
    follow."""
    return _STATUS.sub("", told.partition("\n")[0]).partition(" expecting {")[0].removesuffix(" (in container '')")


def _word(text: str, at: int, name: str = _NAME) -> tuple[int, int]:
    """Start and end of the name at a character or right after it; if there is none, of the character."""
    found = re.compile(rf"[.?(]*\s*({name})\b").match(text, at)
    if found is None and name != _NAME:
        found = re.compile(rf"\b({name})\b").search(text, max(at - len(name), 0))
    return (min(at, max(len(text) - 1, 0)), at + 1) if found is None else (found.start(1), found.end(1))


def _unknown_functions(tree: Node, text: str) -> Iterator[CelFlaw]:
    for node in all_of_tree(tree):
        if isinstance(node, Call) and node.function not in FUNCTIONS:
            yield CelFlaw(f"policies have no function {node.function}", *_word(text, node.at, re.escape(node.function)))


def _unknown_fields(reads: tuple[Read, ...], kind: str, text: str) -> Iterator[CelFlaw]:
    for read in reads:
        problem = field_problem(kind, read.path)
        if problem is not None:
            position, name, known = problem
            yield CelFlaw(
                f"there is no field {'.'.join(read.path[: position + 1])}",
                *_word(text, read.places[position], re.escape(name)),
                nearest(name, known),
            )


def _field(kind: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """The field of the declaration that a path of an expression is about; () if there is none."""
    root, *steps = path
    if root == "object":
        return tuple(steps)
    return TOTALS[kind].get(steps[0], ()) if root == "total" and steps else ()


def _above(place: Path) -> Path:
    """The part of a path before the first `*`."""
    return place[: place.index("*")] if "*" in place else place


def _with(data: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """The variables, with another value at a path of `object`."""

    def changed(here: Any, steps: Path) -> Any:
        return {**here, steps[0]: changed(here[steps[0]], steps[1:])} if steps else value

    return {**data, "object": changed(data["object"], path)}
