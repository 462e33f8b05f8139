"""The declarations that reading a cluster needs: the project of each namespace, and the taints that pods tolerate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuctl.model.ids import ProjectName
from gpuctl.model.taints import Toleration
from gpuctl.model.workload_kind import WorkloadKind


def selects(match_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels belongs to the pool with that selector, if no earlier pool has it."""
    return all(labels.get(key) == value for key, value in match_labels.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTolerations:
    """The tolerations of a pool's pods. The pool has the nodes with these labels that no earlier pool has."""

    match_labels: Mapping[str, str]
    tolerations: tuple[Toleration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """gpuctl's name for the cluster, the projects by their namespaces, and the pools, as Git declares them.

    Security: nothing here is read from objects, so no label on an object can change it.
    `pools`: in their order; empty if no pool tolerates a taint. `workload_kinds`: the kinds of other controllers that
    the Cluster declares.
    """

    cluster: str
    projects: Mapping[str, ProjectName] = field(default_factory=dict)
    pools: tuple[PoolTolerations, ...] = ()
    workload_kinds: tuple[WorkloadKind, ...] = ()

    def tolerations(self, labels: Mapping[str, str]) -> tuple[Toleration, ...]:
        """The tolerations of the pods of the pool that has a node with these labels."""
        for pool in self.pools:
            if selects(pool.match_labels, labels):
                return pool.tolerations
        return ()
