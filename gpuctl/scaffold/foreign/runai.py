"""The output of Run:ai's API, its command line or `kubectl get projects.run.ai -o json` as declarations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.edit import Target
from gpuctl.scaffold.foreign.namespaces import in_their_own
from gpuctl.scaffold.foreign.owners import declared, owner_of
from gpuctl.scaffold.foreign.pods import job_of
from gpuctl.scaffold.foreign.values import Found, Item, Left, Place, Record, Thing
from gpuctl.scaffold.foreign.workloads import project_of_workload, workload_of

Items = Sequence[Item]
_QUIET = {"Namespace", "Node", "Pod", "PodGroup"}
_NO_KIND = "that name no kind"


def of_runai(items: Items, place: Place) -> Found:
    """Departments, projects and jobs. A project that only jobs name gets no quota. Cost: linear."""
    parents = {Record(item.get("spec")).text("parentQueue") for _, item, _ in items if item.get("kind") == "Queue"}
    sorts = [(_sort(held_in, item, parents), item) for held_in, item, _ in items]
    owners = [owner_of(item, sort, place) for sort, item in sorts if sort in {"Department", "Project"}]
    projects = {owner.number: owner.name for owner in owners if owner.kind == "Project" and owner.number}
    jobs: list[Thing] = []
    left: list[Left] = []
    others: Counter[str] = Counter()
    for sort, item in sorts:
        if sort in {"Workload", "Job"}:
            project = project_of_workload(item, projects, place)
            made = (job_of if sort == "Job" else workload_of)(item, project, place)
            if isinstance(made, Left):
                left.append(made)
            else:
                jobs.append(made)
        elif sort not in {"Department", "Project", ""}:
            others[sort if sort == _NO_KIND else f"of kind {sort}"] += 1
    jobs, not_theirs = in_their_own(jobs, place)
    left += not_theirs
    above = declared(owners, place)
    known = {thing.target.name for thing in above if thing.target.kind == "Project"}
    named = dict.fromkeys(job.target.project for job in jobs if job.target.project not in known)
    bare = [Thing(target=Target(kind="Project", name=name), spec={}) for name in named]
    left += [Left(what=f"{count} {kind}", why="gpuctl has nothing that says it")
             for kind, count in sorted(others.items())]  # fmt: skip
    return Found(things=(*above, *bare, *jobs), left=tuple(left))


def _sort(held_in: str, item: Mapping[str, Any], parents: set[str]) -> str:
    """The sort of an object; "" for one that need not be reported."""
    record = Record(item)
    kind, name = record.text("kind"), record.below("metadata").text("name")
    if kind == "Queue":
        return "Department" if name in parents else "Project"
    if kind in {"Department", "Project"}:
        return kind
    if kind in {"Job", "RunaiJob"}:
        return "Job"
    if kind.endswith("Workload"):
        return "Workload"
    if kind:
        return "" if kind in _QUIET else kind
    by_list = {"projects": "Project", "departments": "Department", "workloads": "Workload", "jobs": "Workload"}
    if held_in in by_list:
        return by_list[held_in]
    if any(key in item for key in ("resources", "deservedGpus", "nodePoolsResources")):
        return "Project"
    return "Workload" if "spec" in item or "image" in item or "projectName" in item else _NO_KIND
