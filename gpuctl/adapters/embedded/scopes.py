"""Scopes of a ResourceQuota: which pods it is about. Only the two of Kubernetes' scopes that gpuctl's quotas use.

Source: pkg/quota/v1/evaluator/core/pods.go and validateScopedResourceSelectorRequirement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.k8s import kinds
from gpuctl.k8s.objects import items, mapping, text
from gpuctl.model.state import Body

_CLASS, _AFFINITY = "PriorityClass", "CrossNamespacePodAffinity"
_WITH_VALUES, _WITHOUT = frozenset({"In", "NotIn"}), frozenset({"Exists", "DoesNotExist"})
_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
_WEIGHTED = "preferredDuringSchedulingIgnoredDuringExecution"


def problems(quota: Body) -> Iterator[str]:
    """What a server would refuse, and what the embedded cluster does not know."""
    if mapping(quota, "spec").get("scopes"):
        yield "spec.scopes: Unsupported value: the embedded cluster knows scopeSelector only"
    for expression in _expressions(quota):
        scope, operator, values = text(expression, "scopeName"), text(expression, "operator"), expression.get("values")
        if scope not in {_CLASS, _AFFINITY}:
            yield f"spec.scopeSelector: Unsupported value: the embedded cluster has no quota scope {scope}"
        elif operator not in _WITH_VALUES | _WITHOUT or (scope == _AFFINITY and operator != "Exists"):
            yield f"spec.scopeSelector: Invalid value: {operator!r} is no operator of {scope}"
        elif bool(values) != (operator in _WITH_VALUES):
            yield f"spec.scopeSelector: Invalid value: values of {operator}: {values!r}"


def is_about(quota: Body, body: Body) -> bool:
    """Whether all expressions of the quota hold for the object. A quota with a scope is only about pods."""
    expressions = list(_expressions(quota))
    if not expressions:
        return True
    if (body["apiVersion"], body["kind"]) != kinds.POD:
        return False
    return all(_holds(expression, body) for expression in expressions)


def _expressions(quota: Body) -> Iterator[Mapping[str, Any]]:
    return items(quota, "spec", "scopeSelector", "matchExpressions")


def _holds(expression: Mapping[str, Any], pod: Body) -> bool:
    if expression["scopeName"] == _AFFINITY:
        return any(map(_names_namespaces, _pod_affinities(pod)))
    named, values = text(pod, "spec", "priorityClassName"), expression.get("values") or ()
    match expression["operator"]:
        case "Exists":
            return bool(named)
        case "DoesNotExist":
            return not named
        case "In":
            return named in values
        case _:
            return named not in values  # also without a class


def _pod_affinities(pod: Body) -> Iterator[Mapping[str, Any]]:
    for way in ("podAffinity", "podAntiAffinity"):
        yield from items(pod, "spec", "affinity", way, _TERMS)
        yield from (mapping(term, "podAffinityTerm") for term in items(pod, "spec", "affinity", way, _WEIGHTED))


def _names_namespaces(term: Mapping[str, Any]) -> bool:
    return bool(term.get("namespaces")) or term.get("namespaceSelector") is not None
