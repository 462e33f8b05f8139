"""RFC 3339 texts to milliseconds since the Unix epoch and back, without floats.

gpuctl writes milliseconds in UTC; Kubernetes itself writes whole seconds. Both are read, with any offset. Instants are
from 1970 to 9999 in UTC: every one that can be read can be written.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from gpuctl.diag.wording import instant
from gpuctl.model.units import Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def parse_timestamp(text: str) -> Instant:
    """Milliseconds since the epoch, finer parts dropped. ValueError for any other text, or without an offset."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a timestamp without an offset: {text!r}")
    if not _EPOCH <= moment <= _END:
        raise ValueError(f"a timestamp before 1970 or after 9999: {text!r}")
    return (moment - _EPOCH) // _MILLISECOND


@lru_cache(maxsize=4096)
def format_timestamp(at_ms: Instant) -> str:
    """1596000000000 -> "2020-07-29T05:20:00.000Z"."""
    moment = _EPOCH + timedelta(milliseconds=at_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def format_seconds(at_ms: Instant) -> str:
    """An instant in the form of Kubernetes' own fields, without parts of a second: "2020-07-29T05:20:00Z"."""
    return instant(at_ms)
