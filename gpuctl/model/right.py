"""A right in Kubernetes that a user may need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """A verb on a resource, as in RBAC: `pods/log`. `user` "": the server does not say. `namespace` "": in all of them.

    `name`: of the one object that was asked for; "" for many, or if the server does not say.
    """

    user: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
