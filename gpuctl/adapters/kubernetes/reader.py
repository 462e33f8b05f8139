"""A cluster as people's commands read it: all of it once, or the part that a person may read and what is published to
all.

Tenants decide how large objects are, and how many: no command of another person may need memory for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from threading import Lock

from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import Connection
from gpuctl.adapters.kubernetes.listing import Page, read_page
from gpuctl.adapters.kubernetes.paths import collection, item, with_query
from gpuctl.adapters.kubernetes.requests import Request
from gpuctl.app.kept import Keep, KeepSmall
from gpuctl.app.ports import Forbidden, NotFound, ObjectList
from gpuctl.k8s.kinds import CLUSTER_SCOPED, CONFIG_MAP, JOB, NAMESPACE, SCOPES, WITH_PEOPLES, Kind, for_people
from gpuctl.k8s.overview import OVERVIEW_REF, decode_overview
from gpuctl.k8s.utilisation import UTILISATION_REF
from gpuctl.model.ids import ObjectRef
from gpuctl.model.overview import ProjectOverview
from gpuctl.model.state import Body

MOST_NAMESPACES = 500
"""The most namespaces that are tried for a person who may not read all: of the first projects by name."""
_LIMIT = "500"


class OnceCluster(KubernetesCluster):
    """A cluster that a command reads once, without writing. Of each object it has the parts that a cycle reads,
    including objects that people made in the place of gpuctl's."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, scopes=WITH_PEOPLES, keep=Keep())
        self._listed: dict[Kind, ObjectList] = {}

    def list(self, kind: Kind) -> ObjectList:
        """All objects of a kind, as they were at the first request: commands look at ledgers before all else."""
        if kind not in self._listed:
            self._listed[kind] = super().list(kind)
        return self._listed[kind]


class PartCluster(KubernetesCluster):
    """A cluster to be read for a person; `list` leaves out what the person may not see.

    A kind that may not be read in the whole cluster is read in the namespaces of projects that the person may read, as
    named by the overview, or else in the one that the kubeconfig's context names; of ConfigMaps only the published
    ones. Raises Forbidden if nothing of a kind may be read.

    `namespace`: only this one. `project`: only this project's namespace is tried. Of an object that is larger than any
    that people look at, it has the parts that a cycle reads. Cost: if something is refused, one request more for each
    namespace that is tried, several at once.
    """

    def __init__(self, connection: Connection, namespace: str | None = None, project: str | None = None) -> None:
        super().__init__(connection, scopes=for_people(namespace or ""), keep=KeepSmall())
        self._only = namespace
        self._project = project
        self._usual = connection.context.namespace
        self._finding = Lock()
        self._found: Sequence[str] | None = None

    def list(self, kind: Kind) -> ObjectList:
        """All objects of a kind that the person may read. Raises Forbidden, with the missing right to read all.

        A partial list has no version to watch from.
        """
        try:
            return super().list(kind)
        except Forbidden:
            found = self._part(kind)
            if found is None:
                raise
            return ObjectList(items=tuple(found), resource_version="")

    def _part(self, kind: Kind) -> Sequence[Body] | None:
        """The readable part of a kind; None if there is none."""
        if kind == CONFIG_MAP:
            return self._published() or None
        if kind in CLUSTER_SCOPED and kind != NAMESPACE:
            return None
        spaces = self._namespaces()
        if not spaces:
            return None
        return [body for space in spaces for body in self._there(kind, space)]

    def _published(self) -> Sequence[Body]:
        return [*self._one(OVERVIEW_REF), *self._one(UTILISATION_REF)]

    def _namespaces(self) -> Sequence[str]:
        """The namespaces of projects in which the person may list jobs. Found once."""
        with self._finding:
            if self._found is None:
                tried = [self._only] if self._only else list(self._candidates())
                may = self.each(self._may_read, tried)
                self._found = [space for space, allowed in zip(tried, may, strict=True) if allowed]
            return self._found

    def _candidates(self) -> Iterator[str]:
        found = list(filter(None, map(decode_overview, self._published())))  # None for any other object
        if not found and self._usual:
            yield self._usual
        for overview in found:
            for project in overview.projects[:MOST_NAMESPACES]:
                if self._is_wanted(project):
                    yield project.namespace

    def _is_wanted(self, project: ProjectOverview) -> bool:
        return self._project in {None, project.name}

    def _may_read(self, space: str) -> bool:
        path = with_query(collection(JOB, space), {"limit": "1"})
        try:
            self.requests.send(Request(verb="list", kind=JOB, path=path, what=f"list Job in {space}"))
        except (Forbidden, NotFound):
            return False
        return True

    def _there(self, kind: Kind, space: str) -> Iterator[Body]:
        """The objects of a kind in a namespace; for kind Namespace that one. Empty if they may not be read either."""
        if kind == NAMESPACE:
            yield from self._one(ObjectRef(*NAMESPACE, "", space))
            return
        plural = self._plural(kind)
        selector, token = SCOPES[kind].label_selector if kind in SCOPES else "", ""
        read = partial(read_page, kind, keep=self._keep)
        while True:
            query = {"labelSelector": selector, "limit": _LIMIT, "continue": token}
            path = with_query(collection(kind, space, plural), query)
            try:
                page: Page = self.requests.send(
                    Request(verb="list", kind=kind, path=path, what=f"list {kind[1]} in {space}"), read=read
                )
            except (Forbidden, NotFound):
                return
            yield from page.items
            if not page.token:
                return
            token = page.token

    def _one(self, ref: ObjectRef) -> Iterator[Body]:
        kind = (ref.api_version, ref.kind)
        try:
            yield self.requests.send(Request(verb="get", kind=kind, path=item(ref), what=f"get {ref}"))
        except (Forbidden, NotFound):
            return
