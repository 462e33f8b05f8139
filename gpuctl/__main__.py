"""The command's entry. `--version` is answered before anything else is imported."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper

from gpuctl import __version__


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        _run()
    finally:
        _drop_unwritten()


def _run() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        with suppress(OSError, AttributeError):  # where it can't be written, the command says so; None is closed
            sys.stdout.write(f"gpuctl {__version__}\n")
            sys.stdout.flush()
            return
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")  # what others wrote may have characters that it lacks
    try:
        from gpuctl.cli.main import gpuctl  # noqa: PLC0415 - only now: click is not needed for the version
    except KeyboardInterrupt:  # later the command takes it
        sys.exit(130)

    plugin = os.path.basename(sys.argv[0]).startswith("kubectl-")  # noqa: PTH119 - without importing pathlib
    gpuctl(prog_name="kubectl gpuctl" if plugin else "gpuctl", complete_var="_GPUCTL_COMPLETE")


def _drop_unwritten() -> None:
    """What can't be written was told. Python would try again as it ends, print that, and exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        except ValueError:  # closed
            pass


if __name__ == "__main__":
    main()
