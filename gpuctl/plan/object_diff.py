"""The difference between a wanted object and the live one. A plan writes only where there is one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuctl.k8s import kinds
from gpuctl.k8s.objects import mapping, whole
from gpuctl.k8s.suspension import is_let_go
from gpuctl.k8s.workload_table import Rows
from gpuctl.k8s.workloads import run_of
from gpuctl.model.ids import RunKey
from gpuctl.model.manifest import Manifest
from gpuctl.model.state import Body
from gpuctl.plan.admission import is_made_otherwise
from gpuctl.plan.diff import drift
from gpuctl.plan.ownership import owned_fields

_ROOM = ("spec", "resources", "requests")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObjectDiff:
    """A wanted object, the live one if it exists, and the paths at which they differ.

    `run`: the run that the object belongs to, if any. `is_made_otherwise`: a Job that was created with another pod
    template and has no pods. `is_stray`: a run's object that runs though gpuctl never released it. Compared by
    identity: an unchanged difference is the same object.
    """

    item: Manifest
    live: Body | None
    run: RunKey | None
    paths: tuple[str, ...] = ()
    is_made_otherwise: bool = False
    is_stray: bool = False


def object_diff(item: Manifest, live: Body | None, rows: Rows, *, is_stray: bool = False) -> ObjectDiff | None:
    """The difference; None if nothing has to be written. A stray object always differs."""
    run = run_of(item.body)
    if live is None:
        return ObjectDiff(item=item, live=None, run=run)
    if (item.ref.api_version, item.ref.kind) == kinds.CLAIM and _is_grown(item.body, live):
        item = replace(item, body=_of_any_size(item.body))
    paths = drift(item.body, live)
    if not paths and not is_stray:
        return None
    otherwise = _is_made_otherwise(item, live, rows)
    return ObjectDiff(item=item, live=live, run=run, paths=paths, is_made_otherwise=otherwise, is_stray=is_stray)


def _is_grown(wanted: Body, live: Body) -> bool:
    """Whether another field manager gave a claim more room than is wanted. The server accepts no smaller size, and the
    job has what it asks for. If gpuctl set the size, the declaration was reduced, and the server refuses that."""
    ours = mapping(owned_fields(live), "f:spec", "f:resources", "f:requests")
    sizes = [whole(mapping(body, *_ROOM), "storage") for body in (wanted, live)]
    return "f:storage" not in ours and sizes[0] < sizes[1]


def _of_any_size(claim: Body) -> Body:
    spec = {key: value for key, value in mapping(claim, "spec").items() if key != _ROOM[1]}
    return {**claim, "spec": spec}


def _is_made_otherwise(item: Manifest, live: Body, rows: Rows) -> bool:
    kind = (item.ref.api_version, item.ref.kind)
    if kind == kinds.JOB or (kind in rows and is_let_go(item.body, rows)):
        return is_made_otherwise(item.body, live, rows)
    return False
