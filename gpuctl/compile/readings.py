"""What one compilation hands to the next: what files say, which jobs fit, and what they came to.

A tree is compiled anew for each commit, and nearly all of it is as it was. Each value is kept with all that it was made
of, so that a compilation with readings gives what one without gives, the same diagnostics included.
"""

from __future__ import annotations

from typing import Any

from gpuctl.compile.declarations import Declaration, FileReading
from gpuctl.compile.document import Document
from gpuctl.compile.fit import Fitted
from gpuctl.compile.resolve import ResolvedJob
from gpuctl.model.job import Job
from gpuctl.model.memo import Memo


class Readings:
    """Of the last two compilations, and no more. A declaration is known by its object: a file that is read again makes
    new ones. Those of policies are `Any`: only a tree with policies imports what they are.
    """

    __slots__ = ("breaches", "files", "fitted", "jobs", "rules")

    def __init__(self) -> None:
        self.files: Memo[str, FileReading] = Memo()
        self.fitted: Memo[Declaration[Any], Fitted] = Memo()
        self.jobs: Memo[ResolvedJob, Job] = Memo()
        self.rules: Memo[Declaration[Any], Any] = Memo()
        self.breaches: Memo[tuple[Declaration[Any], Document], Any] = Memo()
