"""Which requests an admission policy is about, with the API server's defaults written out.

`kubectl apply` takes a list with a default that was left away for a changed one at each apply; and one field that is
missing in `matchConstraints`, which has one owner as a whole, refuses `kubectl apply --server-side` after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuctl.k8s import names


def everywhere(*rules: Mapping[str, Any]) -> Mapping[str, Any]:
    """`matchConstraints` of a policy about the whole cluster."""
    return {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": list(rules)}


def in_projects(*rules: Mapping[str, Any]) -> Mapping[str, Any]:
    """`matchConstraints` of a policy about the namespaces of projects."""
    return {**everywhere(*rules), "namespaceSelector": {"matchLabels": {names.MANAGED_LABEL: "true"}}}


def rule(group: str, version: str, resources: Iterable[str], operations: Iterable[str]) -> Mapping[str, Any]:
    """One of the rules: a request matches by any of them."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
        "operations": list(operations),
        "scope": "*",
    }
