"""Confines damage to one object: if reading an object raises, it alone is unreadable, and all others are read.

The readers of `k8s/` treat malformed values as absent, so this handles only what they did not foresee.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from gpuctl.model.ids import ObjectRef

V = TypeVar("V")

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Unreadable(Generic[V]):
    """An object that could not be read: what was wrong, and the value to use instead."""

    what: str
    instead: V


def read(make: Callable[[], V], instead: Callable[[], V]) -> V | Unreadable[V]:
    """The result of `make`; if it raises, what was wrong, with the value to use instead.

    `instead` may raise as well: that is a bug of gpuctl, not a damaged object.
    """
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - an object that a tenant can write must not end a cycle
        return Unreadable(f"{type(error).__name__}: {error}"[:_LONGEST], instead())


class Faults:
    """The objects of one observation that could not be read."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[tuple[ObjectRef, str]] = []

    def sift(self, refs: Sequence[ObjectRef], values: Sequence[V | Unreadable[V]]) -> list[V]:
        """The values, with replacements for those that could not be read. Cost: a glance if all could."""
        if Unreadable not in set(map(type, values)):
            return cast("list[V]", list(values))
        sound: list[V] = []
        for ref, value in zip(refs, values, strict=True):
            if isinstance(value, Unreadable):
                self.found.append((ref, value.what))
                sound.append(value.instead)
            else:
                sound.append(value)
        return sound
