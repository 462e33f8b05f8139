"""JSON of another system: bounded, and read field by field, so that fields which can't be declared are reported by
name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

from gpuctl.edit import Target, Value
from gpuctl.scaffold.foreign.places import Path

MOST_BYTES = 32 << 20
MOST_ITEMS = 20_000
LISTS = ("items", "projects", "departments", "workloads", "jobs", "queues")
"""The fields of a document's top that hold the listed objects."""
_EMPTY: tuple[Any, ...] = (None, "", [], {}, False)
_SECRET = re.compile(r"SECRET:([^,]{1,253}),([^,]{1,253})")
"""A key of a Secret, in the form of Run:ai's command line."""
_SECRET_NAME = re.compile(
    r"(?i)(?:.*_)?(?:PASSWORD|PASSWD|PASSPHRASE|TOKEN|SECRET|CREDENTIALS?|(?:API|ACCESS|SECRET|PRIVATE)_?KEY)"
)
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|[a-z][a-z0-9+.-]{0,19}://[^/\s:@]{0,256}:[^/\s@]{1,256}@"
)
"""The form of secrets. Security: everybody who reads the repository can read what is in Git, for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The cluster that things are declared in. `pools`: the node labels of each; `by_pool`: whether quotas are by pool.

    The rest is what jobs may have there: folders `nfs` of servers, `csi_drivers`, at most `grace_s` to stop in; and the
    keys of taints that its pools tolerate.
    """

    pools: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    by_pool: bool | None = None
    prefix: str = "gpu-"
    nfs: tuple[tuple[str, str], ...] = ()
    csi_drivers: frozenset[str] = frozenset()
    grace_s: int = 300
    tolerated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """A declaration to write. `unsaid`: what its origin has besides; `origin`: that object, if there is one."""

    target: Target
    spec: Mapping[str, Value]
    unsaid: tuple[str, ...] = ()
    origin: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Something that is not declared at all, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found: declarations to write, owners before their jobs; and what can't be declared."""

    things: tuple[Thing, ...] = ()
    left: tuple[Left, ...] = ()


class Record:
    """A JSON object. A field that is read counts as said; `rest` names the others. `{value: X}` reads as X."""

    def __init__(self, data: Any, at: str = "") -> None:
        self._data: Mapping[str, Any] = data if isinstance(data, dict) else {}
        self._at = at
        self._read: set[str] = set()
        self._below: list[Record] = []

    @property
    def at(self) -> str:
        """Its path, with a dot at the end."""
        return self._at

    def take(self, *names: str) -> Any:
        """The value of the first of these fields that has one, else None. All of them count as said."""
        self._read.update(names)
        values = (unwrapped(self._data.get(name)) for name in names)
        return next((value for value in values if value is not None), None)

    def skip(self, name: str, usual: tuple[Any, ...]) -> None:
        """Count a field as said if it has one of these values."""
        if self._data.get(name) in usual:
            self._read.add(name)

    def take_all(self) -> None:
        """Count all of its fields as said: it is reported as a whole."""
        self._read.update(self._data)
        for record in self._below:
            record.take_all()

    def text(self, *names: str) -> str:
        """As `take`, for a text; "" for any other value."""
        value = self.take(*names)
        return value if isinstance(value, str) else ""

    def below(self, *names: str) -> Record:
        """The object in the first of these fields that has one; `rest` also names its unread fields."""
        self._read.update(names)
        name = next((each for each in names if isinstance(self._data.get(each), dict)), names[0])
        record = Record(unwrapped(self._data.get(name)), f"{self._at}{name}.")
        self._below.append(record)
        return record

    def list_of(self, *names: str) -> list[Any]:
        """The entries of the first of these fields that is a list, or a mapping of entries by name."""
        value = self.take(*names)
        if isinstance(value, dict):
            held = value.get("items", value.get("instances", value))
            if isinstance(held, dict):
                return [{"name": key, **(each if isinstance(each, dict) else {"value": each})}
                        for key, each in held.items()]  # fmt: skip
            value = held
        return value if isinstance(value, list) else []

    def rest(self) -> list[str]:
        """The fields that were not read and hold something."""
        here = [f"{self._at}{name}" for name, value in self._data.items()
                if name not in self._read and unwrapped(value) not in _EMPTY]  # fmt: skip
        return [*here, *(name for record in self._below for name in record.rest())]


def unwrapped(value: Any) -> Any:
    """The value of `{value: X}`, as Run:ai's workloads have it; any other value as it is."""
    return value["value"] if isinstance(value, dict) and value.keys() == {"value"} else value


class Item(NamedTuple):
    """An object of a document: the name of the list that holds it, its data, and its path in the document."""

    held_in: str
    data: Mapping[str, Any]
    path: Path = ()


def items(content: bytes) -> list[Item]:
    """The objects of a document. Raises ValueError with the reason."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        data = json.loads(content.decode("utf-8-sig"), parse_float=Decimal, parse_constant=_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    found = []
    for each in _listed(Item("", data)):
        found.append(each)
        if len(found) > MOST_ITEMS:
            raise ValueError(f"it has more than {MOST_ITEMS} objects")
    return found


def _listed(held: Item, depth: int = 0) -> Iterator[Item]:
    """The objects in lists, at most three lists deep."""
    data: Any = held.data
    if isinstance(data, list):
        for at, each in enumerate(data):
            yield from _listed(Item(held.held_in, each, (*held.path, at)), depth)
    elif isinstance(data, dict):
        lists = [name for name in LISTS if isinstance(data.get(name), list)]
        if not lists or depth > 2 or "spec" in data or ("metadata" in data and "items" not in data):
            yield held
        else:
            for name in lists:
                held_in = name if name != "items" else held.held_in
                yield from _listed(Item(held_in, data[name], (*held.path, name)), depth + 1)


def given(fields: dict[str, Value]) -> dict[str, Value]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {})}


def variables(entries: Iterable[Any], at: str, unsaid: list[str]) -> dict[str, Value]:
    """Environment variables: texts, or keys of Secrets. A text that looks like a secret is reported and left out."""
    env: dict[str, Value] = {}
    for entry in entries:
        record = Record(entry)
        name, value = record.text("name"), record.take("value")
        secret = record.below("valueFrom").below("secretKeyRef")
        told = secret if secret.text("name") else record.below("secret")
        if told.text("name") and told.text("key"):
            env[name] = {"secret": told.text("name"), "key": told.text("key")}
        elif isinstance(value, str) and (of_secret := _SECRET.fullmatch(value)):
            env[name] = {"secret": of_secret[1], "key": of_secret[2]}
        elif isinstance(value, str) and _is_secret(name, value):
            unsaid.append(f"{at} {name}: it looks like a secret, so it is not written: take it from a Secret")
        elif isinstance(value, str | int) and not isinstance(value, bool):
            env[name] = str(value)
        elif isinstance(value, bool):
            env[name] = "true" if value else "false"
        else:
            unsaid.append(f"{at} {name}")
    return env


def _is_secret(name: str, value: str) -> bool:
    looks_so = bool(_SECRET_NAME.fullmatch(name)) or bool(_SECRET_VALUE.search(value))
    return looks_so and value not in {"", "true", "false"} and not value.startswith("$(")


def strings(values: Iterable[Any]) -> list[str]:
    """The texts among some values."""
    return [value for value in values if isinstance(value, str)]


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
