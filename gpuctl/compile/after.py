"""Checks `after`: each job named there is declared in the same project and ends some time, and none waits for itself.

The check depends on all jobs of a project together, so each compilation makes it anew. Cost: linear in the jobs, and in
the entries of `after`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from gpuctl.compile.declarations import Declaration, Declarations
from gpuctl.compile.document import Path
from gpuctl.compile.shape import MOST_ASKED, MOST_NAMES, nearest
from gpuctl.compile.spec_v1 import JobV1
from gpuctl.compile.text import Params
from gpuctl.diag.diagnostic import Diagnostic

MOST_SHOWN = 8
"""The most jobs of a circle that a message shows."""
MOST_ENTRIES = 2000
"""The most wrong entries that are reported of a project's jobs. Only a thousand of a project's mistakes are shown (see
`compiler`), so a file of 200,000 wrong entries does not take seconds in each compilation."""


def check_after(declarations: Declarations) -> Iterator[Diagnostic]:
    """The mistakes in entries of `after`."""
    dependent: dict[str, list[_Job]] = defaultdict(list)
    for declaration in declarations.jobs:
        if declaration.model.spec.after:
            dependent[declaration.model.metadata.project].append(_job(declaration))
    if not dependent:
        return
    claimed: dict[str, set[str]] = {project: set() for project in dependent}
    for claim in declarations.claims:
        if claim.kind == "Job" and claim.project in claimed:
            claimed[claim.project].add(claim.name)
    services: dict[str, set[str]] = defaultdict(set)
    for declaration in declarations.jobs:
        if declaration.model.spec.type == "inference":
            services[declaration.model.metadata.project].add(declaration.model.metadata.name)
    for project, jobs in sorted(dependent.items()):
        yield from islice(_unknown(project, jobs, claimed[project], declarations.guessed), MOST_ENTRIES)
        yield from islice(_endless(jobs, services[project]), MOST_ENTRIES)
        yield from _circles({job.name: job for job in reversed(jobs)})


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A job that comes after others, and their names."""

    declaration: Declaration[JobV1]
    name: str
    after: Sequence[str]

    def path(self, position: int) -> Path:
        """The path of the job's name in an entry."""
        entry = self.declaration.model.spec.after[position]
        path: Path = ("spec", "after", position)
        return path if isinstance(entry, str) else (*path, "job")

    def mistake(self, code: str, position: int, params: Params, fix: str = "") -> Diagnostic:
        """The diagnostic of a wrong entry."""
        return self.declaration.document.mistake(code, self.path(position), params, fix)


def _job(declaration: Declaration[JobV1]) -> _Job:
    model = declaration.model
    names = [entry if isinstance(entry, str) else entry.job for entry in model.spec.after]
    return _Job(declaration, model.metadata.name, names)


def _unknown(project: str, jobs: Iterable[_Job], claimed: set[str], guessed: Iterable[str]) -> Iterator[Diagnostic]:
    """Names that no job of the project has. A name that an unreadable document may have is not reported."""
    known = claimed.union(guessed)
    asked = 0
    for job in jobs:
        for position, name in enumerate(job.after):
            if name in known:
                continue
            asked += 1
            compared = len(claimed) <= MOST_NAMES and asked <= MOST_ASKED
            fix = nearest(name, claimed - {job.name, *job.after}) if compared else ""
            yield job.mistake("GPU3032", position, {"job": name, "project": project}, fix)


def _endless(jobs: Iterable[_Job], services: Collection[str]) -> Iterator[Diagnostic]:
    """Entries that name a job which never ends."""
    for job in jobs:
        for position, name in enumerate(job.after):
            if name in services:
                yield job.mistake("GPU3033", position, {"job": name})


def _circles(jobs: Mapping[str, _Job]) -> Iterator[Diagnostic]:
    """Each circle once, reported at its first job by name; of circles that share a job, only one.

    First, jobs that wait for no remaining job are removed until no more can be (Kahn, 1962). Each remaining job waits
    for another one, so following the first such entry of each leads into a circle.
    """
    for name, job in jobs.items():
        if name in job.after:
            yield _circle([(job, job.after.index(name))])
    left = {name: sum(other in jobs and other != name for other in job.after) for name, job in jobs.items()}
    followers: dict[str, list[str]] = defaultdict(list)
    for name, job in jobs.items():
        for other in job.after:
            if other != name:
                followers[other].append(name)
    free = [name for name, count in left.items() if not count]
    while free:
        for name in followers[free.pop()]:
            left[name] -= 1
            if not left[name]:
                free.append(name)
    rest = {name for name, count in left.items() if count}
    seen: set[str] = set()
    for start in sorted(rest):
        chain: dict[str, int] = {}
        name = start
        while name not in seen:
            seen.add(name)
            after = jobs[name].after
            chain[name] = next(at for at, other in enumerate(after) if other in rest and other != name)
            name = jobs[name].after[chain[name]]
        if name in chain:
            members = list(chain)
            yield _circle([(jobs[each], chain[each]) for each in members[members.index(name) :]])


def _circle(members: Sequence[tuple[_Job, int]]) -> Diagnostic:
    """The diagnostic of a circle, at its first job by name, with the places of the other jobs."""
    first = min(range(len(members)), key=lambda at: members[at][0].name)
    (job, position), *others = [*members[first:], *members[:first]]
    names = [f'"{each.name}"' for each in (job, *(other for other, _ in others))]
    shown = names if len(names) <= MOST_SHOWN else [*names[: MOST_SHOWN - 1], "..."]
    chain = " > ".join([*shown, names[0]])
    found = job.mistake("GPU3034", position, {"chain": chain})
    related = [
        (f'"{each.name}" says it here', each.declaration.document.span(each.path(at)))
        for each, at in others[: MOST_SHOWN - 1]
    ]
    return replace(found, related=(*found.related, *related))
