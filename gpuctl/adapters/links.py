"""Checks links on the way to a folder: which Git working tree they lead out of, and the folder's name in its tree."""

from __future__ import annotations

import os
from pathlib import Path


def holder(folder: Path) -> Path | None:
    """The top of the Git working tree that holds the folder; None without Git."""
    resolved = folder.resolve()
    return next((parent for parent in (resolved, *resolved.parents) if (parent / ".git").exists()), None)


def left_by_link(folder: Path) -> Path | None:
    """The top of the Git working tree that a link on the way to the folder leads out of; None without such a link.

    Security: CI jobs check all folders of a repository, so a link in it could name any folder of their machine. The way
    of an absolute path is the caller's own choice.
    """
    for link in () if folder.is_absolute() else (*reversed(folder.parents), folder):
        # os.path raises nothing, also for names that are too long and for links in a circle.
        top = holder(link.parent) if os.path.islink(link) else None  # noqa: PTH114
        if top is not None and not Path(os.path.realpath(link)).is_relative_to(top):
            return top
    return None


def name_below(top: Path, path: Path) -> str:
    """The path of a file or folder relative to the top that holds it. Links below the top are not followed.

    If a link elsewhere leads into the top, the path is that of the link's target.
    """
    named, real = path.absolute(), top.resolve()
    outside = next((each for each in (*reversed(named.parents), named) if each.resolve() == real), None)
    inside = path.resolve().relative_to(real) if outside is None else named.relative_to(outside)
    return Path(os.path.normpath(inside)).as_posix()
