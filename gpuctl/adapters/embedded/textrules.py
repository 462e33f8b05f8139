"""The texts that a server accepts as names and labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def is_label(name: str) -> bool:
    """Whether a name is a DNS label (RFC 1123)."""
    return _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Whether a name is DNS labels with dots between, at most 253 characters."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def label_problems(where: str, labels: Mapping[str, Any]) -> Iterable[str]:
    """The faults of labels: keys must be names with an optional DNS prefix, values empty or like a name."""
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not _QUALIFIED.fullmatch(name) or (slash and not is_subdomain(prefix)):
            yield f"{where}: Invalid value: {key!r}: not a qualified name"
        if not isinstance(value, str) or (value and not _QUALIFIED.fullmatch(value)):
            yield f"{where}: Invalid value: {value!r}: not a label value"
