"""The options that say whose signatures a commit needs: those of `reconcile` and `install`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from gpuctl.cli.failures import Failure

_MOST_BYTES = 1 << 18
F = TypeVar("F", bound=Callable[..., Any])


def signature_options(function: F) -> F:
    """Add `--verify-signatures`, `--allowed-signers` and `--openpgp-keys`."""
    for option in (
        click.option("--openpgp-keys", metavar="FILE", help="Public keys by `gpg --armor --export`."),
        click.option("--allowed-signers", metavar="FILE", help="SSH keys, as ssh-keygen's ALLOWED SIGNERS."),
        click.option(
            "--verify-signatures",
            type=click.Choice(["each", "head"]),
            is_flag=False,
            flag_value="each",
            help="Apply signed commits only: each since the last good one, or the newest alone.",
        ),
    ):
        function = option(function)
    return function


def check_signers(options: Mapping[str, Any]) -> None:
    """Refuse keys without the check that uses them, and the check without keys."""
    keys = [options["allowed_signers"], options["openpgp_keys"]]
    if options["verify_signatures"] is not None and not any(keys):
        fix = "add --allowed-signers FILE, --openpgp-keys FILE, or both"
        raise Failure("GPU9002", "--verify-signatures needs the keys that may sign", hint=fix)
    if options["verify_signatures"] is None and any(keys):
        raise Failure("GPU9002", "keys that may sign are of no use alone", hint="add --verify-signatures")


def signer_texts(options: Mapping[str, Any]) -> Mapping[str, str | None]:
    """The keys in the files that were named, by option."""
    return {option: _text(options[option]) for option in ("allowed_signers", "openpgp_keys")}


def _text(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode()
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a NUL in the path
        why = getattr(error, "strerror", None) or "it is not text"
        raise Failure("GPU9002", f"{path}: {why}", hint="for OpenPGP: gpg --armor --export KEY") from error
    if len(content) > _MOST_BYTES:
        raise Failure("GPU9002", f"{path} has more than {_MOST_BYTES >> 10} KiB", hint="export fewer keys")
    return text
