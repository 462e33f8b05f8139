"""A dashboard whose cluster a test sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from gpuctl.adapters.dashboard.asking import Asking
from gpuctl.adapters.dashboard.feed import LOOKED_AT_MS, Feed
from gpuctl.adapters.dashboard.guarding import Access
from gpuctl.adapters.dashboard.pages import Pages
from gpuctl.adapters.dashboard.past import Past
from gpuctl.adapters.dashboard.routes import Routes
from gpuctl.adapters.dashboard.server import Dashboard, listening
from gpuctl.model.state import Node, RawObjects
from gpuctl.views.clusters import ClusterView


@dataclass(frozen=True)
class Scene:
    """A cluster as it is shown, its objects as a controller keeps them, and as it is shown with what one publishes."""

    view: ClusterView
    objects: RawObjects
    nodes: tuple[Node, ...]
    published: ClusterView


class Site:
    """A dashboard that is served now. Setting `view` changes what its cluster is."""

    def __init__(
        self,
        view: ClusterView,
        access: Access | None = None,
        past: Past | None = None,
        repository: str = "",
        asking: Asking | None = None,
        *,
        title: str = "test",
        looked_at_ms: int = LOOKED_AT_MS,
    ) -> None:
        self.view = view
        self.fault: Exception | None = None
        self.reads = 0
        self.feed = Feed(self._read, 20, looked_at_ms)
        self.feed.start()
        self.dashboard = Dashboard(
            Routes(self.feed, Pages(title, repository), lambda: self.view.at_ms, past, asking),
            listening("127.0.0.1:0"),
            access or Access(),
        )
        self.url = f"http://127.0.0.1:{self.dashboard.port}"

    def _read(self) -> ClusterView:
        self.reads += 1
        if self.fault is not None:
            raise self.fault
        return self.view

    def get(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> tuple[int, str]:
        """The status and text of an address."""
        try:
            with urlopen(Request(self.url + path, headers=dict(headers or {}), method=method), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()


@contextmanager
def serving(
    view: ClusterView,
    access: Access | None = None,
    past: Past | None = None,
    repository: str = "",
    asking: Asking | None = None,
    *,
    title: str = "test",
) -> Iterator[Site]:
    """Serve a view until the block ends."""
    site = Site(view, access, past, repository, asking, title=title)
    with closing(site.feed), closing(site.dashboard):
        thread = Thread(target=site.dashboard.serve)
        thread.start()
        try:
            yield site
        finally:
            site.dashboard.stop()
            thread.join()
