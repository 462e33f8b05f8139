"""Waits until an API server knows of a write: it answers the write before its own admission and authorization do.

These follow the objects by watches, as any client does. Asked at once, a busy server refuses in a third of all cases
what a role allows, and accepts in one of fifteen what a quota forbids, which the quota's controller has counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from controlplane.server import ControlPlane, pauses

_WITHIN_S = 120.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
_OF_ALL = "selfsubject"
"""Skipped: all accounts may ask for their own rights."""
_PLURAL = "podtemplates"
"""A kind of which no test makes objects."""
_TEMPLATE = {
    "metadata": {"generateName": "x-"}, "template": {"spec": {"containers": [{"name": "x", "image": "x"}]}}
}  # fmt: skip
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NOT_YET = {409, 504}
"""The definition is being made, or that takes long."""
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def await_rights(plane: ControlPlane, token: str, namespace: str = "default", *resources: str) -> None:
    """Wait until the server knows that a role was bound to a token's account: a role with rights on these resources, or
    with any rights if none are given and the account had none."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}

    def known() -> bool:
        rules = plane.call("POST", _REVIEWS, body, token=token)["status"]["resourceRules"]
        found = {each for rule in rules for each in rule["resources"] if not each.startswith(_OF_ALL)}
        return found.issuperset(resources) and bool(found)

    _until(known)


def await_quotas(plane: ControlPlane, namespace: str) -> None:
    """Wait until the server refuses pods that a namespace's quotas forbid, for quotas that were counted before.

    The server learns of quotas in the order in which they are written: once one more is in force, all earlier ones are.
    """
    space = f"/api/v1/namespaces/{namespace}"
    last = {"metadata": {"generateName": "last-"}, "spec": {"hard": {f"count/{_PLURAL}": "0"}}}
    made = plane.call("POST", f"{space}/resourcequotas", last)["metadata"]["name"]
    _until(lambda: made in str(plane.refused("POST", f"{space}/{_PLURAL}?dryRun=All", _TEMPLATE)))
    plane.call("DELETE", f"{space}/resourcequotas/{made}")


def write_policy(plane: ControlPlane, name: str, spec: Mapping[str, Any]) -> tuple[str, str]:
    """Make an admission policy that refuses what breaks it. Returns the paths to delete, its binding's first."""
    bound = {"policyName": name, "validationActions": ["Deny"]}
    policies, bindings = f"{_ADMISSION}/validatingadmissionpolicies", f"{_ADMISSION}/validatingadmissionpolicybindings"
    plane.call("POST", policies, {"metadata": {"name": name}, "spec": spec})
    plane.call("POST", bindings, {"metadata": {"name": name}, "spec": bound})
    return f"{bindings}/{name}", f"{policies}/{name}"


def await_policies(plane: ControlPlane) -> None:
    """Wait until all admission policies that were written before are in force. Each second the server takes up all new
    ones together, so once one more is in force, all earlier ones are."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": [_PLURAL], "operations": ["CREATE"]}]
    no = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false", "message": "the last"}]}
    written = write_policy(plane, "last", no)
    path = f"/api/v1/namespaces/default/{_PLURAL}?dryRun=All"
    _until(lambda: "the last" in str(plane.refused("POST", path, _TEMPLATE)))
    for made in written:
        plane.call("DELETE", made)


def define(plane: ControlPlane, *definitions: Mapping[str, Any]) -> None:
    """Make the CustomResourceDefinitions that are missing, and wait until the server serves them.

    One after another, because for each one the server describes all that it serves again. A busy server gives up a
    request after half a minute, and may complete it later.
    """
    for body in definitions:
        _until(lambda: _is_served(plane, body))  # noqa: B023 - it is called here


def _is_served(plane: ControlPlane, definition: Mapping[str, Any]) -> bool:
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    if plane.refused("GET", path) is not None:
        refused = plane.refused("POST", DEFINITIONS, definition)
        assert refused is None or refused[0] in _NOT_YET, refused
        return False
    conditions = plane.call("GET", path).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _until(holds: Callable[[], bool]) -> None:
    until, waits = time.monotonic() + _WITHIN_S, pauses()
    while not holds():
        assert time.monotonic() < until, "the server does not hear of it"
        time.sleep(next(waits))
