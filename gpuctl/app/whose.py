"""The clusters for which gpuctl keeps ledgers on a control plane."""

from __future__ import annotations

from gpuctl.app.ports import Cluster
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import ref_of
from gpuctl.observe import Records, read_ledgers


def ledgers_on(cluster: Cluster) -> Records:
    """All ledgers of gpuctl on this control plane. Raises ClusterUnavailable or Forbidden where they can't be read."""
    return read_ledgers({ref_of(body): body for body in cluster.list(kinds.CONFIG_MAP).items})


def other_clusters(cluster: Cluster, name: str) -> tuple[str, ...]:
    """The clusters with ledgers on this control plane, if `name` is not among them; empty for a new control plane.

    Raises what `ledgers_on` raises.
    """
    kept = ledgers_on(cluster).by_cluster
    return () if name in kept else tuple(sorted(kept))
