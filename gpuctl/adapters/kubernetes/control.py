"""The ConfigMap by which people control gpuctl, on an API server, with the rights of the person at the command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuctl.adapters.kubernetes.connection import Connection
from gpuctl.adapters.kubernetes.paths import collection, item, with_query
from gpuctl.adapters.kubernetes.requests import JSON, MERGE, Request, Requests, encoded, patching
from gpuctl.app.ports import Forbidden, NotFound, WorldFault
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import text
from gpuctl.k8s.overview import OVERVIEW_REF
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import Instant

_REF = ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, names.CONTROL_NAME)
_MANAGER = {"fieldManager": "gpuctl-control"}
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def ask_for_git(requests: Requests, now_ms: Instant) -> None:
    """Make the leader read Git now, with the controller's rights; any replica may do this. Raises WorldFault."""
    patch = {"metadata": {"annotations": {names.SYNC_ANNOTATION: format_timestamp(now_ms)}}}
    requests.send(patching(_REF, patch, MERGE))


class KubernetesControl:
    """Implements the port ControlObject."""

    def __init__(self, connection: Connection) -> None:
        self._requests = Requests(connection)

    def read(self) -> Body | None:
        """The object as it is now; None if it does not exist."""
        try:
            return self._get(_REF)
        except NotFound:
            return None

    def overview(self) -> Body | None:
        """The overview that the leader publishes; None if it does not exist or the person may not read it."""
        try:
            return self._get(OVERVIEW_REF)
        except (NotFound, Forbidden):
            return None

    def annotate(self, notes: Mapping[str, str | None], resource_version: str) -> None:
        """Set annotations on that version of the object, or create it."""
        if resource_version:
            meta = {"annotations": dict(notes), "resourceVersion": resource_version}
            self._send("patch", "PATCH", item(_REF), {"metadata": meta}, MERGE)
            return
        given = {name: note for name, note in notes.items() if note is not None}
        meta = {"name": _REF.name, "namespace": _REF.namespace, "annotations": given}
        body = {"apiVersion": _REF.api_version, "kind": _REF.kind, "metadata": meta}
        self._send("create", "POST", collection(kinds.CONFIG_MAP, _REF.namespace), body, JSON)

    def person(self) -> str:
        """The name of the person, as the API server knows it; empty if the server does not say."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        request = Request(
            verb="create", kind=("authentication.k8s.io/v1", "SelfSubjectReview"), method="POST", path=_REVIEWS,
            what="ask for the name of the user", body=encoded(body),
        )  # fmt: skip
        try:
            return text(self._requests.send(request), "status", "userInfo", "username")
        except WorldFault:
            return ""

    def close(self) -> None:
        """End all waits."""
        self._requests.close()

    def _get(self, ref: ObjectRef) -> Body:
        found: Body = self._requests.send(
            Request(verb="get", kind=kinds.CONFIG_MAP, path=item(ref), what=f"read {ref}")
        )
        return found

    def _send(self, verb: str, method: str, path: str, body: Mapping[str, Any], content_type: str) -> None:
        self._requests.send(
            Request(
                verb=verb, kind=kinds.CONFIG_MAP, method=method, path=with_query(path, _MANAGER), what=f"{verb} {_REF}",
                body=encoded(body), content_type=content_type,
            )
        )  # fmt: skip
