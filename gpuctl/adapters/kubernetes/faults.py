"""Turns the server's refusals, an HTTP status and a Status object, into the exceptions of the ports."""

from __future__ import annotations

import re
from typing import Any

from gpuctl.adapters.kubernetes.decoding import decode
from gpuctl.adapters.kubernetes.refusals import said
from gpuctl.app.ports import (
    OF_A_BUSY_QUOTA,
    OF_A_WEBHOOK,
    ClusterUnavailable,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    WorldFault,
)
from gpuctl.app.rights import RightMissing
from gpuctl.diag.wording import message
from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.objects import items, number, text
from gpuctl.model.right import Right
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs

AWAY = "GPU7001"
UNAUTHORIZED = 401
_RIGHT = re.compile(
    r'(?:User "(?P<user>[^"]*)" )?cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_REFUSED = frozenset({400, 405, 406, 413, 415, 422})
_NOT_READY = "not yet ready to handle request"
"""The server says so of what it has not read yet, as after a start."""
_OF_THE_BODY = (
    "failed to create typed patch object", "request is too large", "failed to convert new object",
    "failed to allocate", OF_A_BUSY_QUOTA,
)  # fmt: skip
"""Words in refusals of one object that the server answers with 500. Security: a tenant can use up all addresses for
Services, or keep the quota of its namespace busy. If the server counted as away then, nothing would be written for
anyone."""


class Passing(ClusterUnavailable):
    """A temporary failure. `wait_ms`: how long the server asks to wait; `sent`: whether the request may have taken
    effect; `of_webhook`: the server itself answers, but an admission webhook does not."""

    def __init__(self, text: str, *, wait_ms: DurationMs = 0, sent: bool = False, of_webhook: bool = False) -> None:
        super().__init__(AWAY, text)
        self.wait_ms = wait_ms
        self.sent = sent
        self.of_webhook = of_webhook


class Unauthorized(ClusterUnavailable):
    """401: the server does not accept the credentials."""


class Untrusted(ClusterUnavailable):
    """The server's certificate is not signed by the authority of the kubeconfig."""


def unsupported(what: str) -> NotFound:
    """The fault for a kind that this client or its server does not know."""
    return NotFound("GPU7003", f"the server has no {what}")


def status_of(data: bytes) -> Body:
    """The Status in an answer, or an empty mapping: proxies and unknown paths answer in plain text."""
    try:
        decoded: Any = decode(data)
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def fault_of(code: int, status: Body, what: str, retry_after: str = "") -> WorldFault:
    """The fault for an answer other than 2xx. `what`: the request in words."""
    short = said(code, status)
    told = f"{what}: {short}"
    if code == UNAUTHORIZED:
        return Unauthorized("GPU7014", short)
    if code == 403:
        return Passing(told) if _NOT_READY in text(status, "message") else _forbidden(status, told)
    if code == 404:
        return NotFound("GPU7003", told if status else f"{what}: the server does not serve this kind")
    if code == 409 or (code == 422 and _is_another(status)):
        return Conflict("GPU7004", told)
    if code == 410:
        return Gone("GPU7005", told)
    if code in _REFUSED or (code == 500 and any(sign in text(status, "message") for sign in _OF_THE_BODY)):
        return Invalid("GPU7006", told)
    of_webhook = code == 500 and OF_A_WEBHOOK in text(status, "message")
    return Passing(told, wait_ms=_wait_ms(status, retry_after), sent=code not in {429, 503}, of_webhook=of_webhook)


def _is_another(status: Body) -> bool:
    """Whether an apply was refused because the object has another uid than the body: the server calls that invalid."""
    return any(text(cause, "field") == "metadata.uid" for cause in items(status, "details", "causes"))


def _forbidden(status: Body, told: str) -> Forbidden:
    """The fault for a 403: by RBAC, with the missing rule; else (a quota, a policy) in the server's words."""
    found = _RIGHT.search(text(status, "message"))
    if found is None:
        return Forbidden("GPU7002", told)
    group, namespace = found["group"], found["namespace"]
    resource = f"{found['resource']}.{group}" if group else found["resource"]
    rule = f"{{apiGroups: ['{group}'], resources: [{found['resource']}], verbs: [{found['verb']}]}}"
    params = {
        "user": found["user"] or "the account",
        "verb": found["verb"],
        "resource": resource,
        "where": f" in namespace {namespace}" if namespace else " in the cluster",
        "rule": rule,
    }
    right = Right(
        user=found["user"] or "", verb=found["verb"], group=group, resource=found["resource"],
        namespace=namespace or "", name=text(status, "details", "name"),
    )  # fmt: skip
    return RightMissing(message("GPU7015", params), right)


def _wait_ms(status: Body, retry_after: str) -> DurationMs:
    """The wait that the header or the Status asks for. A date in the header is ignored: no API server sends one."""
    asked = whole_number(retry_after)
    seconds = number(status, "details", "retryAfterSeconds") if asked is None else asked
    return 1000 * min(seconds, 3600)
