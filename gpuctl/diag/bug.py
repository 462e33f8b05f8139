"""The text of GPU9001: an exception that no part of gpuctl should have raised, and its place."""

from __future__ import annotations

import traceback


def told_bug(error: Exception) -> str:
    """The exception in one line, with the file and the line that raised it."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    _, is_own, path = frame.f_code.co_filename.rpartition("/gpuctl/")
    place = path if is_own else path.rpartition("/")[2]
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'} ({place}:{line})"
