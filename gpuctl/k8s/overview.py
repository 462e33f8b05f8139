"""The overview as a ConfigMap in gpuctl's own namespace, and back. Its rows are lists, as there may be thousands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from operator import itemgetter
from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import compact_json, decode_instant
from gpuctl.k8s.declared_kinds import MOST_READ, decode_kind, kind_value
from gpuctl.k8s.published import DAMAGE, amount, published_object, published_text, short_text
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.declared import Allowance
from gpuctl.model.ids import DomainName, NodeName, ObjectRef, ProjectName, Revision
from gpuctl.model.overview import DepartmentOverview, NodeOverview, Overview, ProjectOverview
from gpuctl.model.state import Body, Removal

OVERVIEW_REF = ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, names.OVERVIEW_NAME)
KEY = "overview.json"
_SHORT_REVISION = 12
_PARTS = ("projects", "departments", "nodes", "positions", "starts", "removed")
MOST_CHARACTERS = 900_000
"""An object of the API server holds about a million bytes; the text written here is ASCII."""


def encode_overview(overview: Overview) -> Body:
    """The object as gpuctl applies it. If it is too large, rows are left out and counted.

    Cost: linear; a few times that if it is too large.
    """
    said = compact_json(_document(overview))
    while len(said) > MOST_CHARACTERS:
        overview = _shortened(overview)
        said = compact_json(_document(overview))
    return published_object(OVERVIEW_REF, KEY, said)


def digest_of(overview: Overview) -> str:
    """A text that differs between overviews with different content, whenever they were made."""
    return sha256(compact_json(_document(replace(overview, at_ms=0))).encode()).hexdigest()


def decode_overview(body: Body) -> Overview | None:
    """The overview from its object; None for another object, or a damaged one."""
    said = published_text(body, OVERVIEW_REF, KEY)
    if said is None:
        return None
    try:
        value = json.loads(said)
        return Overview(
            at_ms=decode_instant(value["at"]) or 0,
            projects=tuple(_project(row) for row in value["projects"]),
            departments=tuple(_department(row) for row in value.get("departments", ())),
            nodes=tuple(_node(row) for row in value["nodes"]),
            positions={short_text(ticket): amount(number) for ticket, number in value["positions"].items()},
            starts={short_text(ticket): amount(at_ms) for ticket, at_ms in value["starts"].items()},
            removed={short_text(ticket): _removal(row) for ticket, row in value.get("removed", {}).items()},
            workload_kinds=tuple(map(decode_kind, value.get("workloadKinds", [])[:MOST_READ])),
            left_out=amount(value["leftOut"]),
        )
    except DAMAGE:
        return None


def _document(overview: Overview) -> Mapping[str, Any]:
    return {
        "version": 1,
        "at": format_timestamp(overview.at_ms),
        "leftOut": overview.left_out,
        "projects": [_project_row(project) for project in overview.projects],
        "departments": [_department_row(department) for department in overview.departments],
        "nodes": [_node_row(node) for node in overview.nodes],
        "positions": dict(sorted(overview.positions.items())),
        "starts": dict(sorted(overview.starts.items())),
        **({"workloadKinds": list(map(kind_value, overview.workload_kinds))} if overview.workload_kinds else {}),
        "removed": {
            ticket: [each.revision[:_SHORT_REVISION], each.at_ms] for ticket, each in sorted(overview.removed.items())
        },
    }


def _shortened(overview: Overview) -> Overview:
    """The overview without the last half of its longest part; of the queue, without the jobs that come or start last.
    So one team's long queue displaces no project or node."""
    parts: dict[str, Any] = {name: getattr(overview, name) for name in _PARTS}
    name, rows = max(parts.items(), key=lambda part: len(part[1]))
    half = len(rows) // 2
    kept = rows[:half] if isinstance(rows, tuple) else dict(_in_order(name, rows)[:half])
    shorter: dict[str, Any] = {name: kept, "left_out": overview.left_out + len(rows) - half}
    return replace(overview, **shorter)


def _in_order(name: str, rows: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return newest_removals(rows) if name == "removed" else sorted(rows.items(), key=itemgetter(1))


def newest_removals(removed: Mapping[str, Removal]) -> list[tuple[str, Removal]]:
    """Removals, the newest first."""
    return sorted(removed.items(), key=lambda entry: (-entry[1].at_ms, entry[0]))


def _removal(row: Any) -> Removal:
    revision, at_ms = row
    return Removal(revision=Revision(short_text(revision)), at_ms=amount(at_ms))


def _project_row(project: ProjectOverview) -> list[Any]:
    domains = [
        [domain, each.quota_milli, each.limit_milli, each.weight, project.share_milli.get(domain)]
        for domain, each in project.allowances.items()
    ]
    about = [project.name, project.namespace, project.department, domains]
    return [*about, project.allocated_milli, project.running, project.waiting, project.waiting_milli]


def _project(row: Any) -> ProjectOverview:
    name, namespace, department, domains, *numbers = row
    allocated, running, waiting, waiting_milli = map(amount, numbers)
    rows = [(DomainName(short_text(domain)), [_optional(each) for each in amounts]) for domain, *amounts in domains]
    return ProjectOverview(
        name=ProjectName(short_text(name)),
        namespace=short_text(namespace),
        department=short_text(department),
        allowances={domain: _allowance(*amounts[:3]) for domain, amounts in rows},
        share_milli={domain: share for domain, (_, _, _, share) in rows if share is not None},
        allocated_milli=allocated,
        running=running,
        waiting=waiting,
        waiting_milli=waiting_milli,
    )


def _department_row(department: DepartmentOverview) -> list[Any]:
    domains = [
        [domain, each.quota_milli, each.limit_milli, each.weight] for domain, each in department.allowances.items()
    ]
    return [department.name, department.parent, domains]


def _department(row: Any) -> DepartmentOverview:
    name, parent, domains = row
    return DepartmentOverview(
        name=short_text(name),
        parent=short_text(parent),
        allowances={
            DomainName(short_text(domain)): _allowance(*map(_optional, amounts)) for domain, *amounts in domains
        },
    )


def _allowance(quota_milli: int | None, limit_milli: int | None, weight: int | None) -> Allowance:
    return Allowance(quota_milli=quota_milli or 0, limit_milli=limit_milli, weight=weight or 0)


def _node_row(node: NodeOverview) -> list[Any]:
    gpus = [node.job_milli, node.foreign_milli, sorted(node.lost)]
    machine = [node.cpu_milli, node.cpu_requested_milli, node.mem_bytes, node.mem_requested_bytes]
    return [node.name, node.status, *gpus, *machine]


def _node(row: Any) -> NodeOverview:
    name, status, jobs, foreign, lost, *numbers = row
    cpu, cpu_requested, memory, memory_requested = map(amount, numbers)
    return NodeOverview(
        name=NodeName(short_text(name)),
        status=short_text(status),
        job_milli=tuple(_amounts(jobs)),
        foreign_milli=tuple(_amounts(foreign)),
        lost=frozenset(_amounts(lost)),
        cpu_milli=cpu,
        cpu_requested_milli=cpu_requested,
        mem_bytes=memory,
        mem_requested_bytes=memory_requested,
    )


def _amounts(values: Any) -> Iterator[int]:
    return (amount(value) for value in values)


def _optional(value: Any) -> int | None:
    return None if value is None else amount(value)
