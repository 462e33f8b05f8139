"""The progress that a job reports: by an annotation of its pod, or by a line in its log.

Security: a tenant writes both. It is shown to people, and nothing is decided by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuctl.model.units import DurationMs

WHOLE_PPM = 1_000_000
MOST_LOG_BYTES, MOST_LOG_LINES = 64 * 1024, 200
"""How much of the end of a log is read."""
_RATIO = re.compile(r"(?:0(?:\.(\d{1,6})\d{0,12})?|(1)(?:\.0{1,18})?)")
_PERCENT = re.compile(r"(\d{1,3})(?:\.(\d{1,4})\d{0,12})?\s?%")
_LINE = re.compile(rb"gpuctl: progress ([0-9.]{1,20} ?%?)\s*$")


def decode_progress(text: object) -> int | None:
    """The progress in millionths of `0.42` or `42%`; None for any other text or value."""
    if not isinstance(text, str) or not text.isascii():
        return None
    if ratio := _RATIO.fullmatch(text):
        return WHOLE_PPM if ratio[2] else int((ratio[1] or "").ljust(6, "0"))
    if percent := _PERCENT.fullmatch(text):
        ppm = int(percent[1]) * 10_000 + int((percent[2] or "").ljust(4, "0"))
        return ppm if ppm <= WHOLE_PPM else None
    return None


def progress_in_log(parts: Iterable[bytes]) -> int | None:
    """The progress in the last line `gpuctl: progress 0.42`, in at most MOST_LOG_BYTES."""
    text = bytearray()
    for part in parts:
        text += part[: MOST_LOG_BYTES - len(text)]
        if len(text) >= MOST_LOG_BYTES:
            break
    found = (_LINE.search(line) for line in reversed(bytes(text).splitlines()))
    return next((ppm for each in found if each and (ppm := decode_progress(each[1].decode())) is not None), None)


def left_ms(progress_ppm: int, ran_ms: DurationMs) -> DurationMs | None:
    """How long the rest takes at the pace so far; None if nothing is done yet, or nothing is left."""
    if not 0 < progress_ppm < WHOLE_PPM or ran_ms <= 0:
        return None
    return ran_ms * (WHOLE_PPM - progress_ppm) // progress_ppm
