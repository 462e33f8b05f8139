"""Files that are named on the command line: read as a whole, but no further than a bound."""

from __future__ import annotations

from pathlib import Path

from gpuctl.cli.failures import Failure


def named_file(path: str | Path, most_bytes: int) -> bytes:
    """The content; of a larger file, or one without end, `most_bytes` and one more. It may be a pipe."""
    try:
        with Path(path).open("rb") as file:
            return file.read(most_bytes + 1)
    except OSError as error:
        raise Failure("GPU3904", f"{path} can't be read: {error.strerror}") from error
