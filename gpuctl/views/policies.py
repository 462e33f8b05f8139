"""Policies as a table: what they match, and how often they are broken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.views.tables import NARROW, table

COLUMNS = ("POLICY", "SEVERITY", "KIND", "MATCHES", "BREACHES", "FILE")


def policy_table(counts: Iterable[Mapping[str, Any]], *, wide: bool) -> str:
    """The policies as a table."""
    return table(
        COLUMNS, [tuple(_cell(each[field]) for field in _FIELDS) for each in counts], most=None if wide else NARROW
    )


_FIELDS = ("name", "severity", "kind", "matches", "breaches", "file")


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)
