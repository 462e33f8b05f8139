"""The few forms of CEL in device selectors here: comparisons with a literal, joined by `&&`.

    device.driver == 'gpu.example.com'
    device.attributes['gpu.example.com'].minor in [0, 1]
    device.attributes['gpu.example.com'].type == 'gpu'

Anything else is a ValueError, so that a selector is refused rather than misread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

Literal: TypeAlias = str | int | bool
Predicate: TypeAlias = Callable[[str, Mapping[str, Literal]], bool]
"""A test of a device's driver and its attributes, each under its qualified name (`domain/name`)."""

_CLAUSE = re.compile(
    r"""\s*device\.(?:(?P<driver>driver)|attributes\[(?P<quote>['"])(?P<domain>[^'"]+)(?P=quote)\]\.(?P<name>\w+))
        \s*(?P<operator>==|in)\s*(?P<literal>.+?)\s*""",
    re.VERBOSE,
)


@lru_cache(maxsize=4096)
def selector(expression: str) -> Predicate:
    """The test that an expression states. Raises ValueError for an expression of another form."""
    tests = tuple(_clause(part, expression) for part in expression.split("&&"))

    def holds(driver: str, attributes: Mapping[str, Literal]) -> bool:
        return all(test(driver, attributes) for test in tests)

    return holds


def _clause(text: str, expression: str) -> Predicate:
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise ValueError(f"the embedded cluster does not know this form of CEL: {expression!r}")
    literal = _literal(match["literal"], expression)
    if isinstance(literal, list) is not (match["operator"] == "in"):
        raise ValueError(f"the embedded cluster does not know this form of CEL: {expression!r}")
    allowed = literal if isinstance(literal, list) else [literal]
    name = f"{match['domain']}/{match['name']}"
    if match["driver"]:
        return lambda driver, _: driver in allowed
    return lambda _, attributes: attributes.get(name) in allowed


def _literal(text: str, expression: str) -> Literal | list[Literal]:
    try:
        value = json.loads(text.replace("'", '"'))
    except ValueError:
        raise ValueError(f"the embedded cluster does not know this form of CEL: {expression!r}") from None
    if isinstance(value, str | int) or (isinstance(value, list) and all(isinstance(v, str | int) for v in value)):
        return value
    raise ValueError(f"the embedded cluster does not know this form of CEL: {expression!r}")
