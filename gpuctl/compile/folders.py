"""Folders of nodes and of NFS servers: whether one is below another."""

from __future__ import annotations

from gpuctl.compile.choices_v1 import NfsExport


def is_exported(server: str, path: str, export: NfsExport) -> bool:
    """Whether a folder of a server is the listed one or below it. Only the name by which a server is listed counts as
    that server."""
    return server == export.server and is_within(path, export.path)


def is_within(path: str, folder: str) -> bool:
    """Whether a path is the folder or below it, compared part by part: /mnt/data2 is not below /mnt/data.

    Neither contains `..` (GPU2020). Links on the node are not known here: they may lead out of the folder.
    """
    inner, outer = _parts(path), _parts(folder)
    return inner[: len(outer)] == outer


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in {"", "."})
