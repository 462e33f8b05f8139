"""Limits how much a cluster may declare, where the compiling process has memory for a known number of jobs.

`gpuctl install --jobs N` gives the reconciler its memory, and `gpuctl reconcile --jobs N` tells it for how many jobs.
Beyond that, the project with the most jobs stays at its last good commit, and the others go on. Without this limit, one
commit to one project's folder could end the leader for lack of memory, for all teams and after every restart.
`gpuctl validate --jobs N` reports the same for a change before it is merged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpuctl.compile.declarations import Declaration
from gpuctl.compile.document import Document
from gpuctl.compile.resolve import ResolvedJob
from gpuctl.compile.spec_v1 import JobV1
from gpuctl.compile.sweeps import size_of
from gpuctl.compile.text import Params
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.ids import ProjectName
from gpuctl.model.source import SourceTree, folder_project, left_out

_BEGIN = re.compile(rb"[\n\r\x85\xa8\xa9]---")
"""The start of a further document of a file: `---` after a line break of YAML, here by its last byte in UTF-8."""
_MARKS = b",:\n\r{["
"""Characters that count values from above: YAML has at least one of these, or "- ", for each value. A value takes up to
350 bytes of memory once compiled; a variable of the environment up to 1 KiB with the objects made from it."""
_DOCUMENTS, _VALUES, _BYTES = (1, 1000), (50, 50_000), (2 << 10, 2 << 20)
"""The bounds on a tree: for each job that there is memory for (48 KiB in all), and in addition to that for projects,
templates and policies."""
_TEXT_KIB, _MORE_KIB = 8, 1024
"""The bound on text in jobs, for each job and in addition. Text takes its size in the desired objects, in the objects
read from the cluster, and in the API server's store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSize:
    """How much of the memory for declared jobs is taken, by project. A sweep counts as all its jobs, and text once for
    each job that has it. The bounds are None if the memory is not known."""

    jobs: Mapping[ProjectName, int] = field(default_factory=dict)
    text_bytes: Mapping[ProjectName, int] = field(default_factory=dict)
    most_jobs: int | None = None

    @property
    def most_text_bytes(self) -> int | None:
        """The most bytes of text that all jobs may have together."""
        return None if self.most_jobs is None else _most_text_kib(self.most_jobs) << 10

    def nearly_full(self) -> Params | None:
        """The parameters of GPU7097 if more than nine tenths of the jobs or of the text are declared; else None."""
        if self.most_jobs is None:
            return None
        kib = {project: size >> 10 for project, size in self.text_bytes.items()}
        bounds = ("jobs", self.jobs, self.most_jobs), ("KiB of text in jobs", kib, _most_text_kib(self.most_jobs))
        for what, amounts, limit in bounds:
            total = sum(amounts.values())
            if total * 10 > limit * 9:
                project = max(sorted(amounts), key=amounts.__getitem__)
                return {"total": total, "what": what, "limit": limit, "project": project, "count": amounts[project]}
        return None


def declared_size(jobs: Iterable[ResolvedJob], most_jobs: int | None) -> DeclaredSize:
    """How much the jobs take. Cost: linear in their declarations."""
    counts, texts = Counter[ProjectName](), Counter[ProjectName]()
    for job in jobs:
        project = ProjectName(job.declaration.model.metadata.project)
        count, text_bytes = _amounts(job)
        counts[project] += count
        texts[project] += text_bytes
    return DeclaredSize(jobs=counts, text_bytes=texts, most_jobs=most_jobs)


def within(tree: SourceTree, most_jobs: int | None) -> SourceTree:
    """The tree; if it exceeds the bounds for so many jobs, without the folders of the projects that have the most.

    In place of each such folder is one file that can't be read (GPU1024). If the cluster's own files alone exceed the
    bounds, or for None, the tree is unchanged. Cost: a search in each file for where documents begin; no parsing.
    """
    if most_jobs is None:
        return tree
    documents, values, sizes = Counter[str | None](), Counter[str | None](), Counter[str | None]()
    for path, file in tree.files.items():
        project, content = folder_project(tree.cluster_dir, path), file.content
        documents[project] += 1 + len(_BEGIN.findall(content))
        values[project] += len(content) - len(content.translate(None, _MARKS)) + content.count(b"- ")
        sizes[project] += len(content)
    bounds = (documents, _DOCUMENTS), (values, _VALUES), (sizes, _BYTES)
    out = set().union(*(_too_much(amounts, each * most_jobs + more) for amounts, (each, more) in bounds)) - {None}
    if not out:
        return tree
    kept = {path: file for path, file in tree.files.items() if folder_project(tree.cluster_dir, path) not in out}
    marks = dict(left_out(tree.cluster_dir, project) for project in out if project is not None)
    return replace(tree, files={**kept, **marks})


def check_most_jobs(
    jobs: Iterable[ResolvedJob],
    owners: Mapping[str, ProjectName | None],
    most_jobs: int,
    before: Collection[Declaration[JobV1]] = (),
) -> Iterator[Diagnostic]:
    """A mistake for each project that must stay at its last good commit so that the others are within the bounds.

    A sweep counts as all its jobs. The texts of all jobs have a bound too: a template, or defaults, of 200 KiB take
    little space in the files, and 200 KiB in each job. `owners`: of the files, as in Compiled. `before`: the jobs
    before a change, if known. The mistake is at the project's last job that is not among them, else at its last one.
    """
    counts, texts, last = Counter[str | None](), Counter[str | None](), dict[str | None, Document]()
    for job in sorted(jobs, key=lambda each: each.declaration not in before):
        document, (count, text_bytes) = job.declaration.document, _amounts(job)
        owner = owners.get(document.name.file)
        counts[owner] += count
        texts[owner] += text_bytes
        last[owner] = document
    kib = Counter({owner: size >> 10 for owner, size in texts.items()})
    bounds = (counts, most_jobs, "jobs"), (kib, _most_text_kib(most_jobs), "KiB of text in jobs")
    for amounts, most, what in bounds:
        for project in _too_much(amounts, most):
            document = last[project]
            whose = "the cluster's own files declare" if project is None else f'project "{project}" declares'
            total = amounts.total()
            params: Params = {"whose": whose, "count": amounts[project], "what": what, "total": total, "limit": most}
            yield document.diagnostic("GPU3035", document.name, params)


def _amounts(job: ResolvedJob) -> tuple[int, int]:
    """How many jobs a declaration makes, and the bytes of text in all of them."""
    count = size_of(job.spec.sweep)
    return count, count * job.text_bytes


def _most_text_kib(most_jobs: int) -> int:
    return _TEXT_KIB * most_jobs + _MORE_KIB


def _too_much(amounts: Counter[str | None], most: int) -> set[str | None]:
    """The projects with the most, as many as must be left out so that the others are within the bound. {None}, for the
    cluster's own files, if these alone exceed it."""
    if amounts[None] > most:
        return {None}
    out, left = set[str | None](), amounts.total()
    for project, amount in sorted(amounts.items(), key=lambda each: (-each[1], each[0] or "")):
        if left > most and project is not None:
            out.add(project)
            left -= amount
    return out
