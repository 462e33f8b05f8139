"""Ledgers of all clusters that share the API server, by the cluster's name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import LedgerReading, decode_ledger, shard_refs, shards_of
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.memo import Memo
from gpuctl.model.state import Body, Ledger
from gpuctl.observe.unreadable import Unreadable, read


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecords:
    """One cluster's ledgers, their unreadable parts, and the objects that hold shards."""

    ledgers: Mapping[ProjectName, Ledger] = field(default_factory=dict)
    damaged: tuple[tuple[ObjectRef, str], ...] = ()
    shards: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """All records, by cluster name."""

    by_cluster: Mapping[str, ClusterRecords] = field(default_factory=dict)

    def of(self, cluster: str) -> ClusterRecords:
        """One cluster's records; without a name, those of all clusters."""
        if cluster:
            return self.by_cluster.get(cluster, ClusterRecords())
        every = [records for _, records in sorted(self.by_cluster.items())]
        return ClusterRecords(
            ledgers={project: ledger for records in every for project, ledger in records.ledgers.items()},
            damaged=tuple(found for records in every for found in records.damaged),
            shards=tuple(ref for records in every for ref in records.shards),
        )

    def ledgers_of(self, cluster: str) -> tuple[Ledger, ...]:
        """One cluster's ledgers; without a name, those of all clusters, even if projects of two have the same name."""
        chosen = [cluster] if cluster else sorted(self.by_cluster)
        return tuple(ledger for name in chosen for _, ledger in sorted(self.of(name).ledgers.items()))

    def claimed_besides(self, cluster: str) -> Mapping[str, str]:
        """Namespaces in ledgers of other clusters, with the cluster."""
        if not cluster:
            return {}
        return {
            ref.name: other
            for other, records in sorted(self.by_cluster.items())
            if other != cluster
            for ledger in records.ledgers.values()
            for ref in ledger.inventory
            if (ref.api_version, ref.kind) == kinds.NAMESPACE
        }


def read_ledgers(
    objects: Mapping[ObjectRef, Body], known: Memo[ObjectRef, LedgerReading | None] | None = None
) -> Records:
    """Read all ledgers among these objects. Never raises. Cost: linear in the entries of those not in `known`."""
    known = Memo() if known is None else known
    kept = [ref for ref in objects if ref.namespace == names.SYSTEM_NAMESPACE and ref.kind == kinds.CONFIG_MAP[1]]
    ledgers: dict[str, dict[ProjectName, Ledger]] = defaultdict(dict)
    damaged: dict[str, list[tuple[ObjectRef, str]]] = defaultdict(list)
    shards: dict[str, list[ObjectRef]] = defaultdict(list)
    for ref in sorted(kept):
        whose = names.ledger_owner(ref.name)
        parts = shard_refs(whose[0], ProjectName(whose[1]), shards_of(objects[ref])) if whose is not None else ()
        bodies = (objects[ref], *map(objects.get, parts))
        reading = known.get(ref, bodies, partial(_decoded, ref, objects))
        shard = names.shard_owner(ref.name)
        if shard is not None:
            shards[shard[0]].append(ref)
        if reading is not None and whose is not None:
            ledgers[whose[0]][reading.ledger.project] = reading.ledger
            damaged[whose[0]].extend((ref, part) for part in reading.damaged)
    return Records(
        by_cluster={
            cluster: ClusterRecords(
                ledgers=ledgers[cluster], damaged=tuple(damaged[cluster]), shards=tuple(shards[cluster])
            )
            for cluster in sorted({*ledgers, *damaged, *shards})
        }
    )


def _decoded(ref: ObjectRef, objects: Mapping[ObjectRef, Body]) -> LedgerReading | None:
    """Decode a ledger. If reading raises an unexpected error, the ledger counts as damaged as a whole."""
    found = read(partial(decode_ledger, objects[ref], objects), lambda: None)
    if not isinstance(found, Unreadable):
        return found
    whose = names.ledger_owner(ref.name)
    return LedgerReading(ledger=Ledger(project=ProjectName(whose[1])), damaged=("data",)) if whose else None
