"""The controller's rights: the verbs it uses, and no other.

They do not include objects of people (Secrets above all), nodes, and everything that decides about rights and
admission. A RoleBinding may name only the roles of `Installation.roles`: the API server requires the right to bind
each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from gpuctl.install.installation import NAME, USUAL, Duties, Installation, made
from gpuctl.k8s import kinds, names
from gpuctl.model.state import Body


def account_and_rights(wanted: Installation, duties: Duties = USUAL) -> Iterator[Body]:
    """The ServiceAccount, its roles, and the bindings between them."""
    home = names.SYSTEM_NAMESPACE
    own = {kind for kind in kinds.VERBS if kinds.KINDS[kind].own_namespace}
    yield made(kinds.SERVICE_ACCOUNT, NAME, {"automountServiceAccountToken": False}, namespace=home)
    yield made(kinds.CLUSTER_ROLE, NAME, {"rules": [*_rules(_rights(duties)), _bind(wanted.roles)]})
    more = _leading_here() if wanted.dashboard else ()
    here = _rules({_place(kind): kinds.VERBS[kind] for kind in own})
    yield made(kinds.ROLE, NAME, {"rules": [*here, *more]}, namespace=home)
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": home}]
    yield made(kinds.CLUSTER_ROLE_BINDING, NAME, {"roleRef": _ref(kinds.CLUSTER_ROLE), "subjects": subjects})
    yield made(kinds.ROLE_BINDING, NAME, {"roleRef": _ref(kinds.ROLE), "subjects": subjects}, namespace=home)


_Place: TypeAlias = tuple[str, str]
"""An API group, and a plural in it."""


def _place(kind: kinds.Kind) -> _Place:
    return kinds.group_of(kind), kinds.KINDS[kind].plural


def _rights(duties: Duties) -> Mapping[_Place, tuple[str, ...]]:
    """The verbs on everything that is not only in gpuctl's own namespace.

    If another engine decides, its objects are written; workloads of other controllers and claims are then only read.
    """
    own = {kind for kind in kinds.VERBS if kinds.KINDS[kind].own_namespace}
    found = {_place(kind): kinds.VERBS[kind] for kind in kinds.VERBS.keys() - own}
    of_others = kinds.VERBS[kinds.JOB_SET]
    found |= {(kinds.group_of(row.kind), row.plural): of_others for row in duties.kinds}
    if duties.engine:
        left_out = {*duties.pairs, _place(kinds.CLAIM_TEMPLATE)}
        found |= {place: tuple(verb for verb in found[place] if verb in kinds.READ_VERBS) for place in left_out}
        found |= {_place(kind): kinds.verbs_of_engine(kind) for kind in kinds.of_engine(duties.engine)}
        classes = _place(kinds.PRIORITY_CLASS)
        found[classes] = tuple(sorted({*found[classes], "delete"}))
    return found


def _rules(rights: Mapping[_Place, tuple[str, ...]]) -> list[Mapping[str, Any]]:
    """One rule for each API group and set of verbs."""
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, plural), may in rights.items():
        grouped[group, may].append(plural)
    return [
        {"apiGroups": [group], "resources": sorted(resources), "verbs": list(may)}
        for (group, may), resources in sorted(grouped.items())
    ]


def _leading_here() -> Iterator[Mapping[str, Any]]:
    """The rights by which the leader points the dashboard's Service to itself. A right to create can't name an
    object."""
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
