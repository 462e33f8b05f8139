"""The output of `kubectl get namespaces,resourcequotas,jobs,deployments -A -o json` as projects and jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.edit import Target
from gpuctl.model.units import GpuMilli
from gpuctl.scaffold.foreign import amounts
from gpuctl.scaffold.foreign.namespaces import in_their_own, namespace_of, own_namespace, project_of
from gpuctl.scaffold.foreign.pods import GPU, job_of
from gpuctl.scaffold.foreign.values import Found, Item, Left, Place, Record, Thing, given

Items = Sequence[Item]
_QUOTAS = (f"requests.{GPU}", f"limits.{GPU}", GPU)
_QUIET = {"Namespace", "Node", "List", ""}


def of_kubectl(items: Items, place: Place) -> Found:
    """A project for each namespace that has a GPU quota or a job, with its jobs. Cost: linear."""
    quotas: dict[str, GpuMilli] = {}
    found: list[Thing] = []
    left: list[Left] = []
    others: Counter[str] = Counter()
    for _, item, _ in items:
        kind, namespace = str(item.get("kind", "")), _namespace(item)
        if kind == "ResourceQuota" and namespace:
            milli = _quota(item)
            if milli is not None:
                quotas[namespace] = min(milli, quotas.get(namespace, milli))
        elif kind in {"Job", "Deployment"} and namespace:
            made = job_of(item, project_of(namespace, place), place)
            if isinstance(made, Left):
                left.append(made)
            else:
                found.append(made)
        elif kind not in _QUIET:
            others[kind] += 1
    namespaces: dict[str, set[str]] = defaultdict(set)
    for namespace in (*quotas, *map(namespace_of, found)):
        namespaces[project_of(namespace, place)].add(namespace)
    kept, not_kept = in_their_own(found, place)
    left += not_kept
    jobs: dict[str, list[Thing]] = defaultdict(list)
    for job in kept:
        jobs[job.target.project].append(job)
    things: list[Thing] = []
    for project, names in sorted(namespaces.items()):
        own = own_namespace(project, names, place)
        if own is None:
            continue
        spec = given({"quota": amounts.gpus(quotas[own]) if quotas.get(own) else None})
        things += [Thing(target=Target(kind="Project", name=project), spec=spec), *jobs[project]]
    left += [Left(what=f"{count} of kind {kind}", why="only namespaces, resource quotas, jobs and deployments are read")
             for kind, count in sorted(others.items())]  # fmt: skip
    return Found(things=tuple(things), left=tuple(left))


def _namespace(item: Mapping[str, Any]) -> str:
    return Record(item.get("metadata")).text("namespace")


def _quota(item: Mapping[str, Any]) -> GpuMilli | None:
    hard = Record(item.get("spec")).below("hard")
    found = [amounts.gpu_milli(value) for value in map(hard.take, _QUOTAS) if value is not None]
    return min((each for each in found if each is not None), default=None)
