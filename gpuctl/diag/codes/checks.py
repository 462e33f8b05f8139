"""GPU63xx: checks of files before the merge."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU6301",
        title="a file belongs to no cluster",
        message="{path} belongs to no cluster",
        why="A file is checked together with all files of its cluster. The cluster's folder is the outermost one above "
        "the file that is in a folder `clusters`, or in which a file declares a Cluster. This file has none "
        "above it.",
        fix="move it into the folder of a cluster, clusters/NAME, or leave it out of what is checked",
    ),
)
