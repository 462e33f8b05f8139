"""The dashboard, with a reader of an embedded or a real cluster for its feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING

from gpuctl.adapters.clock import SystemClock
from gpuctl.app.effects import objects_of, read_objects
from gpuctl.app.inspect import Live, Mirror, live, live_of, measured
from gpuctl.model.state import Body, RawObjects
from gpuctl.model.units import DurationMs
from gpuctl.views.clusters import ClusterView, cluster_view, with_use
from gpuctl.wiring.access import reading, reading_embedded

if TYPE_CHECKING:
    from gpuctl.adapters.dashboard.server import Dashboard

_EVERY_MS: DurationMs = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The cluster that the dashboard shows: an embedded one in a file, saved objects, else that of a kubeconfig.

    `history`: the file in which a controller keeps its past. `folder`: the folder of the cluster's declarations in a
    Git working tree.
    """

    embedded: str | None = None
    objects: tuple[Body, ...] | None = None
    kubeconfig: str | None = None
    context: str | None = None
    history: Path | None = None
    folder: Path | None = None

    @property
    def title(self) -> str:
        """The cluster's name in the heading."""
        if self.objects is not None:
            return "saved state"
        return self.embedded or self.context or "current context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Who may read the pages. `hosts`: further host names for requests; the rest as in `Access`."""

    hosts: tuple[str, ...] = ()
    user_header: str | None = None
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    secret_file: str | None = None


@contextmanager
def dashboard(shown: Shown, address: str, allowed: Allowed) -> Iterator[Dashboard]:
    """Read the cluster once, and prepare the server.

    Raises WorldFault: the cluster can't be read, or the address can't be listened on.
    """
    from gpuctl.adapters.dashboard.asking import Asking, InFolder  # noqa: PLC0415
    from gpuctl.adapters.dashboard.feed import Feed  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.dashboard.guarding import LOOPBACK, Access  # noqa: PLC0415
    from gpuctl.adapters.dashboard.pages import Pages  # noqa: PLC0415
    from gpuctl.adapters.dashboard.past import Past  # noqa: PLC0415
    from gpuctl.adapters.dashboard.routes import Routes  # noqa: PLC0415
    from gpuctl.adapters.dashboard.server import Dashboard, listening  # noqa: PLC0415

    clock = SystemClock()
    with ExitStack() as stack:
        read = _reader(shown, stack)

        def view() -> ClusterView:
            now_ms = clock.now_ms()
            found = measured(read(), now_ms)
            unread = [str(fault) for fault in found.unread]
            return with_use(cluster_view(found.state, found.jobs, now_ms, unread, found.overview), found.uses)

        feed = stack.enter_context(closing(Feed(view, _EVERY_MS)))
        feed.start()
        access = Access(
            hosts=(*LOOPBACK, *allowed.hosts),
            user_header=allowed.user_header,
            proxies=allowed.proxies,
            secret_file=None if allowed.secret_file is None else Path(allowed.secret_file),
        )
        past = None if shown.history is None else Past(shown.history, clock)
        asking = None if shown.folder is None else Asking(InFolder(shown.folder), _objects(shown), clock)
        routes = Routes(feed, Pages(shown.title), clock.now_ms, past, asking)
        yield stack.enter_context(closing(Dashboard(routes, listening(address), access)))


def _objects(shown: Shown) -> Callable[[], RawObjects]:
    """Reads the objects that a plan needs from the cluster, at each call."""
    objects, embedded = shown.objects, shown.embedded
    if objects is not None:
        saved = objects_of(objects)
        return lambda: saved

    def read() -> RawObjects:
        if embedded is not None:
            with reading_embedded(embedded) as cluster:
                return read_objects(cluster)
        with reading(shown.kubeconfig, shown.context) as cluster:
            return read_objects(cluster)

    return read


def _reader(shown: Shown, stack: ExitStack) -> Callable[[], Live]:
    objects, embedded = shown.objects, shown.embedded
    if objects is not None:
        saved = live_of(objects)
        return lambda: saved
    if embedded is not None:

        def read() -> Live:
            with reading_embedded(embedded) as cluster:
                return live(cluster)

        return read
    cluster = stack.enter_context(reading(shown.kubeconfig, shown.context))
    return Mirror(cluster).live
