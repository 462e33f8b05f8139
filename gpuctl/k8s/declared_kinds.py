"""Kinds that a Cluster declares, as JSON values for what the leader publishes, and back.

They contain what reading objects takes, not what a manifest may have: only the compiler needs that. Decoding raises
ValueError, TypeError, KeyError or IndexError for any other value.
"""

from __future__ import annotations

from typing import Any

from gpuctl.k8s.published import short_text
from gpuctl.model.workload_kind import Count, Path, PodSets, Suspension, Told, WorkloadKind

MOST_READ = 20
"""The most kinds that are read, which is as many as a Cluster may declare."""
_MOST_PARTS = 20


def kind_value(row: WorkloadKind) -> list[Any]:
    """A kind as a JSON value."""
    pods = [
        [list(sets.entries), sets.is_list, list(sets.template), [[list(each.path), each.usual] for each in sets.counts],
         sets.called, list(sets.name)]
        for sets in row.pods
    ]  # fmt: skip
    states = [_state_value(state) for state in (row.suspension.told, row.succeeded, row.failed)]
    active = [list(path) for path in row.suspension.active]
    return [*row.kind, row.plural, pods, list(row.suspension.field), row.suspension.is_count, states, active]


def decode_kind(value: Any) -> WorkloadKind:
    """A kind from its JSON value."""
    version, kind, plural, pods, suspend, is_count, states, active = value
    suspended, succeeded, failed = map(_state, states)
    return WorkloadKind(
        kind=(short_text(version), short_text(kind)),
        plural=short_text(plural),
        allowed={},
        pods=tuple(map(_pods, pods[:_MOST_PARTS])),
        suspension=Suspension(_path(suspend), is_count is True, suspended, tuple(map(_path, active[:_MOST_PARTS]))),
        succeeded=succeeded,
        failed=failed,
    )


def _pods(value: Any) -> PodSets:
    entries, is_list, template, counts, called, name = value
    return PodSets(
        entries=_path(entries),
        is_list=is_list is True,
        template=_path(template),
        counts=tuple(Count(_path(path), usual=1 if usual else 0) for path, usual in counts[:_MOST_PARTS]),
        called=short_text(called),
        name=_path(name),
    )


def _state_value(state: Told | None) -> list[Any] | None:
    return None if state is None else [state.condition, list(state.field), list(state.values)]


def _state(value: Any) -> Told | None:
    if value is None:
        return None
    condition, field, values = value
    return Told(short_text(condition), _path(field), tuple(map(short_text, values[:_MOST_PARTS])))


def _path(value: Any) -> Path:
    return tuple(map(short_text, value[:_MOST_PARTS]))
