"""How much a cluster may declare where the process that compiles it has memory for so many jobs and no more.

`gpuctl install --jobs N` gives a reconciler its memory, and `gpuctl reconcile --jobs N` tells it for how many jobs.
Beyond that the project with the most is to blame: it stays at its last good commit, and the others go on. Without it, a
commit to one project's folder could have the leader end for want of memory, for all teams and after each restart again.
`gpuctl validate --jobs N` tells the same of a change before it is merged.
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
"""A document after the first one of a file: `---` after what ends a line in YAML, by its last byte in UTF-8."""
_MARKS = b",:\n\r{["
"""Of these, and of "- ", YAML has one for each value or more. A value takes up to 350 bytes of memory once it is
compiled, and of environment up to 1 KiB with the objects that are made of it."""
_DOCUMENTS, _VALUES, _BYTES = (1, 1000), (50, 50_000), (2 << 10, 2 << 20)
"""What is read for each job that there is memory for, 48 KiB, and beside them: projects, templates, policies."""
_TEXT_KIB, _MORE_KIB = 8, 1024
"""Text in jobs. It takes its size in the desired objects and in those of the cluster, and in the API server's store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSize:
    """What declared jobs take of the memory that there is for them, by project: a sweep counts as the jobs that it is,
    and text once for each job that has it. The bounds are None where it is not known how much memory there is."""

    jobs: Mapping[ProjectName, int] = field(default_factory=dict)
    text_bytes: Mapping[ProjectName, int] = field(default_factory=dict)
    most_jobs: int | None = None

    @property
    def most_text_bytes(self) -> int | None:
        """How much text all jobs may have together."""
        return None if self.most_jobs is None else _most_text_kib(self.most_jobs) << 10

    def nearly_full(self) -> Params | None:
        """Of which of the two more than nine tenths are declared, in the words of GPU7097; None: of neither."""
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
    """What jobs take. Cost: linear in their declarations."""
    counts, texts = Counter[ProjectName](), Counter[ProjectName]()
    for job in jobs:
        project = ProjectName(job.declaration.model.metadata.project)
        count, text_bytes = _amounts(job)
        counts[project] += count
        texts[project] += text_bytes
    return DeclaredSize(jobs=counts, text_bytes=texts, most_jobs=most_jobs)


def within(tree: SourceTree, most_jobs: int | None) -> SourceTree:
    """The tree, without the folders of the projects that have the most where it has more than so many jobs can be.

    In place of each stands one file that can't be read (GPU1024). Where the cluster's own files alone are too much, the
    tree is as it was, as for None. Cost: a search in each file for where documents begin; nothing is parsed.
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
    """A mistake for each project that has to stay behind so that the rest is no more than so many jobs.

    A sweep counts as the jobs that it is. The same of the texts of all jobs: a template, or defaults, of 200 KiB take
    little room in the files, and 200 KiB in each job. `owners`: of the files, as in Compiled. `before`: the jobs before
    a change, where they are known. Marked is the project's last job that is not among them, else its last one.
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
    """How many jobs a declaration is, and the bytes of text in all of them."""
    count = size_of(job.spec.sweep)
    return count, count * job.text_bytes


def _most_text_kib(most_jobs: int) -> int:
    return _TEXT_KIB * most_jobs + _MORE_KIB


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
