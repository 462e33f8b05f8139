"""The cache of `compile`: the content of files, which jobs fit, and the jobs they were lowered to.

A tree is compiled anew for each commit, and nearly all of it is unchanged. Each value is kept with all its inputs, so
that a compilation gives the same result with and without a cache, the same diagnostics included.
"""

from __future__ import annotations

from typing import Any

from gpuctl.compile.declarations import Declaration, ReadCache
from gpuctl.compile.fit import Fitted
from gpuctl.compile.resolve import ResolvedJob
from gpuctl.model.ids import JobId
from gpuctl.model.job import Job
from gpuctl.model.memo import Memo


class CompileCache:
    """Cache of the last two compilations. The key of a declaration is its object: reading a file again makes new
    ones. The values of policies are `Any`: only a tree with policies imports their types. `contents`: the content
    digests of jobs, kept for callers that ask for them.
    """

    __slots__ = ("breaches", "contents", "defaulted", "fitted", "jobs", "reading", "rules")

    def __init__(self) -> None:
        self.reading = ReadCache()
        self.fitted: Memo[Declaration[Any], Fitted] = Memo()
        self.jobs: Memo[ResolvedJob, tuple[Job, ...]] = Memo()
        self.contents: Memo[JobId, bytes] = Memo()
        self.defaulted: Memo[ResolvedJob, Declaration[Any]] = Memo()
        self.rules: Memo[Declaration[Any], Any] = Memo()
        self.breaches: Memo[tuple[Declaration[Any], Declaration[Any]], Any] = Memo()
