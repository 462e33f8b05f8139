"""Translates a policy's JSON Schema into a CEL expression, for admission policies.

A translated schema gives the same verdict on a declaration and on the pods made from it. Each field that a pod shows is
text, a list or a mapping, so keywords are translated by the type of the field: `pattern` does not apply to a list. If a
pod looks the same for two declarations, as for `command: []` and no `command`, the schema must give the same verdict on
both. Everything else is refused, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.compile.rule_form import RuleForm, TooMuch, check_form
from gpuctl.compile.rule_steps import Rule

NO_FIELD = "which no pod or workload shows as it is declared"
TOO_LARGE = "its schema is too large for an expression in CEL"
LOOKS_LEFT_OUT: Mapping[tuple[str, ...], Any] = {
    ("spec", "type"): "training",
    ("spec", "imagePullPolicy"): "IfNotPresent",
    ("spec", "command"): [],
    ("spec", "args"): [],
    ("spec", "volumes"): [],
    ("spec", "workingDir"): None,
    ("spec", "volumes", "*", "hostPath"): None,
}
"""The value with which a pod looks as it does without the field. Fields not listed here are in every declaration."""
_SAYS_NOTHING = frozenset({
    "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
    "format",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
})  # fmt: skip
"""Keywords without a meaning in a policy, and keywords about numbers: no field that a pod shows is a number."""
_JOINED = frozenset({"properties", "required", "contains", "minContains", "maxContains"})
"""Keywords that are translated together."""
_PORTABLE = re.compile(r"(?:(?!\(\?[^:])[ -\[\]-~]|\\[ABDSWbdfnrstvwz!-/:-@\[-`{-~])*")
"""Regular expressions with the same meaning in RE2 and Go: without flags, and classes that grow with Unicode."""
_MOST_NESTING = 32
_MOST_CHARACTERS = 4_000
_YES, _NO = "true", "false"


@dataclass(frozen=True, slots=True)
class Unsaid:
    """Why a schema has no expression."""

    why: str


class _NoFormError(Exception):
    """A part of the schema can't be written in CEL."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A part of the declaration: its path, the expression that reads it, and the paths that pods show."""

    path: tuple[str, ...]
    value: str
    shown: frozenset[tuple[str, ...]]

    @property
    def type(self) -> str:
        """Its type in the words of JSON Schema."""
        if (*self.path, "*") in self.shown:
            return "array"
        return "object" if self._has_fields(self.path) else "string"

    def field(self, name: str) -> _Place:
        """A field of this part."""
        path = (*self.path, name)
        if path not in self.shown and not self._has_fields(path):
            raise _NoFormError(f"it reads {_named(path)}, {NO_FIELD}")
        return _Place(path, f"{self.value}.{name}", self.shown)

    def entry(self) -> _Place:
        """Each of its entries, as a variable."""
        return _Place((*self.path, "*"), f"e{len(self.path)}", self.shown)

    def _has_fields(self, path: tuple[str, ...]) -> bool:
        return any(len(other) > len(path) and other[: len(path)] == path for other in self.shown)


def schema_cel(schema: Mapping[str, Any], shown: frozenset[tuple[str, ...]]) -> str | Unsaid:
    """The expression about `object` that is true exactly if a job keeps the schema, or why there is none.

    `shown`: paths of the fields that a pod shows as declared, `*` for an entry. Cost: linear in the schema.
    """
    try:
        if not isinstance(check_form(schema), RuleForm):
            return Unsaid("its schema is wrong: gpuctl validate")
        said = _said(schema, _Place((), "object", shown), 0)
    except TooMuch:
        return Unsaid(TOO_LARGE)
    except _NoFormError as error:
        return Unsaid(str(error))
    return said if len(said) <= _MOST_CHARACTERS else Unsaid(TOO_LARGE)


def _said(schema: Any, at: _Place, depth: int) -> str:
    if isinstance(schema, bool):
        return _YES if schema else _NO
    if depth > _MOST_NESTING:
        raise _NoFormError(TOO_LARGE)
    if at.type == "object":
        parts = [_fields(schema, at, depth)]
    elif at.type == "array":
        parts = [_contains(schema, at, depth)]
    else:
        parts = []
    parts += [_keyword(key, value, at, depth) for key, value in schema.items() if key not in _JOINED | _SAYS_NOTHING]
    return _all(parts)


def _keyword(key: str, value: Any, at: _Place, depth: int) -> str:
    is_list, is_text = at.type == "array", at.type == "string"
    match key:
        case "allOf":
            return _all(_said(part, at, depth + 1) for part in value)
        case "anyOf":
            return _any(_said(part, at, depth + 1) for part in value)
        case "oneOf":
            return f"({' + '.join(f'({_said(part, at, depth + 1)} ? 1 : 0)' for part in value)}) == 1"
        case "not":
            return _not(_said(value, at, depth + 1))
        case "type":
            return _YES if at.type in ([value] if isinstance(value, str) else value) else _NO
        case "const":
            return _any([_equals(value, at)])
        case "enum":
            return _any(_equals(each, at) for each in value)
        case "pattern":
            return _pattern(value, at) if is_text else _YES
        case "minLength" | "minItems":
            return f"size({at.value}) >= {value}" if (is_text if key == "minLength" else is_list) else _YES
        case "maxLength" | "maxItems":
            return f"size({at.value}) <= {value}" if (is_text if key == "maxLength" else is_list) else _YES
        case "items":
            return _each(value, at, depth) if is_list else _YES
        case _:
            raise _NoFormError(f"its schema has {json.dumps(key)}, which is not translated to CEL")


def _fields(schema: Mapping[str, Any], at: _Place, depth: int) -> str:
    """`properties` and `required`."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    parts = []
    for name in dict.fromkeys((*properties, *required)):
        below, is_required = at.field(name), name in required
        part = properties.get(name, True)
        said = _said(part, below, depth + 1)
        if below.path not in LOOKS_LEFT_OUT:
            parts.append(said)
            continue
        alike = LOOKS_LEFT_OUT[below.path]
        if _keeps(alike, part) is is_required:
            raise _NoFormError(f"no pod shows whether {_named(below.path)} is left out or {json.dumps(alike)}")
        if alike is not None:
            parts.append(said)
        else:
            has = f"has({below.value})"
            parts.append(_all([has, said]) if is_required else _any([f"!{has}", said]))
    return _all(parts)


def _keeps(value: Any, schema: Any) -> bool:
    """Whether a value keeps a part of a schema."""
    form = check_form({"allOf": [schema]})
    return isinstance(form, RuleForm) and not Rule(form).broken(value)[0]


def _each(schema: Any, at: _Place, depth: int) -> str:
    entry = at.entry()
    said = _said(schema, entry, depth + 1)
    return said if said == _YES else f"{at.value}.all({entry.value}, {said})"


def _contains(schema: Mapping[str, Any], at: _Place, depth: int) -> str:
    """`contains`, `minContains` and `maxContains`."""
    if "contains" not in schema:
        return _YES
    entry = at.entry()
    said = _said(schema["contains"], entry, depth + 1)
    fewest, most = schema.get("minContains", 1), schema.get("maxContains")
    if fewest == 1 and most is None:
        return f"{at.value}.exists({entry.value}, {said})"
    found = f"size({at.value}.filter({entry.value}, {said}))"
    return _all([f"{found} >= {fewest}", *([] if most is None else [f"{found} <= {most}"])])


def _equals(wanted: Any, at: _Place) -> str:
    if at.type == "object" or (at.type == "array" and at.entry().type == "object"):
        raise _NoFormError(f"it compares all of {_named(at.path)} with a value; no pod shows all of it")
    if isinstance(wanted, str):
        return f"{at.value} == {_text(wanted)}" if at.type == "string" else _NO
    if at.type == "array" and isinstance(wanted, list) and all(isinstance(each, str) for each in wanted):
        return f"{at.value} == [{', '.join(map(_text, wanted))}]" if wanted else f"size({at.value}) == 0"
    return _NO


def _pattern(pattern: str, at: _Place) -> str:
    if not _PORTABLE.fullmatch(pattern):
        raise _NoFormError(f"the API server may read its pattern {json.dumps(pattern)} differently")
    return f"{at.value}.matches({_text(pattern)})"


def _named(path: Iterable[str]) -> str:
    return ".".join(("object", *path))


def _text(value: str) -> str:
    """A text as a CEL literal."""
    plain = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(plain.get(c, c) if " " <= c <= "~" else f"\\U{ord(c):08x}" for c in value) + '"'


def _all(parts: Iterable[str]) -> str:
    left = [part for part in parts if part != _YES]
    if _NO in left:
        return _NO
    return left[0] if len(left) == 1 else f"({' && '.join(left)})" if left else _YES


def _any(parts: Iterable[str]) -> str:
    left = [part for part in parts if part != _NO]
    if _YES in left:
        return _YES
    return left[0] if len(left) == 1 else f"({' || '.join(left)})" if left else _NO


def _not(said: str) -> str:
    return {_YES: _NO, _NO: _YES}.get(said, f"!({said})")
