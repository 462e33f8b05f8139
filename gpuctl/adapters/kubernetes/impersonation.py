"""The headers by which a user of a kubeconfig acts as another one, as `kubectl` sends them.

The kubernetes package silently leaves them out, so a command would have the rights of the user itself. Source:
client-go, transport/round_trippers.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

Headers = tuple[tuple[str, str], ...]
"""Names and values; a name may occur several times."""
_AS, _GROUPS, _UID, _EXTRA = "as", "as-groups", "as-uid", "as-user-extra"


def headers_of(user: Mapping[str, Any]) -> Headers:
    """The headers; empty for a user that acts as itself. Raises ValueError for values that kubectl would refuse too."""
    found = tuple(_headers(user))
    for name, value in found:
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"{name} is no header of printable ASCII")
    if found and found[0][0] != "Impersonate-User":
        raise ValueError(f"its user has groups, an uid or more to act with, and no `{_AS}`")
    return found


def _headers(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if user.get(_AS):
        yield "Impersonate-User", _text(user[_AS], _AS)
    for group in _list(user.get(_GROUPS), _GROUPS):
        yield "Impersonate-Group", group
    if user.get(_UID):
        yield "Impersonate-Uid", _text(user[_UID], _UID)
    extra = user.get(_EXTRA) or {}
    if not isinstance(extra, Mapping):
        raise ValueError(f"`{_EXTRA}` is no mapping")  # noqa: TRY004 - what is wrong is a value in a file
    for key in sorted(extra, key=str):
        for value in _list(extra[key], _EXTRA):
            yield f"Impersonate-Extra-{quote(_text(key, _EXTRA).lower(), safe='')}", value


def _list(values: Any, field: str) -> Iterator[str]:
    if not isinstance(values, list | None):
        raise ValueError(f"`{field}` is no list of texts")  # noqa: TRY004
    yield from (_text(value, field) for value in values or ())


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{field}` has what is no text")
    return value
