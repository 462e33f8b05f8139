"""Values of gpuctl's own classes as bytes, for a later process.

The bytes are a pickle: a graph of values, whose identities count. Security: reading makes values of the classes of a
few packages and of Decimal, and calls nothing else, whatever the bytes are. The keeper of the bytes must make sure that
gpuctl wrote them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

_OTHERS = frozenset({("decimal", "Decimal")})


def dumped(value: Any) -> bytes:
    """A value as bytes."""
    body = io.BytesIO()
    _Pickler(body, protocol=5).dump(value)
    return body.getvalue()


def loaded(body: bytes, packages: tuple[str, ...]) -> Any:
    """The value of such bytes, made of classes from these packages of gpuctl; None for any other bytes."""
    try:
        return _Unpickler(body, packages).load()
    except Exception:  # noqa: BLE001 - a damaged pickle raises nearly anything, and all of it means the same
        return None


class _Pickler(pickle.Pickler):
    """Writes a dataclass with slots as its class and the values of its fields.

    pickle's default would look the fields up in each of 160,000 values: reading would take 1.4 times as long.
    """

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if is_dataclass(kind) and "__slots__" in vars(kind):
            return _made, (kind, *[getattr(value, field.name) for field in fields(kind)])
        return NotImplemented


def _made(kind: type, *values: Any) -> Any:
    """A dataclass with slots from the values of its fields in their order; none of its methods is called."""
    made: Any = object.__new__(kind)
    for put, value in zip(_slots(kind), values, strict=True):
        put(made, value)
    return made


@cache
def _slots(kind: type) -> list[Callable[[Any, Any], None]]:
    """The setter of each field of a dataclass, frozen or not. Raises TypeError for any other class."""
    return [getattr(kind, field.name).__set__ for field in fields(kind)]


class _Unpickler(pickle.Unpickler):  # noqa: S301 - see above: it finds no class and no function of others
    """Finds classes that a module itself defines, not ones that it imports; of this module only `_made`."""

    def __init__(self, body: bytes, packages: tuple[str, ...]) -> None:
        super().__init__(io.BytesIO(body))
        self._prefixes = tuple(f"gpuctl.{package}." for package in packages)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, _made.__name__):
            return _made
        if (module, name) in _OTHERS or (module.startswith(self._prefixes) and module != __name__):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no class of a value")
