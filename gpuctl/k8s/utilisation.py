"""The use of GPUs as a ConfigMap in gpuctl's own namespace, and back.

A run's row is filed under a ticket made from the uid of its object, as in the overview: finding the row takes the right
to read the object. Sums by project are for all teams.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from gpuctl.k8s import kinds, names
from gpuctl.k8s.annotations import compact_json, decode_instant
from gpuctl.k8s.objects import uid
from gpuctl.k8s.published import DAMAGE, amount, published_object, published_text, short_text
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.overview import ticket
from gpuctl.model.state import Body, ClusterState
from gpuctl.model.units import Instant
from gpuctl.model.utilisation import ProjectUse, RunUse, Utilisation

UTILISATION_REF = ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, names.UTILISATION_NAME)
KEY = "utilisation.json"
MOST_RUNS = 10_000
"""The most runs that are published: a row takes 80 bytes, and the object holds a million."""
_COARSE_BYTES = 1 << 26
"""Memory is published in steps of 64 MiB, so that the row of a run at rest stays the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedUse:
    """The published use. `runs`: by ticket."""

    at_ms: Instant
    runs: Mapping[str, RunUse] = field(default_factory=dict)
    projects: Mapping[ProjectName, ProjectUse] = field(default_factory=dict)

    def of(self, object_uid: str) -> RunUse | None:
        """The use of the run whose object has that uid."""
        return self.runs.get(_ticket(object_uid)) if object_uid else None


def mark_of(known: Utilisation) -> str:
    """A text that differs between different contents, whenever they were read."""
    runs = sorted(known.runs.items())
    rows = [[str(job), digest, *_row(use), use.idle_since_ms is not None] for (job, digest), use in runs]
    return sha256(compact_json(rows).encode()).hexdigest()


def encode_utilisation(known: Utilisation, state: ClusterState) -> Body:
    """The object as gpuctl applies it. Cost: linear in runs."""
    uids = {own.run: own.uid for own in state.own.values()}
    at_ms = known.at_ms or 0
    rows = {
        _ticket(uids[key]): [*_row(use), max(0, at_ms - use.seen_ms)]
        for key, use in known.runs.items()
        if uids.get(key)
    }
    said = compact_json({
        "version": 1,
        "at": format_timestamp(at_ms),
        "runs": dict(sorted(rows.items())[:MOST_RUNS]),
        "projects": {name: _sums(use) for name, use in sorted(known.projects.items())},
    })
    return published_object(UTILISATION_REF, KEY, said)


def decode_utilisation(body: Body) -> PublishedUse | None:
    """The use from its object; None for another object, or a damaged one."""
    said = published_text(body, UTILISATION_REF, KEY)
    if said is None:
        return None
    try:
        value = json.loads(said)
        at_ms = decode_instant(value["at"]) or 0
        return PublishedUse(
            at_ms=at_ms,
            runs={short_text(ticket): _run(row, at_ms) for ticket, row in value["runs"].items()},
            projects={
                ProjectName(short_text(name)): ProjectUse(**_amounts(row)) for name, row in value["projects"].items()
            },
        )
    except DAMAGE:
        return None


def resumed(published: PublishedUse | None, state: ClusterState) -> Utilisation:
    """The use that another replica published, for this one to go on from. Its age counts as for any other reading, for
    each run from when it was seen: otherwise a run that nothing measures any more would become idle by a succession of
    replicas."""
    if published is None:
        return Utilisation()
    found = {own.run: use for own in state.own.values() if (use := published.of(own.uid)) is not None}
    return Utilisation(at_ms=published.at_ms, runs=found)


def uses_by_ref(published: PublishedUse, state: ClusterState) -> Mapping[ObjectRef, RunUse]:
    """The use of each run whose object may be read."""
    found = ((ref, published.of(uid(state.live.get(ref, {})))) for ref in state.own)
    return {ref: use for ref, use in found if use is not None}


def _row(use: RunUse) -> list[int]:
    used, total = (-(-amount // _COARSE_BYTES) * _COARSE_BYTES for amount in (use.used_bytes, use.total_bytes))
    return [use.held_milli, use.held_milli * use.percent // 100, used, total, use.quiet_since_ms or 0]


def _run(row: Any, at_ms: Instant) -> RunUse:
    held, busy, used, total, quiet = map(amount, row[:5])
    age_ms = amount(row[5]) if row[5:] else 0
    return RunUse(
        held_milli=held,
        busy_milli=busy,
        used_bytes=used,
        total_bytes=total,
        quiet_since_ms=quiet or None,
        seen_ms=at_ms - age_ms,
    )


_SUMS = ("held_milli", "busy_milli", "used_bytes", "total_bytes", "idle_milli")


def _sums(use: ProjectUse) -> list[int]:
    return [getattr(use, name) for name in _SUMS]


def _amounts(row: Any) -> dict[str, int]:
    return dict(zip(_SUMS, map(amount, row), strict=True))


def _ticket(object_uid: str) -> str:
    return ticket("use", object_uid)
