"""A right in Kubernetes: what a user would have to be allowed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """`user` "": the server does not say. `namespace` "": in the whole cluster. `resource` as in RBAC: `pods/log`.

    `name`: of the one object that was asked for; "" for many, or where the server does not say.
    """

    user: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
