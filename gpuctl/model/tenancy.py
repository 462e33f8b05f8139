"""What Git says that reading a cluster needs: which namespace is which project's, and which taints keep no pod away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.model.ids import ProjectName
from gpuctl.model.taints import Toleration
from gpuctl.model.workload_kind import WorkloadKind


def selects(match_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a live node with these labels is one of the pool's that selects nodes so, if no pool before it has it."""
    return all(labels.get(key) == value for key, value in match_labels.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTolerations:
    """What the pods of a pool tolerate; the pool has the nodes with these labels that no pool before it has."""

    match_labels: Mapping[str, str]
    tolerations: tuple[Toleration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """The name that gpuctl acts under, the projects by their namespaces, and the pools, as Git declares them.

    Nothing of it is read from objects, so no label on an object can change it. `pools` are in their order; there are
    none where no pool tolerates a taint. `workload_kinds`: the kinds of other controllers that the Cluster declares.
    """

    cluster: str
    projects: Mapping[str, ProjectName] = field(default_factory=dict)
    pools: tuple[PoolTolerations, ...] = ()
    workload_kinds: tuple[WorkloadKind, ...] = ()

    def tolerations(self, labels: Mapping[str, str]) -> tuple[Toleration, ...]:
        """What the pods of the pool of a node with these labels tolerate."""
        for pool in self.pools:
            if selects(pool.match_labels, labels):
                return pool.tolerations
        return ()
