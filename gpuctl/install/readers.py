"""Roles for people. `gpuctl install` binds them to no one; an administrator does.

ClusterRole `gpuctl-reader`: bound in a project's namespace, it shows the jobs there; bound in the cluster, all jobs.
Role `gpuctl-reader` in gpuctl's namespace: shows the overview and the use of GPUs, for every team and without jobs'
names.
Role `gpuctl-operator` there: shows ledgers, for `diff` and `plan --context`, and the status with its Lease.
Role `gpuctl-history` there: shows the past of all teams, by a port of the controller's pods.
Role `gpuctl-freezer` there: the only one that writes, annotations of a single object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.install.installation import USUAL, Duties, made
from gpuctl.k8s import kinds, names
from gpuctl.model.state import Body

_LOOK = ["get", "list", "watch"]


def reader_roles(duties: Duties = USUAL) -> Iterator[Body]:
    """The roles. None of them has a verb that changes anything, reads a Secret, or enters a container."""
    home = names.SYSTEM_NAMESPACE
    yield made(kinds.CLUSTER_ROLE, names.READER_ROLE, {"rules": list(_cluster_rules(duties))})
    told = [names.OVERVIEW_NAME, names.UTILISATION_NAME]
    published = {**_rule(kinds.CONFIG_MAP, "get"), "resourceNames": told}
    yield made(kinds.ROLE, names.READER_ROLE, {"rules": [published]}, namespace=home)
    rules = [_rule(kinds.CONFIG_MAP, *_LOOK), {**_rule(kinds.LEASE, *_LOOK), "resourceNames": [names.LEASE_NAME]}]
    yield made(kinds.ROLE, names.OPERATOR_ROLE, {"rules": rules}, namespace=home)


def history_role() -> Iterator[Body]:
    """The role of people who may see the past of all teams: which replica leads, and its port for the history."""
    lease = {**_rule(kinds.LEASE, *_LOOK), "resourceNames": [names.LEASE_NAME]}
    port = {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["create", "get"]}
    yield made(kinds.ROLE, names.HISTORY_ROLE, {"rules": [lease, port]}, namespace=names.SYSTEM_NAMESPACE)


def freezer_role() -> Iterator[Body]:
    """The role of people who may freeze a part and have Git read now, and the object that they write.

    It also shows the overview, which names the projects. The object is created without annotations, so applying it
    again ends no freeze.
    """
    home = names.SYSTEM_NAMESPACE
    note = "gpuctl freeze, unfreeze and sync write annotations here: who may change this object may do that."
    yield made(kinds.CONFIG_MAP, names.CONTROL_NAME, {}, namespace=home, note=note)
    may = {**_rule(kinds.CONFIG_MAP, "get", "patch"), "resourceNames": [names.CONTROL_NAME]}
    sees = {**_rule(kinds.CONFIG_MAP, "get"), "resourceNames": [names.OVERVIEW_NAME]}
    yield made(kinds.ROLE, names.FREEZER_ROLE, {"rules": [may, sees]}, namespace=home)


def _cluster_rules(duties: Duties) -> Iterator[Mapping[str, Any]]:
    """The rules for everything a cycle reads except ConfigMaps; for logs and events."""
    shown = {kind for kind in kinds.OBSERVED if kind != kinds.CONFIG_MAP} | {kinds.CORE_EVENT, kinds.EVENT}
    by_group: dict[str, list[str]] = defaultdict(list)
    for kind in shown:
        by_group[kinds.group_of(kind)].append(kinds.KINDS[kind].plural)
    for group, plural in duties.pairs:
        if plural not in by_group[group]:
            by_group[group].append(plural)
    if duties.engine == "kueue":
        by_group[kinds.group_of(kinds.KUEUE_WORKLOAD)].append(kinds.KINDS[kinds.KUEUE_WORKLOAD].plural)
    for group, plurals in sorted(by_group.items()):
        yield {"apiGroups": [group], "resources": sorted(plurals), "verbs": _LOOK}
    yield {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}


def _rule(kind: kinds.Kind, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [kinds.group_of(kind)], "resources": [kinds.KINDS[kind].plural], "verbs": list(verbs)}
