"""A kind of another controller: from a Cluster's declaration to a row like those of built-in kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuctl.compile import kinds_v1
from gpuctl.k8s import kinds
from gpuctl.k8s.manifest_fields import ANY, TEMPLATE
from gpuctl.model.workload_kind import Allowed, Count, Made, Path, PodSets, Suspension, Told, WorkloadKind

_MADE = {"Job": kinds.JOB, "Service": kinds.SERVICE}


def workload_kind(spec: kinds_v1.WorkloadKind) -> WorkloadKind:
    """The row of a kind. `domains`: its controller acts on labels and annotations of its own group."""
    suspend = spec.suspend or spec.scale_to_zero or ""
    return WorkloadKind(
        kind=(spec.api_version, spec.kind),
        plural=spec.plural,
        allowed=_allowed(spec),
        pods=tuple(_pods(each, spec.scale_to_zero) for each in spec.pods),
        suspension=Suspension(
            ("spec", *_path(suspend)),
            is_count=spec.suspend is None,
            told=_told(spec.suspended),
            active=tuple(("status", *_path(each)) for each in spec.active),
        ),
        succeeded=_told(spec.succeeded),
        failed=_told(spec.failed),
        domains=(spec.api_version.rpartition("/")[0],),
    )


def _path(text: str | None) -> Path:
    return tuple(text.split(".")) if text else ()


def _pods(spec: kinds_v1.KindPods, stops: str | None) -> PodSets:
    entries = _path(spec.each or spec.at)
    # The count that stops it must be written: a run that goes on gets it back.
    counts = tuple(
        Count(path, usual=0 if stops is not None and (*entries, *path) == _path(stops) else 1)
        for path in map(_path, spec.counts)
    )
    return PodSets(
        entries=entries,
        is_list=spec.each is not None,
        template=_path(spec.template),
        counts=counts,
        called=spec.name or "",
        name=_path(spec.name_field),
        numbers=tuple((count.path,) for count in counts),
        made=tuple(Made(_MADE[each], counts) for each in spec.makes),
    )


def _told(spec: kinds_v1.KindState | None) -> Told | None:
    if spec is None:
        return None
    if spec.condition is not None:
        return Told(spec.condition)
    return Told(field=("status", *_path(spec.field)), values=tuple(spec.values))


def _allowed(spec: kinds_v1.WorkloadKind) -> Allowed:
    """The fields of the spec that a manifest may have: those that the row names, and no other."""
    found: dict[str, Any] = {}
    for path, below in _fields(spec):
        here = found
        for step in path[:-1]:
            here = here.setdefault(step, {})
        here[path[-1]] = below
    return found


def _fields(spec: kinds_v1.WorkloadKind) -> Iterator[tuple[Path, Allowed]]:
    for pods in spec.pods:
        entries = _path(pods.each or pods.at)
        yield (*entries, *_path(pods.template)), TEMPLATE
        for path in (*map(_path, pods.counts), _path(pods.name_field)):
            if path:
                yield (*entries, *path), ANY
    for field in spec.fields:
        yield _path(field), ANY
