"""The command's entry. `--version` is answered before anything else is imported."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from gpuctl import __version__


def main() -> None:
    """Run the command line and leave with its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"gpuctl {__version__}\n")
        return
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")  # what others wrote may have characters that it lacks
    try:
        from gpuctl.cli.main import gpuctl  # noqa: PLC0415 - only now: click is not needed for the version
    except KeyboardInterrupt:  # later the command takes it
        sys.exit(130)

    plugin = os.path.basename(sys.argv[0]).startswith("kubectl-")  # noqa: PTH119 - without importing pathlib
    gpuctl(prog_name="kubectl gpuctl" if plugin else "gpuctl", complete_var="_GPUCTL_COMPLETE")


if __name__ == "__main__":
    main()
