"""Departments as a tree, with what their projects hold: as published, else as named by the namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.model.declared import Allowance
from gpuctl.model.ids import DomainName
from gpuctl.model.overview import DepartmentOverview
from gpuctl.model.units import GpuMilli
from gpuctl.views.projects import ProjectView


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartmentView:
    """A department with everything below it. `depth`: 0 for one with no department above it.

    `allowances` are its own, empty if not known. All other values are of the projects in it and below it; the fair
    share is known if it is known for each of these projects.
    """

    name: str
    depth: int
    projects: int
    allocated_milli: GpuMilli
    running: int
    pending: int
    allowances: Mapping[DomainName, Allowance] = field(default_factory=dict)
    share_milli: Mapping[DomainName, GpuMilli] = field(default_factory=dict)


def department_tree(
    projects: Sequence[ProjectView], published: Sequence[DepartmentOverview]
) -> tuple[DepartmentView, ...]:
    """Every department that is published or that a project names, each before those below it, by name.

    Cost: departments times their depth, and projects times theirs.
    """
    known = {department.name: department for department in published}
    for project in projects:
        if project.department:
            known.setdefault(project.department, DepartmentOverview(name=project.department))
    paths = {name: _path(name, known) for name in known}
    within: dict[str, list[ProjectView]] = {name: [] for name in known}
    for project in projects:
        for name in paths.get(project.department, ()):
            within[name].append(project)
    return tuple(
        _view(known[name], len(paths[name]) - 1, within[name]) for name in sorted(known, key=lambda name: paths[name])
    )


def _path(name: str, known: Mapping[str, DepartmentOverview]) -> tuple[str, ...]:
    """A department's name after those above it. The published data may be damaged: a circle ends where it closes."""
    return tuple(reversed(list(_upwards(name, known))))


def _upwards(name: str, known: Mapping[str, DepartmentOverview]) -> Iterator[str]:
    seen: set[str] = set()
    while name in known and name not in seen:
        seen.add(name)
        yield name
        name = known[name].parent


def _view(department: DepartmentOverview, depth: int, projects: Sequence[ProjectView]) -> DepartmentView:
    return DepartmentView(
        name=department.name,
        depth=depth,
        projects=len(projects),
        allocated_milli=sum(project.allocated_milli for project in projects),
        running=sum(project.running for project in projects),
        pending=sum(project.pending for project in projects),
        allowances=department.allowances,
        share_milli=_shares(projects),
    )


def _shares(projects: Sequence[ProjectView]) -> Mapping[DomainName, GpuMilli]:
    if not all(project.share_milli for project in projects):
        return {}
    found: dict[DomainName, GpuMilli] = {}
    for project in projects:
        for domain, milli in project.share_milli.items():
            found[domain] = found.get(domain, 0) + milli
    return found
