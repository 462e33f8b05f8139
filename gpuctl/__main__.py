"""The command's entry. `--version` is answered before anything else is imported."""

from __future__ import annotations

import sys

from gpuctl import __version__


def main() -> None:
    """Run the command line and leave with its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"gpuctl {__version__}\n")
        return
    from gpuctl.cli.main import gpuctl  # noqa: PLC0415 - only now: click is not needed for the version

    gpuctl(prog_name="gpuctl")


if __name__ == "__main__":
    main()
