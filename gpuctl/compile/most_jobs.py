"""How much a cluster may declare where the process that compiles it has memory for so many jobs and no more.

`gpuctl install --jobs N` gives a reconciler its memory, and `gpuctl reconcile --jobs N` tells it for how many jobs.
Beyond that the project with the most is to blame: it stays at its last good commit, and the others go on. Without it,
whoever may merge into one project's folder could have the leader end for want of memory, for all teams and for ever.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gpuctl.compile.declarations import Declaration, Declarations
from gpuctl.compile.spec_v1 import JobV1
from gpuctl.compile.sweeps import size_of
from gpuctl.compile.text import Params
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.source import SourceTree, folder_project, left_out

_BEGIN = re.compile(rb"[\n\r\x85\xa8\xa9]---")
"""A document after the first one of a file: `---` after what ends a line in YAML, by its last byte in UTF-8."""
_JOB_BYTES, _MORE_BYTES = 1 << 10, 1 << 20
_MORE_DOCUMENTS = 1000
"""What is read beside the jobs: projects, departments, templates, policies. Of the 48 KiB of memory that a job is given
a document takes 10, and a byte of YAML 55 bytes where it is environment, 75 in lists of small mappings."""


def within(tree: SourceTree, most_jobs: int | None) -> SourceTree:
    """The tree, without the folders of the projects that have the most where it has more than so many jobs can be.

    In place of each stands one file that can't be read (GPU1024). Where the cluster's own files alone are too much, the
    tree is as it was, as for None. Cost: a search in each file for where documents begin; nothing is parsed.
    """
    if most_jobs is None:
        return tree
    documents, sizes = Counter[str | None](), Counter[str | None]()
    for path, file in tree.files.items():
        project = folder_project(tree.cluster_dir, path)
        documents[project] += 1 + len(_BEGIN.findall(file.content))
        sizes[project] += len(file.content)
    too_many = _too_much(documents, most_jobs + _MORE_DOCUMENTS)
    out = (too_many | _too_much(sizes, _JOB_BYTES * most_jobs + _MORE_BYTES)) - {None}
    kept = {path: file for path, file in tree.files.items() if folder_project(tree.cluster_dir, path) not in out}
    marks = dict(left_out(tree.cluster_dir, project) for project in out if project is not None)
    return replace(tree, files={**kept, **marks}) if out else tree


def check_most_jobs(declarations: Declarations, most_jobs: int) -> Iterator[Diagnostic]:
    """A mistake for each project that has to stay behind so that the rest is no more than so many jobs.

    A sweep counts as the jobs that it is.
    """
    counts, last = Counter[str | None](), dict[str | None, Declaration[JobV1]]()
    for job in declarations.jobs:
        owner = declarations.owners.get(job.document.name.file)
        counts[owner] += size_of(job.model.spec.sweep)
        last[owner] = job
    for project in _too_much(counts, most_jobs):
        document = last[project].document
        whose = "the cluster's own files declare" if project is None else f'project "{project}" declares'
        params: Params = {"whose": whose, "count": counts[project], "total": counts.total(), "limit": most_jobs}
        yield document.diagnostic("GPU3035", document.name, params)


def _too_much(amounts: Counter[str | None], most: int) -> set[str | None]:
    """The projects with the most, as many as have to go so that the rest is within the bound. None, the cluster's own
    files, where these alone are beyond it."""
    if amounts[None] > most:
        return {None}
    out, left = set[str | None](), amounts.total()
    for project, amount in sorted(amounts.items(), key=lambda each: (-each[1], each[0] or "")):
        if left > most and project is not None:
            out.add(project)
            left -= amount
    return out
