"""Whose a control plane is: the clusters that gpuctl keeps there, by their ledgers."""

from __future__ import annotations

from gpuctl.app.ports import Cluster
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import ref_of
from gpuctl.observe import read_ledgers


def other_clusters(cluster: Cluster, name: str) -> tuple[str, ...]:
    """The clusters that gpuctl keeps there, where that one is not among them. Nothing is said of a new control plane.

    Raises ClusterUnavailable or Forbidden where they can't be read.
    """
    bodies = {ref_of(body): body for body in cluster.list(kinds.CONFIG_MAP).items}
    kept = read_ledgers(bodies).by_cluster
    return () if name in kept else tuple(sorted(kept))
