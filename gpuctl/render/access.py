"""The rights in a project's namespace: a RoleBinding for each granted role.

One object for each role, not for each grant: its subjects may change in place, its role never may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpuctl.k8s import kinds
from gpuctl.model.declared import RoleGrant
from gpuctl.model.manifest import Manifest
from gpuctl.render.owner import ProjectOwner

_RBAC = "rbac.authorization.k8s.io"


def role_bindings(owner: ProjectOwner) -> Iterator[Manifest]:
    """A binding to each ClusterRole that the project grants."""
    by_role: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for grant in owner.project.access:
        by_role[grant.role].add(_subject(grant))
    for role, subjects in sorted(by_role.items()):
        yield owner.manifest(
            kinds.ROLE_BINDING,
            f"gpuctl-{role}",
            {
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": _RBAC, "kind": kind, "name": name} for kind, name in sorted(subjects)],
            },
        )


def _subject(grant: RoleGrant) -> tuple[str, str]:
    return grant.subject_kind.capitalize(), grant.subject
