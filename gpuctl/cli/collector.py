"""Tune the garbage collector: collect rarely, where many objects live long.

A copy of a cluster is millions of objects without a cycle among them. A full collection looks at them all, which
takes a second for 10,000 jobs, and finds nothing. What does make cycles (exceptions, generators) is little.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 100_000
"""New objects, less those gone again, between two looks at new objects alone."""

YOUNG_PASSES, OLDER_PASSES = 50, 100
"""Looks at new objects for one at those that outlived a look, and such for one at all of them."""


def collect_seldom() -> None:
    """Collect rarely, for a process that keeps a cluster in memory for long."""
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_PASSES, OLDER_PASSES)
