"""The parts of an admission policy: which requests it is about, and CEL. The API server's defaults are written out.

Without them, `kubectl apply` takes a list with an omitted default as changed at each apply; and if a field is missing
in `matchConstraints`, which has one owner as a whole, a later `kubectl apply --server-side` is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuctl.k8s import names

MAY_PATCH_NODES = "authorizer.group('').resource('nodes').check('patch').allowed()"
"""Whether the user may change nodes: administrators, schedulers, agents of GPUs, the garbage collector; no tenant."""


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


def by_others(makers: Sequence[str], *more: str) -> Mapping[str, str]:
    """The condition that the user is not one of these."""
    return {"name": "by-others", "expression": f"!(request.userInfo.username in {cel_list((*makers, *more))})"}


def variable(name: str, expression: str) -> Mapping[str, str]:
    """A variable, which expressions use as `variables.NAME`."""
    return {"name": name, "expression": expression}


def validation(expression: str, text: str) -> Mapping[str, str]:
    """Refuse requests for which the expression is false, with this text."""
    return {"expression": expression, "message": text, "reason": "Forbidden"}


def cel_list(values: Iterable[str]) -> str:
    """A CEL list of texts."""
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"
