"""Links on the way to a folder, the Git working tree that they lead out of, and what the folder is called in it."""

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


def name_below(top: Path, path: Path) -> str:
    """What a path that is in a folder is called there. Links below the top are not followed.

    One that is named by a link from elsewhere to within the folder has the name of what the link leads to.
    """
    named, real = path.absolute(), top.resolve()
    outside = next((each for each in (*reversed(named.parents), named) if each.resolve() == real), None)
    inside = path.resolve().relative_to(real) if outside is None else named.relative_to(outside)
    return Path(os.path.normpath(inside)).as_posix()
