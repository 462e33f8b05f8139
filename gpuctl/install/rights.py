"""What the controller may do: the verbs it uses, and no other.

Objects of people (Secrets above all), nodes, and everything that decides over rights and admission are not among them.
A RoleBinding may name the roles of `Installation.roles` alone: the API server asks for the right to bind each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuctl.install.installation import NAME, Installation, made
from gpuctl.k8s import kinds, names
from gpuctl.model.state import Body


def account_and_rights(wanted: Installation) -> Iterator[Body]:
    """The ServiceAccount, its roles, and the bindings between them."""
    home = names.SYSTEM_NAMESPACE
    own = {kind for kind in kinds.VERBS if kinds.KINDS[kind].own_namespace}
    yield made(kinds.SERVICE_ACCOUNT, NAME, {"automountServiceAccountToken": False}, namespace=home)
    yield made(kinds.CLUSTER_ROLE, NAME, {"rules": [*_rules(kinds.VERBS.keys() - own), _bind(wanted.roles)]})
    more = _leading_here() if wanted.dashboard else ()
    yield made(kinds.ROLE, NAME, {"rules": [*_rules(own), *more]}, namespace=home)
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": home}]
    yield made(kinds.CLUSTER_ROLE_BINDING, NAME, {"roleRef": _ref(kinds.CLUSTER_ROLE), "subjects": subjects})
    yield made(kinds.ROLE_BINDING, NAME, {"roleRef": _ref(kinds.ROLE), "subjects": subjects}, namespace=home)


def _rules(some: Iterable[kinds.Kind]) -> list[Mapping[str, Any]]:
    """A rule for each API group and set of verbs."""
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for kind in some:
        grouped[kinds.group_of(kind), kinds.VERBS[kind]].append(kinds.KINDS[kind].plural)
    return [
        {"apiGroups": [group], "resources": sorted(resources), "verbs": list(may)}
        for (group, may), resources in sorted(grouped.items())
    ]


def _leading_here() -> Iterator[Mapping[str, Any]]:
    """What the leader needs to have the dashboard's Service lead to it. No right to create can name an object."""
    kind = kinds.ENDPOINT_SLICE
    slices = {"apiGroups": [kinds.group_of(kind)], "resources": [kinds.KINDS[kind].plural]}
    yield {**slices, "verbs": ["create"]}
    yield {**slices, "verbs": ["patch"], "resourceNames": [names.DASHBOARD_SERVICE]}


def _bind(roles: Iterable[str]) -> Mapping[str, Any]:
    return {
        "apiGroups": [kinds.group_of(kinds.CLUSTER_ROLE)],
        "resources": [kinds.KINDS[kinds.CLUSTER_ROLE].plural],
        "resourceNames": sorted(roles),
        "verbs": ["bind"],
    }


def _ref(kind: kinds.Kind) -> Mapping[str, str]:
    return {"apiGroup": kinds.group_of(kind), "kind": kind[1], "name": NAME}
