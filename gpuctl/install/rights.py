"""What the controller may do: the verbs it uses, and no other.

Objects of people (Secrets above all), nodes, and everything that decides over rights and admission are not among them.
A RoleBinding may name the roles of `Installation.roles` alone: the API server asks for the right to bind each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuctl.install.installation import NAME, Installation, made
from gpuctl.k8s import names
from gpuctl.model.state import Body

_RBAC = "rbac.authorization.k8s.io"
_ROLE = (f"{_RBAC}/v1", "Role")
_CLUSTER_ROLE = (f"{_RBAC}/v1", "ClusterRole")
_CLUSTER_ROLE_BINDING = (f"{_RBAC}/v1", "ClusterRoleBinding")
_SERVICE_ACCOUNT = ("v1", "ServiceAccount")

_READ = ("list", "watch")
_APPLY = ("create", "patch")
"""Server-side apply is a patch; the server asks for the right to create too when there is nothing yet."""
_WRITE = (*_APPLY, "delete")

_WRITTEN: Mapping[names.Kind, tuple[str, ...]] = {
    names.NAMESPACE: _WRITE,
    names.SERVICE: _WRITE,
    names.CONFIG_MAP: _WRITE,
    names.CLAIM: _WRITE,
    names.RESOURCE_QUOTA: _WRITE,
    names.JOB: _WRITE,
    names.DEPLOYMENT: _WRITE,
    names.INGRESS: _WRITE,
    names.ROLE_BINDING: _WRITE,
    names.PRIORITY_CLASS_KIND: _APPLY,
    names.CLAIM_TEMPLATE: _WRITE,
    names.EVENT: _APPLY,
    names.LEASE: ("get", "create", "update"),
}
_OWN = frozenset({names.CONFIG_MAP, names.LEASE})
"""Kinds that are used in gpuctl's own namespace only."""


def verbs() -> Mapping[names.Kind, tuple[str, ...]]:
    """What is done with each kind, sorted."""
    read = dict.fromkeys(names.OBSERVED_KINDS, _READ)
    return {kind: tuple(sorted({*read.get(kind, ()), *_WRITTEN.get(kind, ())})) for kind in sorted({*read, *_WRITTEN})}


def account_and_rights(wanted: Installation) -> Iterator[Body]:
    """The ServiceAccount, its roles, and the bindings between them."""
    home = names.SYSTEM_NAMESPACE
    yield made(_SERVICE_ACCOUNT, NAME, {"automountServiceAccountToken": False}, namespace=home)
    yield made(_CLUSTER_ROLE, NAME, {"rules": [*_rules(verbs().keys() - _OWN), _bind(wanted.roles)]})
    yield made(_ROLE, NAME, {"rules": _rules(_OWN)}, namespace=home)
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": home}]
    yield made(_CLUSTER_ROLE_BINDING, NAME, {"roleRef": _ref(_CLUSTER_ROLE), "subjects": subjects})
    yield made(names.ROLE_BINDING, NAME, {"roleRef": _ref(_ROLE), "subjects": subjects}, namespace=home)


def _rules(kinds: Iterable[names.Kind]) -> list[Mapping[str, Any]]:
    """A rule for each API group and set of verbs."""
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    allowed = verbs()
    for kind in kinds:
        grouped[_group(kind), allowed[kind]].append(names.PLURALS[kind])
    return [
        {"apiGroups": [group], "resources": sorted(resources), "verbs": list(may)}
        for (group, may), resources in sorted(grouped.items())
    ]


def _bind(roles: Iterable[str]) -> Mapping[str, Any]:
    return {"apiGroups": [_RBAC], "resources": ["clusterroles"], "resourceNames": sorted(roles), "verbs": ["bind"]}


def _ref(kind: names.Kind) -> Mapping[str, str]:
    return {"apiGroup": _group(kind), "kind": kind[1], "name": NAME}


def _group(kind: names.Kind) -> str:
    return kind[0].rpartition("/")[0]
