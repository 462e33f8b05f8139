"""Which clusters a file belongs to, by the folders it is in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gpuctl.adapters.files import read_regular
from gpuctl.model.source import MAX_FILE_BYTES, YAML_SUFFIXES

CLUSTERS = "clusters"
POLICIES = "policies"
_CLUSTER = re.compile(rb"^kind:[ \t]*[\"']?Cluster[\"']?[ \t]*(#.*)?\r?$", re.MULTILINE)
_MOST_FILES = 1000
"""The most files of a folder that are searched for a Cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The folders of clusters, each once, in the order they were found; and files that belong to none."""

    folders: tuple[str, ...]
    strangers: tuple[str, ...]


def clusters_of(paths: Iterable[str]) -> Found:
    """Map files and folders to the folders of their clusters.

    A cluster's folder is the one in the folder `clusters` at the top of the Git working tree, whether or not a file
    above it declares a Cluster, as a change could add one. Else it is the outermost folder above the file that is in a
    folder `clusters`, or that has a YAML file with a Cluster in it; nothing above the top of the Git working tree is
    searched.

    Security: it is the outermost one, because the people of a project could otherwise declare their own Cluster around
    their files. A file below `policies` belongs to all clusters in the folder `clusters` beside it. A folder that
    belongs to no cluster stands for itself.
    """
    folders: dict[str, None] = {}
    strangers: list[str] = []
    for path in paths:
        found = list(_clusters(path))
        folders.update(dict.fromkeys(found))
        if not found:
            strangers.append(path)
    return Found(folders=tuple(folders), strangers=tuple(strangers))


def _clusters(path: str) -> Iterator[str]:
    here = Path(os.path.abspath(path))  # noqa: PTH100 - as it is named: a linked file belongs where its link is
    is_folder = here.is_dir()
    above = _from_the_top(here if is_folder else here.parent)
    usual = [folder for folder in above if folder.parent == above[0] / CLUSTERS]
    for folder in usual or above:
        if folder.parent.name == CLUSTERS or _declares_cluster(folder):
            yield path if folder == here else _as_given(folder, path)
            return
    if is_folder:
        yield path
        return
    for folder in above:
        if folder.name == POLICIES:
            beside = sorted(one for one in folder.parent.joinpath(CLUSTERS).glob("*") if one.is_dir())
            yield from (_as_given(one, path) for one in beside)
            return


def _from_the_top(folder: Path) -> list[Path]:
    """The folders down to this one, from the top of its Git working tree, or without Git from the filesystem's root."""
    below: list[Path] = []
    for one in (folder, *folder.parents):
        below.append(one)
        if (one / ".git").exists():
            break
    return below[::-1]


def _declares_cluster(folder: Path) -> bool:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _MOST_FILES):
            with suppress(OSError):
                named = entry.name.endswith(YAML_SUFFIXES)
                if named and _CLUSTER.search(read_regular(Path(entry.path), MAX_FILE_BYTES)):
                    return True
    return False


def _as_given(folder: Path, path: str) -> str:
    """A folder, absolute or relative to the working directory, in the same form as the path."""
    return folder.as_posix() if Path(path).is_absolute() else Path(os.path.relpath(folder)).as_posix()
