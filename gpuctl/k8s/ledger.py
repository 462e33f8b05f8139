"""A project's ledger as a ConfigMap in gpuctl's own namespace, and back.

Each part of it is one key under `data`, so that one damaged by hand costs only itself. References, runs and finished
runs are grouped by what they share: 10,000 jobs of one project stay below the API server's limit of 1 MiB an object.
Equal ledgers give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuctl.k8s import names
from gpuctl.k8s.annotations import compact_json, decode_instant
from gpuctl.k8s.objects import labels_of, mapping, text
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import NO_REVISION, JobId, ObjectRef, ProjectName, Revision, RunDigest
from gpuctl.model.state import Body, FinishedRun, Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReading:
    """A ledger as far as it can be read, and the keys of `data` that can't."""

    ledger: Ledger
    damaged: tuple[str, ...] = ()


def ledger_ref(cluster: str, project: ProjectName) -> ObjectRef:
    """Where a project's ledger is kept."""
    return ObjectRef(*names.CONFIG_MAP, names.SYSTEM_NAMESPACE, names.ledger_name(cluster, project))


def encode_ledger(cluster: str, ledger: Ledger) -> Body:
    """The whole ConfigMap as gpuctl applies it."""
    ref = ledger_ref(cluster, ledger.project)
    inventory: dict[str, dict[str, list[str]]] = {}
    for entry in sorted(ledger.inventory):
        kind = f"{entry.api_version} {entry.kind}"
        inventory.setdefault(kind, {}).setdefault(entry.namespace, []).append(entry.name)
    seen: dict[str, list[str]] = {}
    for job, digest in sorted(ledger.seen):
        seen.setdefault(job.name, []).append(digest)
    finished: dict[str, dict[str, object]] = {}
    for (job, digest), run in sorted(ledger.finished.items()):
        end = {"at": format_timestamp(run.at_ms), "starts": run.starts, "state": run.state}
        finished.setdefault(job.name, {})[digest] = end
    return {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            "labels": {
                names.MANAGED_BY_LABEL: names.MANAGED_BY,
                names.CLUSTER_LABEL: cluster,
                names.PROJECT_LABEL: ledger.project,
                names.LEDGER_LABEL: "true",
            },
        },
        "data": {
            "finished": compact_json(finished),
            "inventory": compact_json(inventory),
            "revision": ledger.revision,
            **({"content": ledger.content} if ledger.content else {}),
            "seen": compact_json(seen),
        },
    }


def decode_ledger(body: Body) -> LedgerReading | None:
    """Read a ledger back; None for what is no ledger. Never raises: a damaged part reads as empty."""
    labels = labels_of(body)
    project = labels.get(names.PROJECT_LABEL, names.CLUSTER_LEDGER)
    if names.LEDGER_LABEL not in labels or not isinstance(project, str):
        return None
    data = mapping(body, "data")
    damaged = []
    inventory: frozenset[ObjectRef] = frozenset()
    seen: frozenset[tuple[JobId, RunDigest]] = frozenset()
    finished: Mapping[tuple[JobId, RunDigest], FinishedRun] = {}
    owner = ProjectName(project)
    try:
        inventory = frozenset(_inventory(_section(data, "inventory")))
    except _DAMAGE:
        damaged.append("inventory")
    try:
        seen = frozenset(_seen(owner, _section(data, "seen")))
    except _DAMAGE:
        damaged.append("seen")
    try:
        finished = {(run.job, run.digest): run for run in _finished(owner, _section(data, "finished"))}
    except _DAMAGE:
        damaged.append("finished")
    revision = data.get("revision")
    if not isinstance(revision, str):
        damaged.append("revision")
        revision = NO_REVISION
    ledger = Ledger(
        project=owner,
        revision=Revision(revision),
        content=text(data, "content"),
        inventory=inventory,
        seen=seen,
        finished=finished,
    )
    return LedgerReading(ledger=ledger, damaged=tuple(damaged))


_DAMAGE = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""What reading a part that is no JSON, or JSON of another shape, can raise below."""


def _section(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = json.loads(data[key])
    if not isinstance(value, dict):
        raise TypeError(key)
    return value


def _inventory(section: dict[str, Any]) -> Iterator[ObjectRef]:
    for kind, namespaces in section.items():
        api_version, name_of_kind = kind.split(" ")
        for namespace, objects in namespaces.items():
            for name in _texts(objects):
                yield ObjectRef(api_version, name_of_kind, namespace, name)


def _seen(project: ProjectName, section: dict[str, Any]) -> Iterator[tuple[JobId, RunDigest]]:
    for job, digests in section.items():
        for digest in _texts(digests):
            yield JobId(project, job), RunDigest(digest)


def _finished(project: ProjectName, section: dict[str, Any]) -> Iterator[FinishedRun]:
    for job, runs in section.items():
        for digest, end in runs.items():
            at_ms, state, starts = decode_instant(end["at"]), end["state"], end["starts"]
            if at_ms is None or not isinstance(state, str) or not isinstance(starts, int):
                raise ValueError(digest)
            yield FinishedRun(
                job=JobId(project, job), digest=RunDigest(digest), state=state, at_ms=at_ms, starts=starts
            )


def _texts(value: object) -> Iterator[str]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    for item in value:
        if not isinstance(item, str):
            raise TypeError("not a text")
        yield item
