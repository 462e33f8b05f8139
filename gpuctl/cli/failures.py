"""Failures of a command: one line with a code, one line of help, an exit code."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any

import click

from gpuctl.app.ports import WorldFault
from gpuctl.app.rights import RightMissing
from gpuctl.cli.terminal import say
from gpuctl.diag.bug import told_bug
from gpuctl.diag.codes import CODES
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.views.rights import grant_of
from gpuctl.views.styled import Segment

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""The exit code of every command after Ctrl-C: the shells' usual one, which no command uses for another result."""


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})


class Failure(click.ClickException):
    """The end of a command with a catalogue code. Exit 2, or the code in the command's own table of exit codes."""

    def __init__(self, code: str, message: str, *, hint: str = "", exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.exit_code = exit_code  # type: ignore[misc] # click reads it off the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print to standard error."""
        del file  # click names none
        with suppress(OSError):  # if the message can't be written, the exit code remains
            say(Segment("error", "error"), f" {self.code}: {self.message}", err=True)
            if self.hint:
                say(Segment("help", "help"), f": {self.hint}", err=True)


def exit_code_of(mistakes: Iterable[Diagnostic], failed: int = EXIT_FAILED) -> int:
    """The exit code for declarations with mistakes: 2 if one of them is a bug of gpuctl, else `failed`."""
    return EXIT_USAGE if any(found.code == "GPU9001" for found in mistakes) else failed


def usage_failure(error: click.UsageError, instead: str = "") -> Failure:
    """The failure for a wrong command line, with what to do instead, or the command whose help has more."""
    path = error.ctx.command_path if error.ctx else "gpuctl"
    said = error.format_message().replace("\n\t", " ")  # click lists choices one a line
    return Failure("GPU9002", said, hint=instead or f"gpuctl explain GPU9002, or: {path} --help")


def world_failure(fault: WorldFault, instead: str = "") -> Failure:
    """The failure for a fault of the outside world, with what to do; for a missing right, who can grant it. `instead`:
    another command that was probably meant."""
    fix = grant_of(fault.right) if isinstance(fault, RightMissing) else CODES[fault.code].fix
    meant = f"{instead}. " if instead else ""
    return Failure(fault.code, str(fault), hint=f"{meant}{fix}   more: gpuctl explain {fault.code}")


def unforeseen_failure(error: Exception) -> Failure:
    """The failure for a full disk, which any write may meet; else for a bug of gpuctl, with its place and how to report
    it."""
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        text = f"the output can't be written: {error.strerror}"
        return Failure("GPU9004", text, hint="make room on the disk, or write elsewhere")
    return Failure(
        "GPU9001",
        f"internal error: {told_bug(error)}",
        hint="this is a bug in gpuctl. Report it with this line, the command line and `gpuctl version -o json`",
    )
