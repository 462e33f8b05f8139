"""The taints that pods of jobs tolerate: those of GPU nodes everywhere, and what their pools declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuctl.k8s import names
from gpuctl.model.taints import Toleration

OF_ALL_PODS = tuple(Toleration(key=key, effect="NoSchedule") for key in names.TOLERATED_TAINT_KEYS)
"""The taints that every pod of a job tolerates."""
OF_THE_CLUSTER = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taint keys for nodes that are lost, full or leaving: a pool may tolerate none of them."""


def tolerations(declared: Iterable[Toleration]) -> list[Mapping[str, str]]:
    """The tolerations of a pod, in Kubernetes' form; `declared`: those of its pools."""
    return [_written(each) for each in dict.fromkeys((*OF_ALL_PODS, *declared))]


def _written(toleration: Toleration) -> Mapping[str, str]:
    value = {"operator": "Exists"} if toleration.value is None else {"operator": "Equal", "value": toleration.value}
    effect = {} if toleration.effect is None else {"effect": toleration.effect}
    return {"key": toleration.key, **value, **effect}
