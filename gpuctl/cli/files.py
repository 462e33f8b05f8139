"""Read files that are named on the command line, up to a bound."""

from __future__ import annotations

from pathlib import Path

from gpuctl.cli.failures import Failure


def named_file(path: str | Path, most_bytes: int) -> bytes:
    """The content, which may come from a pipe; for a larger file, the first `most_bytes` and one more."""
    try:
        with Path(path).open("rb") as file:
            return file.read(most_bytes + 1)
    except OSError as error:
        raise Failure("GPU3904", f"{path} can't be read: {error.strerror}") from error
