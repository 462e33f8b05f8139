"""What `kubectl get namespaces,resourcequotas,jobs,deployments -A -o json` prints, as projects and jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from gpuctl.edit import Target
from gpuctl.model.units import GpuMilli
from gpuctl.scaffold.foreign import amounts
from gpuctl.scaffold.foreign.pods import GPU, job_of
from gpuctl.scaffold.foreign.values import Found, Item, Left, Place, Record, Thing, given

Items = Sequence[Item]
_QUOTAS = (f"requests.{GPU}", f"limits.{GPU}", GPU)
_PREFIXES = ("runai-",)
_QUIET = {"Namespace", "Node", "List", ""}


def of_kubectl(items: Items, place: Place) -> Found:
    """A project for each namespace that has a GPU quota or a job, with its jobs. Cost: linear."""
    quotas: dict[str, GpuMilli] = {}
    jobs: dict[str, list[Thing]] = defaultdict(list)
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
                jobs[namespace].append(made)
        elif kind not in _QUIET:
            others[kind] += 1
    things: list[Thing] = []
    for namespace in sorted({*quotas, *jobs}):
        target = Target(kind="Project", name=project_of(namespace, place))
        spec = given({"quota": amounts.gpus(quotas[namespace]) if quotas.get(namespace) else None})
        things += [Thing(target=target, spec=spec), *jobs[namespace]]
    left += [Left(what=f"{count} of kind {kind}", why="only namespaces, resource quotas, jobs and deployments are read")
             for kind, count in sorted(others.items())]  # fmt: skip
    return Found(things=tuple(things), left=tuple(left))


def project_of(namespace: str, place: Place) -> str:
    """The project of a namespace: its name without the prefix of gpuctl or Run:ai."""
    for prefix in (place.prefix, *_PREFIXES):
        if prefix and namespace.startswith(prefix) and namespace != prefix:
            return namespace.removeprefix(prefix)
    return namespace


def _namespace(item: Mapping[str, Any]) -> str:
    return Record(item.get("metadata")).text("namespace")


def _quota(item: Mapping[str, Any]) -> GpuMilli | None:
    hard = Record(item.get("spec")).below("hard")
    found = [amounts.gpu_milli(value) for value in map(hard.take, _QUOTAS) if value is not None]
    return min((each for each in found if each is not None), default=None)
