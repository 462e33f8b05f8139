"""A new repository for one cluster, as files: declarations, CODEOWNERS, CI, the schema that editors use. Pure.

`pools` reads pools from the command line, `livepools` groups the nodes of a live cluster, `repository` makes the files.
"""

from __future__ import annotations

from gpuctl.scaffold.livepools import Seen, pools_seen
from gpuctl.scaffold.pools import Pool, pool_of
from gpuctl.scaffold.repository import EXAMPLES, POLICIES, Beginning, files

__all__ = ["EXAMPLES", "POLICIES", "Beginning", "Pool", "Seen", "files", "pool_of", "pools_seen"]
