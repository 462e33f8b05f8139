"""The error catalogue: every code once, with its cause, fix and first version. Codes are never reused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEntry:
    """One code. `message` is a format string over the parameters of its reason or diagnostic."""

    code: str
    title: str
    message: str
    why: str
    fix: str
    since: str = "0.1.0"


def catalogue(families: Iterable[Iterable[CodeEntry]]) -> Mapping[str, CodeEntry]:
    """Index entries by code; ValueError for a duplicate code."""
    entries: dict[str, CodeEntry] = {}
    for entry in (e for family in families for e in family):
        if entry.code in entries:
            raise ValueError(f"duplicate code {entry.code} in the catalogue")
        entries[entry.code] = entry
    return dict(sorted(entries.items()))
