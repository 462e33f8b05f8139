"""Checks a declaration against a schema in counted steps: the same number, and so the same result, on every machine.

The evaluation is jsonschema's. Keywords whose cost is not linear there, or that use Python's `re`, are reimplemented
here. Each keyword is charged before it is applied to a value: one step, and more if it grows with the value or schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend
from referencing import Registry

from gpuctl.compile.document import Path
from gpuctl.compile.rule_causes import Cause, causes
from gpuctl.compile.rule_form import STEPS, RuleForm, TooMuch

_MAX_NESTING = 100
"""How deep keywords may be nested: each takes a few Python calls, of which the stack holds about a thousand."""
_CHARACTERS_A_STEP = 256
_PATTERN_OPERATIONS_A_STEP = 1_000
_NOTHING: dict[str, Any] = {"not": {}}
"""The meaning of `false`, in a form for which jsonschema reports the place."""

Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


class Budget(FormatChecker):
    """Counts the steps that are used. A validator hands its format checker on to all its parts, so all share one
    budget."""

    def __init__(self, form: RuleForm) -> None:
        super().__init__(formats=())
        self._form = form
        self._of_schema: dict[int, int] = {}
        self._of_value: dict[int, int] = {}
        self.nesting = self.used = 0
        self.schema_size(form.root)  # before any charge: a declaration pays only for itself

    def begin(self) -> None:
        """Start with another declaration."""
        self._of_value = {}
        self.nesting = self.used = 0

    def charge(self, steps: int) -> None:
        """Take steps. Raises TooMuch."""
        self.used += steps
        if self.used > STEPS:
            raise TooMuch

    def enter(self) -> None:
        """Enter a nested keyword. Raises TooMuch."""
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            raise TooMuch

    def schema_size(self, schema: Any) -> int:
        """The characters of a part of the schema."""
        return _characters(schema, self._of_schema)

    def size(self, value: Any) -> int:
        """The characters of a part of the declaration."""
        known = len(self._of_value)
        size = _characters(value, self._of_value)
        self.charge((len(self._of_value) - known) // 4)
        return size

    def target(self, reference: str) -> Any:
        """The schema that a reference leads to."""
        return self._form.targets[reference]

    def matches(self, pattern: str, text: str) -> bool:
        """Whether a part of the text matches."""
        found = self._form.patterns[pattern]
        self.charge(1 + found.size * len(text) // _PATTERN_OPERATIONS_A_STEP)
        return found.is_in(text)


def _characters(value: Any, known: dict[int, int]) -> int:
    """About the length of a value as text; each use of an alias counts. No deeper than YAML may be."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, dict | list):
        return 8
    if id(value) not in known:
        parts = value.values() if isinstance(value, dict) else value
        names = sum(map(len, value)) if isinstance(value, dict) else 0
        known[id(value)] = 2 + names + sum(_characters(part, known) + 2 for part in parts)
    return known[id(value)]


def _charged(name: str, keyword: Keyword) -> Keyword:
    """A keyword that charges the budget. It collects all its errors at once, so that `enter` counts Python's call
    depth."""

    def held_against(validator: Any, value: Any, instance: Any, schema: Any) -> list[ValidationError]:
        budget: Budget = validator.format_checker
        instance_steps = 1 + budget.size(instance) // _CHARACTERS_A_STEP
        if name in _TO_EACH and isinstance(instance, dict | list):
            instance_steps += len(instance)
        times = len(value) if name in _OF_EACH else 1
        budget.charge(budget.schema_size(value) // _CHARACTERS_A_STEP + instance_steps * times)
        budget.enter()
        found = list(keyword(validator, value, instance, schema) or ())
        budget.nesting -= 1
        budget.charge(len(found))
        return found

    return held_against


_TO_EACH = frozenset({
    "items", "prefixItems", "contains", "propertyNames", "patternProperties", "additionalProperties", "uniqueItems",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
"""Keywords that visit each part of the value."""
_OF_EACH = frozenset({"allOf", "anyOf", "oneOf", "dependentSchemas"})
"""Keywords whose parts each apply to the whole value."""


def _reference(validator: Any, reference: str, instance: Any, _: Any) -> Iterator[ValidationError]:
    yield from validator.descend(instance, validator.format_checker.target(reference))


def _pattern(validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not validator.format_checker.matches(pattern, instance):
        yield ValidationError("no part of it matches")


def _part(validator: Any, name: str | int, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Apply a schema to a property or entry."""
    yield from validator.descend(value, _NOTHING if schema is False else schema, path=name)


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    for pattern, schema in patterns.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():
            if validator.format_checker.matches(pattern, name):
                yield from _part(validator, name, value, schema)


def _additional_properties(validator: Any, below: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    known, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
    for name, value in instance.items() if isinstance(instance, dict) else ():
        if name not in known and not any(validator.format_checker.matches(pattern, name) for pattern in patterns):
            yield from _part(validator, name, value, below)


def _unevaluated(of: type[dict[Any, Any] | list[Any]]) -> Keyword:
    def keyword(validator: Any, below: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, of):
            seen = _seen(validator, instance, schema)
            for name, value in _parts(instance):
                if name not in seen:
                    yield from _part(validator, name, value, below)

    return keyword


def _parts(instance: Any) -> Iterable[tuple[str | int, Any]]:
    return instance.items() if isinstance(instance, dict) else enumerate(instance)


def _seen(validator: Any, instance: Any, schema: Any) -> set[str | int]:
    """The properties or entries that a schema evaluates, with all schemas in it that apply to the same value."""
    budget: Budget = validator.format_checker
    budget.charge(1 + len(instance))
    budget.enter()
    seen = set(_seen_by_itself(validator, instance, schema)) if isinstance(schema, dict) else set[str | int]()
    for part in _holding(validator, instance, schema) if isinstance(schema, dict) else ():
        seen |= _seen(validator, instance, part)
    budget.nesting -= 1
    return seen


def _seen_by_itself(validator: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[str | int]:
    one_by_one: tuple[str, ...] = ("additionalProperties", "unevaluatedProperties")
    if isinstance(instance, dict):
        yield from (name for name in schema.get("properties", ()) if name in instance)
        for pattern in schema.get("patternProperties", ()):
            yield from (name for name in instance if validator.format_checker.matches(pattern, name))
    else:
        one_by_one = ("contains", "unevaluatedItems")
        yield from range(len(instance) if "items" in schema else len(schema.get("prefixItems", ())))
    for key in one_by_one:
        if key in schema:
            yield from (name for name, value in _parts(instance) if _is_valid(validator, value, schema[key]))


def _holding(validator: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    """The parts of a schema that apply to the same value and hold for it."""
    if "$ref" in schema:
        yield validator.format_checker.target(schema["$ref"])
    for key in ("allOf", "anyOf", "oneOf"):
        yield from (part for part in schema.get(key, ()) if _is_valid(validator, instance, part))
    if "if" in schema:
        holds = _is_valid(validator, instance, schema["if"])
        yield from (schema[key] for key in (("if", "then") if holds else ("else",)) if key in schema)
    if isinstance(instance, dict):
        yield from (part for name, part in schema.get("dependentSchemas", {}).items() if name in instance)


def _is_valid(validator: Any, instance: Any, schema: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None


def _unique_items(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[ValidationError]:  # noqa: FBT001 - its form
    if wanted and isinstance(instance, list) and len({_comparable(entry) for entry in instance}) < len(instance):
        yield ValidationError("two entries are alike")


def _comparable(value: Any) -> object:
    """A hashable value: two are equal exactly when the values are equal in JSON."""
    match value:
        case bool():
            return (bool, value)
        case dict():
            return frozenset((name, _comparable(below)) for name, below in value.items())
        case list():
            return tuple(_comparable(entry) for entry in value)
        case _:
            return value


def _multiple_of(validator: Any, unit: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "number") and Fraction(instance) % Fraction(unit):
        yield ValidationError(f"it is not a multiple of {unit}")


_OWN: Mapping[str, Keyword] = {
    "$ref": _reference,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated(dict),
    "unevaluatedItems": _unevaluated(list),
    "uniqueItems": _unique_items,
    "multipleOf": _multiple_of,
    "format": lambda *_: None,
}
_KEYWORDS: Mapping[str, Keyword] = {**Draft202012Validator.VALIDATORS, **_OWN}
_CHARGED = {name: _charged(name, keyword) for name, keyword in _KEYWORDS.items()}
_Validator: Any = extend(Draft202012Validator, _CHARGED)  # type: ignore[no-untyped-call] # it has no types


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of a schema, and the path in a declaration that it applies to."""

    path: Path
    validator: Any


class Rule:
    """A schema that declarations are checked against, one after another."""

    def __init__(self, form: RuleForm) -> None:
        self._budget = Budget(form)
        root = {key: value for key, value in form.root.items() if key not in {"$id", "$schema"}}
        self._parts = tuple(self._split((), root, whole=bool(form.targets)))

    def _split(self, path: Path, schema: Any, *, whole: bool) -> Iterator[_Part]:
        """A schema with nothing but `properties`, split into one part for each: most documents have few of them."""
        if set(schema) == {"properties"} and not whole:
            for name, below in schema["properties"].items():
                schemas = {True: {}, False: _NOTHING}
                yield from self._split((*path, name), below if isinstance(below, dict) else schemas[below], whole=whole)
        else:
            yield _Part(path, _Validator(schema, registry=Registry(), format_checker=self._budget))

    def broken(self, data: Any) -> tuple[Sequence[Cause], int]:
        """Where and why a declaration breaks the rule, each place once, and the steps it took. Raises TooMuch.

        At most MAX_MISTAKES places are reported.
        """
        self._budget.begin()
        try:
            found = causes(error for part in self._parts for error in self._broken(part, data))
        except RecursionError:  # the caller is already deep in the stack
            raise TooMuch from None
        return found, self._budget.used

    def _broken(self, part: _Part, data: Any) -> Iterator[tuple[Path, ValidationError]]:
        self._budget.charge(1)
        for step in part.path:
            if not isinstance(data, dict) or step not in data:
                return
            data = data[step]
        for error in part.validator.iter_errors(data):
            yield part.path, error
