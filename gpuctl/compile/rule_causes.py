"""Where and why a declaration breaks a JSON Schema: the deepest node that causes it, and the reason in a few words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import ValidationError

from gpuctl.compile.document import MAX_MISTAKES, Path
from gpuctl.compile.scalars import kind_of
from gpuctl.diag.wording import all_of, one_of

_MOST_REASONS = 3
"""The most reasons given for one place."""
_LONGEST_VALUE = 40
_MOST_VALUES = 8


@dataclass(frozen=True, slots=True)
class Cause:
    """A place in a declaration that breaks a rule, and why: "maxDuration is missing"."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class _Found:
    """An error of one keyword. `refused`: the error is from `not`, which gives no reason of its own."""

    path: Path
    error: ValidationError
    refused: bool = False


def causes(errors: Iterable[tuple[Path, ValidationError]]) -> Sequence[Cause]:
    """The causes of errors, each place once, at most MAX_MISTAKES. Each error comes with the path that it begins at.

    Cost: linear in the errors; for each reported cause, linear in the keyword's value.
    """
    places: dict[Path, dict[str, _Found]] = {}
    for above, error in errors:
        for found in _deepest(error):
            path = (*above, *found.path)
            if path in places or len(places) < MAX_MISTAKES:
                reasons = places.setdefault(path, {})
                if len(reasons) < _MOST_REASONS:
                    reasons.setdefault(str(found.error.validator), found)
    return tuple(
        Cause(path, ", ".join(dict.fromkeys(_why(path, each) for each in reasons.values())))
        for path, reasons in places.items()
    )


def _deepest(error: ValidationError) -> Iterator[_Found]:
    """The nodes that cause an error, as deep as the schema leads."""
    path = tuple(error.absolute_path)
    if error.context:
        yield from _deepest(max(error.context, key=lambda below: len(below.absolute_path)))  # of equals the first
    elif error.validator == "not":
        yield _Found((*path, *_refused(error.validator_value, error.instance)), error, refused=True)
    else:
        yield _Found(path, error)


def _refused(schema: Any, instance: Any) -> Path:
    """The path to the one property that a `not` refuses; () if it is about none or several."""
    if not isinstance(schema, dict) or not isinstance(instance, dict):
        return ()
    named = [*schema.get("required", ()), *schema.get("properties", {})]
    present = [name for name in dict.fromkeys(named) if name in instance]
    if len(present) != 1:
        return ()
    below = schema.get("properties", {}).get(present[0])
    return (present[0], *_refused(below, instance[present[0]]))


def _why(path: Path, found: _Found) -> str:
    """The reason in words."""
    error = found.error
    if found.refused:
        is_named = len(found.path) > len(error.absolute_path) or error.validator_value == {}
        return f"{shown_name(path)} is {'' if is_named else 'of a kind that is '}not allowed"
    say = _REASONS.get(str(error.validator))
    return say(error.validator_value, error.instance) if say else f"{error.validator} does not hold"


def shown_name(path: Path) -> str:
    """The last name of a path, with the positions in a list below it: `volumes[2]`."""
    positions = ""
    for step in reversed(path):
        if isinstance(step, str):
            return f"{step}{positions}"
        positions = f"[{step}]{positions}"
    return "this"


def shown_value(value: Any) -> str:
    """A value in a message: text in quotes and cut, numbers as they are, else its kind."""
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= _LONGEST_VALUE else f'"{value[:_LONGEST_VALUE]}..."'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return kind_of(value) if isinstance(value, dict | list) else f"{value}"


def _values(values: Sequence[Any]) -> str:
    """A choice of values in words; only as many are formatted as are shown."""
    told = [shown_value(value) for value in values[:_MOST_VALUES]]
    return one_of(told if len(values) <= _MOST_VALUES else [*told, f"{len(values) - _MOST_VALUES} more"])


def _missing(names: Sequence[str], instance: Any) -> str:
    missing = [name for name in names if name not in instance]
    return f"{all_of(missing)} {'is' if len(missing) == 1 else 'are'} missing"


def _dependent(needs: Mapping[str, Sequence[str]], instance: Any) -> str:
    for name, wanted in needs.items():
        if name in instance and any(other not in instance for other in wanted):
            return f"{_missing(wanted, instance)} beside {name}"
    return "something is missing"


def _types(wanted: Any, instance: Any) -> str:
    return f"it is {kind_of(instance)}, not {one_of([wanted] if isinstance(wanted, str) else wanted)}"


def _than(words: str) -> Callable[[Any, Any], str]:
    return lambda bound, value: f"{shown_value(value)} is {words} {shown_value(bound)}"


def _many(what: str, words: str) -> Callable[[Any, Any], str]:
    return lambda bound, value: f"{len(value)} {what}, {words} {bound}"


_REASONS: Mapping[str, Callable[[Any, Any], str]] = {
    "required": _missing,
    "dependentRequired": _dependent,
    "type": _types,
    "maximum": _than("more than"),
    "minimum": _than("less than"),
    "exclusiveMaximum": _than("not less than"),
    "exclusiveMinimum": _than("not more than"),
    "multipleOf": _than("not a multiple of"),
    "pattern": _than("no match of"),
    "const": lambda wanted, value: f"{shown_value(value)} is not {shown_value(wanted)}",
    "enum": lambda wanted, value: f"{shown_value(value)} is not {_values(wanted)}",
    "minLength": _many("characters", "fewer than"),
    "maxLength": _many("characters", "more than"),
    "minItems": _many("entries", "fewer than"),
    "maxItems": _many("entries", "more than"),
    "minProperties": _many("fields", "fewer than"),
    "maxProperties": _many("fields", "more than"),
    "uniqueItems": lambda _, __: "two entries are alike",
    "contains": lambda _, __: "too few of its entries, or too many, are of the kind that the policy counts",
    "oneOf": lambda _, __: "more than one of the alternatives holds",
}
"""The reason of each keyword in words, from the keyword's value and the declared value."""
