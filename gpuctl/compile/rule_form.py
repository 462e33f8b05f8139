"""Checks a policy's schema: that it is a JSON Schema (2020-12), where its references lead, what its patterns match.

It is not checked against the meta-schema: that takes seconds for a large schema, and lets a reference lead into a value
that no meta-schema has checked. `$id` and `$dynamicRef`, and `$schema` inside of a schema, are refused: each gives a
part of the schema another meaning than its text has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from gpuctl.compile.document import Path
from gpuctl.compile.patterns import NotAPattern, Pattern, TooLargePattern, pattern_of
from gpuctl.compile.scalars import kind_of
from gpuctl.diag.wording import one_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
STEPS = 50_000
"""The most steps for checking one schema, or one declaration against it. A step is some ten microseconds: one keyword
applied to a value, or one value visited."""
STEPS_OF_A_LARGE_PATTERN = 1_000
_MAX_MISTAKES = 20
_MAX_POINTER = 128
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


@dataclass(frozen=True, slots=True)
class Flaw:
    """A mistake in a schema, at a path in it."""

    code: str
    path: Path
    problem: str
    fix: str = ""


class TooMuch(Exception):
    """A schema, or checking a value against it, takes more steps than allowed."""


@dataclass(frozen=True, slots=True, eq=False)
class RuleForm:
    """A checked schema. `targets`: the schema that each reference leads to; `steps`: the steps that checking took."""

    root: Mapping[str, Any]
    targets: Mapping[str, Any]
    patterns: Mapping[str, Pattern]
    steps: int


@dataclass(slots=True)
class _Reading:
    """The result so far. `places`: all schemas by path; `references` and `patterns`: by path."""

    places: dict[Path, Any] = field(default_factory=dict)
    references: dict[Path, str] = field(default_factory=dict)
    patterns: dict[Path, str] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)
    steps: int = 0

    def wrong(self, path: Path, problem: str, fix: str = "", code: str = "GPU4002") -> None:
        self.flaws.append(Flaw(code, path, problem, fix))
        if len(self.flaws) >= _MAX_MISTAKES:
            raise _EnoughSaid

    def charge(self, steps: int) -> None:
        self.steps += steps
        if self.steps > STEPS:
            raise TooMuch


class _EnoughSaid(Exception):
    """Ends the check: so many mistakes have one cause."""


def check_form(schema: Mapping[str, Any]) -> RuleForm | list[Flaw]:
    """The checked schema, or its flaws. Raises TooMuch. Cost: linear in its values."""
    found = _Reading()
    try:
        _walk(schema, found)
        targets = dict(_targets(found))
        patterns = _patterns(found)
        if not found.flaws:
            _check_ends(found, targets)
    except _EnoughSaid:
        return found.flaws
    return found.flaws or RuleForm(schema, targets, patterns, found.steps)


def _walk(root: Any, found: _Reading) -> None:
    """Check every schema in the root. A stack, not recursion: schemas may be nested as deep as YAML."""
    left: list[tuple[Path, Any]] = [((), root)]
    while left:
        path, schema = left.pop()
        found.charge(1)
        if isinstance(schema, bool):
            found.places[path] = schema
            continue
        if not isinstance(schema, dict):
            found.wrong(path, f"a schema is a mapping, true or false, not {kind_of(schema)}")
            continue
        found.places[path] = schema
        below = [(where, part) for key in schema for where, part in _keyword(path, key, schema[key], found)]
        left.extend(reversed(below))


def _keyword(path: Path, key: str, value: Any, found: _Reading) -> Iterator[tuple[Path, Any]]:
    """Check one keyword; yields the schemas in its value."""
    here = (*path, key)
    found.charge(1 + (len(value) if isinstance(value, dict | list) else 0))
    if key in _NOT_READ and not (key in _AT_THE_ROOT and not path):
        found.wrong(here, f"{key} is not read in a policy", "write $ref: '#/$defs/NAME' with the schema below $defs")
    elif key in _ONE:
        yield here, value
    elif key in _SOME:
        if not isinstance(value, list) or not value:
            found.wrong(here, f"{key} must be a list of schemas")
            return
        yield from (((*here, index), part) for index, part in enumerate(value))
    elif key in _NAMED:
        if not isinstance(value, dict):
            found.wrong(here, f"{key} must be a mapping of schemas")
            return
        if key == "patternProperties":
            found.patterns.update(((*here, pattern), pattern) for pattern in value)
        yield from (((*here, name), part) for name, part in value.items())
    elif key in _VALUES:
        wanted, is_right = _VALUES[key]
        if not is_right(value):
            found.wrong(here, f"{key} must be {wanted}")
        elif key == "pattern":
            found.patterns[here] = value
        elif key == "$ref":
            found.references[here] = value


def _targets(found: _Reading) -> Iterator[tuple[str, Any]]:
    """The schema that each reference leads to."""
    anchors = {
        schema["$anchor"]: path
        for path, schema in found.places.items()
        if isinstance(schema, dict) and isinstance(schema.get("$anchor"), str)
    }
    for path, text in found.references.items():
        found.charge(1 + len(text) // 16)
        document, _, fragment = text.partition("#")
        at = _pointed(found, unquote(fragment)) if not fragment or fragment[0] == "/" else anchors.get(fragment)
        if document or "#" not in text or at is None or at not in found.places:
            found.wrong(path, f"it refers to {text}, which is no schema in it")
        else:
            yield text, found.places[at]


def _pointed(found: _Reading, pointer: str) -> Path | None:
    """The path that a JSON pointer stands for; None if it leads nowhere."""
    steps = pointer.split("/", _MAX_POINTER)[1:]
    path: list[str | int] = []
    here = found.places[()]
    for step in (step.replace("~1", "/").replace("~0", "~") for step in steps):
        if isinstance(here, dict) and step in here:
            path.append(step)
            here = here[step]
        elif isinstance(here, list) and step.isascii() and step.isdigit() and len(step) < 9 and int(step) < len(here):
            path.append(int(step))
            here = here[int(step)]
        else:
            return None
    return tuple(path)


def _patterns(found: _Reading) -> dict[str, Pattern]:
    """Every pattern, compiled."""
    patterns: dict[str, Pattern] = {}
    for path, text in found.patterns.items():
        found.charge(1 + len(text) // 16)
        if text in patterns:
            continue
        try:
            patterns[text] = pattern_of(text)
            found.charge(patterns[text].size // 16)
        except TooLargePattern as error:
            found.charge(STEPS_OF_A_LARGE_PATTERN)
            found.wrong(path, error.problem, error.fix, "GPU4004")
        except NotAPattern as error:
            found.wrong(path, error.problem, error.fix, "GPU4004" if error.fix else "GPU4002")
    return patterns


def _check_ends(found: _Reading, targets: Mapping[str, Any]) -> None:
    """Check that no schema applies itself to the same value again, and none more than STEPS keywords to one value.

    Only schemas for the same value count: the use of schemas for parts of a value depends on the declaration.
    """
    weights: dict[int, int | None] = {}
    """The number of keywords that each schema comes to; None while its parts are being counted."""
    for path, schema in found.places.items():
        left = [(schema, False)] if isinstance(schema, dict) else []
        while left:
            here, is_known = left.pop()
            parts = [part for part in _beside(here, targets) if isinstance(part, dict)]
            if is_known:
                weights[id(here)] = weight = len(here) + sum(weights[id(part)] or 0 for part in parts)
                if weight > STEPS:
                    raise TooMuch
            elif id(here) not in weights:
                found.charge(1 + len(parts))
                weights[id(here)] = None
                left.append((here, True))
                left.extend((part, False) for part in parts)
            elif weights[id(here)] is None:
                found.wrong(path, "it refers to itself without end")
                return


def _beside(schema: Mapping[str, Any], targets: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas within this one that apply to the same value."""
    if "$ref" in schema:
        yield targets[schema["$ref"]]
    for key in ("not", "if", "then", "else"):
        if key in schema:
            yield schema[key]
    for key in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(key, ())
    yield from schema.get("dependentSchemas", {}).values()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len({*value}) == len(value)


def _are_types(value: Any) -> bool:
    return value in _TYPES if isinstance(value, str) else _are_names(value) and bool(value) and {*value} <= {*_TYPES}


_ONE = frozenset({
    "not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties",
})  # fmt: skip
_SOME = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_COUNTS = (
    "minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties",
)  # fmt: skip
_VALUES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(_NUMBERS, ("a number", _is_number)),
    **dict.fromkeys(_COUNTS, ("a whole number, not below zero", _is_count)),
    **dict.fromkeys(("$ref", "$anchor", "pattern"), ("text", lambda value: isinstance(value, str))),
    "multipleOf": ("a number above zero", lambda value: _is_number(value) and value > 0),
    "uniqueItems": ("true or false", lambda value: isinstance(value, bool)),
    "required": ("a list of names, each once", _are_names),
    "dependentRequired": (
        "a mapping of lists of names",
        lambda value: isinstance(value, dict) and all(map(_are_names, value.values())),
    ),
    "type": (f"{one_of(_TYPES)}, or a list of these", _are_types),
    "enum": ("a list of values", lambda value: isinstance(value, list)),
}
"""Keywords without schemas in their value: the right form of the value, in words and as a check."""
_AT_THE_ROOT = frozenset({"$id", "$schema"})
_NOT_READ = _AT_THE_ROOT | {"$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"}
