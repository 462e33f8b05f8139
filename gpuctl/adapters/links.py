"""Links on the way to a folder, and the Git working tree that they lead out of."""

from __future__ import annotations

import os
from pathlib import Path


def holder(folder: Path) -> Path | None:
    """The top of the Git working tree that holds the folder; None without Git."""
    resolved = folder.resolve()
    return next((parent for parent in (resolved, *resolved.parents) if (parent / ".git").exists()), None)


def left_by_link(folder: Path) -> Path | None:
    """The top of the Git working tree that a link on the way to the folder leads out of; None: there is no such link.

    CI jobs check all folders that a repository has, so a link in it could name any folder of their machine. The way
    that an absolute path goes is the caller's own choice.
    """
    for link in () if folder.is_absolute() else (*reversed(folder.parents), folder):
        # os.path raises nothing, for a name that is too long and for links in a circle either.
        top = holder(link.parent) if os.path.islink(link) else None  # noqa: PTH114
        if top is not None and not Path(os.path.realpath(link)).is_relative_to(top):
            return top
    return None
