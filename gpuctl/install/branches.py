"""Makes one template of many objects: differences between installations are put in branches.

`Case`: the switches that are on. Objects are given for many cases. Parts that are equal in all of them are written
once; a part that only some have is put in an `if` over the fewest switches that tell those cases from the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count, groupby
from typing import Any

Case = frozenset[str]
Variant = tuple[Any, frozenset[Case]]
"""A value, and the cases that have it. The variants of one place have different values."""
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*(?::[A-Za-z0-9_./@-]+)*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"})
_MOST = 3
"""The most switches that are on, or off, in the examined cases."""


class Variants:
    """The different values among some values, in the order of their first cases. Keeping equal ones once makes a chart
    in 84 MiB instead of 326."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._cases: dict[str, list[Case]] = {}
        self._last: Any = object()
        self._key = ""

    def add(self, value: Any, cases: Iterable[Case]) -> None:
        """Add a value, and cases that have it."""
        if value is not self._last and value != self._last:  # compare neighbours: writing each value out takes longer
            self._key = json.dumps(value, sort_keys=True)
            self._last = self._values.setdefault(self._key, value)
        self._cases.setdefault(self._key, []).extend(cases)

    def each(self) -> Sequence[Variant]:
        """All variants."""
        return [(self._values[key], frozenset(cases)) for key, cases in self._cases.items()]


@dataclass(frozen=True, slots=True)
class Branches:
    """Writes templates. `switches`: each with the expression that is true if it is on, in order of preference.

    `spelt` gives the expression for a scalar or list that comes from a value of the chart; else None.
    """

    switches: Mapping[str, str]
    spelt: Callable[[Any], str | None]

    def cases(self) -> list[Case]:
        """The cases with up to three switches on, or up to three off. Cost: the third power of the number of
        switches."""
        every = frozenset(self.switches)
        few = [frozenset(some) for size in range(_MOST + 1) for some in combinations(self.switches, size)]
        return list(dict.fromkeys([*few, *(every - some for some in few)]))

    def document(self, bodies: Variants, among: Iterable[Case]) -> str:
        """The template of an object that some of the cases have.

        Cost: each different value is visited once for all cases that have it: a chart takes 2.7 s of processor time
        instead of 6.5.
        """
        known, variants = frozenset(among), bodies.each()
        lines = ["---", *self._block(variants)]
        return "\n".join(self._only(_union(cases for _, cases in variants), known, lines)) + "\n"

    def _block(self, variants: Sequence[Variant]) -> Iterator[str]:
        """The lines of a mapping, not indented."""
        yield from self._entries(variants, "{}:".format)

    def _items(self, variants: Sequence[Variant]) -> Iterator[str]:
        """The lines of a list. Its elements are matched by their name; without one, by their whole value."""
        yield from self._entries([(self._named(value), cases) for value, cases in variants], lambda _: "-")

    def _entries(
        self, variants: Sequence[tuple[Mapping[str, Any], frozenset[Case]]], prefix: Callable[[str], str]
    ) -> Iterator[str]:
        """The lines of entries; those that are there in the same cases share an `if`."""
        keys = _merged([list(value) for value, _ in variants])
        where = {key: _union(cases for value, cases in variants if key in value) for key in keys}
        known = _union(cases for _, cases in variants)
        for some, together in groupby(keys, where.__getitem__):
            lines: list[str] = []
            for key in together:
                there = _grouped((value[key], cases) for value, cases in variants if key in value)
                lines += self._entry(prefix(_text(key)), there)
            yield from self._only(some, known, lines)

    def _entry(self, prefix: str, variants: Sequence[Variant]) -> Iterator[str]:
        """The lines of `prefix` with a value behind it or below it."""
        values = [value for value, _ in variants]
        spelt = [self._inline(value) for value in values]
        if spelt[0] is not None and all(each == spelt[0] for each in spelt):
            yield f"{prefix} {spelt[0]}"
        elif all(isinstance(value, Mapping) and value for value in values):
            block = list(_indented(self._block(variants)))
            if prefix == "-" and not block[0].startswith("{{-"):
                block[0] = f"- {block[0].lstrip()}"
            else:
                yield prefix
            yield from block
        elif all(isinstance(value, list | tuple) and value for value in values) and None in spelt:
            yield prefix
            yield from _indented(self._items(variants))
        else:
            yield from self._either(prefix, variants)

    def _either(self, prefix: str, variants: Sequence[Variant]) -> Iterator[str]:
        """The lines with one branch for each value that an entry may have."""
        left = _union(cases for _, cases in variants)
        word = "if"
        for value, mine in variants:
            yield "{{- else }}" if mine == left else f"{{{{- {word} {self._condition(mine, left)} }}}}"
            yield from self._entry(prefix, [(value, mine)])
            left, word = left - mine, "else if"
        yield "{{- end }}"

    def _inline(self, value: Any) -> str | None:
        """A value on one line; None for a mapping or list that is written below."""
        spelt = self.spelt(value)
        if spelt is not None:
            return f"{{{{ {spelt} }}}}"
        if isinstance(value, str):
            return f"{{{{ toJson {_quoted(value)} }}}}" if "{{" in value else _text(value)
        if isinstance(value, Mapping | list | tuple) and value:
            return None
        return json.dumps(value)

    def _named(self, values: Sequence[Any]) -> dict[str, Any]:
        """The elements of a list by their name or value; equal ones are numbered."""
        found: dict[str, Any] = {}
        for value in values:
            named = isinstance(value, Mapping) and "name" in value
            known = value["name"] if named else self._inline(value) or json.dumps(value, sort_keys=True)
            number = next(n for n in count() if f"{known}/{n}" not in found)
            found[f"{known}/{number}"] = value
        return found

    def _only(self, some: frozenset[Case], known: frozenset[Case], lines: list[str]) -> list[str]:
        if some == known:
            return lines
        return [f"{{{{- if {self._condition(some, known)} }}}}", *lines, "{{- end }}"]

    def _condition(self, some: frozenset[Case], known: frozenset[Case]) -> str:
        """The expression that is true in some of the known cases, and false in the others."""
        for size in range(1, len(self.switches) + 1):
            for chosen in combinations(self.switches, size):
                ends: dict[Case, bool] = {}
                if all(ends.setdefault(case.intersection(chosen), case in some) == (case in some) for case in known):
                    return self._expression(chosen, [on for on, end in ends.items() if end], len(ends))
        raise ValueError("two objects of one case differ")

    def _expression(self, chosen: Sequence[str], on: Sequence[Case], of: int) -> str:
        if len(on) == of - 1 and len(chosen) > 1 and Case() not in on:
            return f"or {' '.join(map(self.switches.__getitem__, chosen))}"
        whole = [self._all(chosen, case) for case in sorted(on, key=sorted)]
        return whole[0] if len(whole) == 1 else f"or {' '.join(f'({each})' for each in whole)}"

    def _all(self, chosen: Sequence[str], case: Case) -> str:
        parts = [self.switches[name] if name in case else f"(not {self.switches[name]})" for name in chosen]
        return parts[0].removeprefix("(").removesuffix(")") if len(parts) == 1 else f"and {' '.join(parts)}"


def _grouped(values: Iterable[tuple[Any, Iterable[Case]]]) -> Sequence[Variant]:
    found = Variants()
    for value, cases in values:
        found.add(value, cases)
    return found.each()


def _union(some: Iterable[frozenset[Case]]) -> frozenset[Case]:
    return frozenset().union(*some)


def go_list(parts: Iterable[str]) -> str:
    """The expression for a text made of parts; each part is the expression of a text."""
    return f'list {" ".join(parts)} | join "" | toJson'


def _quoted(text: str) -> str:
    """A text in a form that both Go and JSON read."""
    return json.dumps(text, ensure_ascii=False)


def _text(value: str) -> str:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if plain else _quoted(value)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.startswith("{{-") else f"  {line}"


def _merged(orders: Sequence[Sequence[str]]) -> list[str]:
    """One order of all elements that agrees with each of the orders. ValueError if there is none."""
    waits: dict[str, set[str]] = {}
    for order in {tuple(each): None for each in orders}:
        for at, key in enumerate(order):
            waits.setdefault(key, set()).update(order[:at])
    merged: list[str] = []
    while waits:
        ready = [key for key, before in waits.items() if before.isdisjoint(waits)]
        if not ready:
            raise ValueError(f"{', '.join(waits)} stand in several orders")
        merged.append(ready[0])
        del waits[ready[0]]
    return merged
