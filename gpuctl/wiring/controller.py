"""The controller, with the adapters of an embedded or a real cluster at its ports."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gpuctl.adapters.background import ThreadBackground
from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.files import read_regular, secret_in
from gpuctl.adapters.git import GitSource, code_host_page
from gpuctl.adapters.gitsignatures import Checked, Signers
from gpuctl.adapters.history.keeper import HistoryFile
from gpuctl.adapters.history.serving import HistoryServer
from gpuctl.adapters.metrics_server import MetricsServer
from gpuctl.adapters.prometheus import PrometheusMeters
from gpuctl.adapters.pushes import PushReceiver
from gpuctl.adapters.signals import StopOnSignal
from gpuctl.app.history import UNKEPT
from gpuctl.app.incidents import NO_INCIDENTS, Incidents
from gpuctl.app.kept import Keep
from gpuctl.app.loop import LoopSettings, run
from gpuctl.app.notices import UNNOTIFIED, Notifier
from gpuctl.app.outside import ALONE, AT_ONCE, UNREAD, UNRECORDED, Outside
from gpuctl.app.ports import (
    Cluster,
    ClusterUnavailable,
    Leadership,
    Machines,
    Recorder,
    Reference,
    WorldFault,
)
from gpuctl.app.report import Entry, Journal, Level
from gpuctl.app.status import REF as STATUS
from gpuctl.app.status import UNPUBLISHED, Direct, Publisher
from gpuctl.app.timekeeping import NO_REFERENCE
from gpuctl.app.utilisation import UtilisationPorts
from gpuctl.app.viewing import UNVIEWED, Viewer
from gpuctl.diag.wording import message
from gpuctl.k8s.names import SYSTEM_NAMESPACE
from gpuctl.k8s.overview import OVERVIEW_REF
from gpuctl.k8s.utilisation import UTILISATION_REF
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs
from gpuctl.targets import Engine

if TYPE_CHECKING:
    from gpuctl.adapters.kubernetes.connection import Connection
    from gpuctl.adapters.kubernetes.requests import Requests

IN_MEMORY = ":memory:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """The branch that the controller follows, and how. `workdir` None: the user's cache folder.

    `verify`: which commits need a signature, by a key in `allowed_signers` or `openpgp_keys`; None: none does.
    `most_jobs`: how many declared jobs it has memory for; None: not known.
    """

    url: str
    path: str
    branch: str | None
    workdir: str | None
    once: bool
    interval_ms: DurationMs
    verify: str | None = None
    allowed_signers: str | None = None
    openpgp_keys: str | None = None
    most_jobs: int | None = None

    @property
    def signers(self) -> Signers | None:
        """The keys whose signatures count; None if no signature is needed."""
        if self.verify is None:
            return None
        return Signers(
            checked=Checked(self.verify),
            read=read_regular,
            allowed_signers=None if self.allowed_signers is None else Path(self.allowed_signers),
            openpgp_keys=None if self.openpgp_keys is None else Path(self.openpgp_keys),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster that is reconciled: an embedded one (a file, or IN_MEMORY), else a kubeconfig's.

    `write_qps` and `write_burst` bound the controller's writes to an API server; None: the defaults of WriteLimits.
    `engine`: the other engine that decides there which jobs run; None: gpuctl's own.
    """

    embedded: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    write_qps: int | None = None
    write_burst: int | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the controller serves besides: metrics at an address, the history (a file) at another, pages, messages.

    - `dashboard_address`: where pages are served, to a proxy that sends the secret in the file `dashboard_secret` and
      names the user in `dashboard_user_header`; without a secret, only to this machine.
    - `dashboard_pod_ip`: where Service gpuctl-dashboard leads while this replica leads.
    - `notify`: the folder whose files name the receivers of notifications.
    - `push_address`: where webhooks for pushes are received; their secret is in the file `push_secret`.

    None: not served.
    """

    metrics_address: str | None = None
    history: str | None = None
    history_address: str | None = None
    notify: str | None = None
    push_address: str | None = None
    push_secret: str | None = None
    dashboard_address: str | None = None
    dashboard_secret: str | None = None
    dashboard_user_header: str = "X-Forwarded-User"
    dashboard_pod_ip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Where the use of GPUs is read: a Prometheus at `prometheus`, or the `exporters` themselves; else nowhere.

    `matching`: label matchers of the series in Prometheus. `token`: a file with the token for Prometheus.
    """

    prometheus: str | None = None
    exporters: tuple[str, ...] = ()
    matching: str = ""
    token: str | None = None


NOT_MEASURED = Measured()


def reconcile(
    follow: Follow, target: Target, served: Served, journal: Journal, measured: Measured = NOT_MEASURED
) -> int:
    """Run the controller until a signal stops it. Returns the exit code. Raises WorldFault if it can't begin."""
    with StopOnSignal() as stop, ExitStack() as stack:
        workdir = Path(follow.workdir) if follow.workdir else _cache_folder(stack)
        source = stack.enter_context(
            closing(GitSource(follow.url, follow.path, follow.branch, workdir, stop.requested, signers=follow.signers))
        )
        background = AT_ONCE if follow.once else stack.enter_context(closing(ThreadBackground(stop.wake)))
        ports = (
            _embedded_ports(target, stack) if target.embedded else _kubernetes_ports(target, stop.wake, stack, journal)
        )
        if served.metrics_address:
            stack.enter_context(MetricsServer(ports.meters, served.metrics_address))
        history = UNKEPT if served.history is None else stack.enter_context(closing(HistoryFile(Path(served.history))))
        if served.history is not None and served.history_address is not None:
            stack.enter_context(closing(HistoryServer(Path(served.history), served.history_address)))
        if served.push_address and served.push_secret and ports.ask_for_git:
            read = partial(secret_in, Path(served.push_secret))
            stack.enter_context(closing(PushReceiver(served.push_address, read, ports.ask_for_git)))
        outside = Outside(
            source=source,
            cluster=ports.cluster,
            machines=ports.machines,
            clock=SystemClock(),
            leadership=ports.leadership,
            meters=ports.meters,
            recorder=ports.recorder,
            background=background,
            reference=ports.reference,
            publisher=ports.publisher,
            incidents=ports.incidents,
            notifier=_notifier(served.notify, follow.url, ports.meters, journal, stack),
            identity=ports.identity,
            publish=ports.publish,
            history=history,
            viewer=_viewer(served, source, ports, journal, stack),
            engine=None if target.engine is None else Engine(target.engine),
            most_jobs=follow.most_jobs,
            utilisation=UNREAD if follow.once else _utilisation(measured, ports.for_utilisation, stack),
        )
        settings = LoopSettings(interval_ms=follow.interval_ms, react_ms=ports.react_ms, once=follow.once)
        return run(settings, outside, journal, stop)


_NAMELESS = "controller"
"""The title of a cluster without a name."""


def _unpublished() -> Sequence[Body]:
    """Nothing: the controller's own copy of the cluster already has what is published."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterPorts:
    """The ports of the cluster that the controller works on. `react_ms`: how often it polls the cluster for changes.

    `title`: people's name for the cluster. `published`: reads the objects that the copy of the cluster leaves out.
    `lead_to`: points the dashboard's Service to an address and port while this replica leads.
    """

    title: str
    cluster: Cluster
    machines: Machines
    leadership: Leadership
    meters: PrometheusMeters
    react_ms: DurationMs
    recorder: Recorder = UNRECORDED
    reference: Reference = NO_REFERENCE
    publisher: Publisher = UNPUBLISHED
    incidents: Incidents = NO_INCIDENTS
    identity: str = ""
    publish: Callable[[Body], object] | None = None
    published: Callable[[], Sequence[Body]] = _unpublished
    ask_for_git: Callable[[], None] | None = None
    for_utilisation: Callable[[], Publisher] = lambda: UNPUBLISHED
    lead_to: Callable[[str, int], AbstractContextManager[object]] = lambda _address, _port: nullcontext()


def _utilisation(measured: Measured, publisher: Callable[[], Publisher], stack: ExitStack) -> UtilisationPorts:
    """The source of the use of GPUs, and where the use is published."""
    if measured.prometheus is None and not measured.exporters:
        return UNREAD
    from gpuctl.adapters.utilisation.exporters import Exporters  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.utilisation.prometheus_api import Prometheus  # noqa: PLC0415

    token = str if measured.token is None else partial(secret_in, Path(measured.token))
    source: Prometheus | Exporters = (
        Exporters(measured.exporters)
        if measured.prometheus is None
        else Prometheus(measured.prometheus, measured.matching, token)
    )
    return UtilisationPorts(source=stack.enter_context(closing(source)), publisher=publisher())


def _viewer(served: Served, source: GitSource, ports: _ClusterPorts, journal: Journal, stack: ExitStack) -> Viewer:
    """The process that shows the cluster in a browser; its end is logged."""
    if served.dashboard_address is None:
        return UNVIEWED
    from gpuctl.adapters.dashboard.process import DashboardProcess, Site  # noqa: PLC0415 - slow to import

    def ended(why: str) -> None:
        facts = {"code": "GPU7098", "message": message("GPU7098", {"why": why})}
        journal.tell(SystemClock().now_ms(), Entry(event="dashboard", level=Level.WARNING, fields=facts))

    site = Site(
        title=ports.title,
        address=served.dashboard_address,
        user_header=None if served.dashboard_secret is None else served.dashboard_user_header,
        secret_file=served.dashboard_secret,
        history=served.history,
        repository=code_host_page(source.url),
        clone=str(source.clone),
        path=source.path,
    )
    process = stack.enter_context(closing(DashboardProcess(site, ended, ports.published)))
    if served.dashboard_pod_ip is not None:
        stack.enter_context(ports.lead_to(served.dashboard_pod_ip, process.port))
    return process


def _notifier(
    folder: str | None, remote: str, meters: PrometheusMeters, journal: Journal, stack: ExitStack
) -> Notifier:
    """Sends notifications to the receivers of a folder; a failed one is logged."""
    if folder is None:
        return UNNOTIFIED
    from gpuctl.adapters.notify import Folder, Sender, receivers_of  # noqa: PLC0415 - slow to import

    def ended(receiver: str, result: str, why: str) -> None:
        meters.notified(receiver, result)
        if result != "sent":
            facts = {"code": "GPU7089", "message": message("GPU7089", {"receiver": receiver, "why": why})}
            journal.tell(SystemClock().now_ms(), Entry(event="unnotified", level=Level.WARNING, fields=facts))

    return stack.enter_context(closing(Sender(receivers_of(Folder(Path(folder)), remote), ended)))


def _embedded_ports(target: Target, stack: ExitStack) -> _ClusterPorts:
    path = None if target.embedded == IN_MEMORY else target.embedded
    cluster = stack.enter_context(closing(EmbeddedCluster(SystemClock(), path)))
    return _ClusterPorts(
        title=path or _NAMELESS,
        cluster=cluster,
        machines=cluster,
        leadership=ALONE,
        meters=PrometheusMeters(),
        react_ms=250,
        publisher=Direct(cluster),
        publish=cluster.apply,
        for_utilisation=partial(Direct, cluster, UTILISATION_REF),
    )


def _kubernetes_ports(target: Target, wake: Callable[[], None], stack: ExitStack, journal: Journal) -> _ClusterPorts:
    """The ports of a real cluster: the replica with the Lease writes to it, and its watches wake the loop.

    Kinds that the server lacks are logged once, if it can be reached now.
    """
    from gpuctl.adapters.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.control import ask_for_git  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.incidents import EventReader  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.leader_address import LeaderAddress  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.lease import LeaseLeadership, new_identity  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.machines import StandingMachines  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.publisher import ObjectPublisher, read_all  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.recorder import EventRecorder  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.timings import limited  # noqa: PLC0415

    connection = stack.enter_context(closing(connect(target.kubeconfig, target.context)))
    _make_home(connection, journal)

    def leads() -> bool:
        return leadership.held()

    meters, me = PrometheusMeters(leads), new_identity()
    writes = limited(target.write_qps, target.write_burst)
    cluster = KubernetesCluster(
        connection, permit=leads, on_news=wake, on_request=meters.request, writes=writes, keep=Keep()
    )
    leadership = LeaseLeadership(
        connection, identity=me, on_change=wake, on_restore=cluster.read_anew, on_request=meters.request
    )
    stack.enter_context(closing(leadership))  # closed after the last write
    stack.enter_context(closing(cluster))
    recorder = EventRecorder(connection, me, permit=leadership.held, on_request=meters.request)
    stack.enter_context(closing(recorder))

    def publisher_of(ref: ObjectRef) -> ObjectPublisher:
        publisher = ObjectPublisher(connection, ref, permit=leadership.held, on_request=meters.request)
        return stack.enter_context(closing(publisher))

    incidents = EventReader(connection, permit=leadership.held, on_news=wake, on_request=meters.request)
    stack.enter_context(closing(incidents))
    _tell_what_lacks(cluster.requests, journal)
    return _ClusterPorts(
        title=target.context or _NAMELESS,
        cluster=cluster,
        machines=StandingMachines(),
        leadership=leadership,
        meters=meters,
        react_ms=1_000,
        recorder=recorder,
        reference=connection.time,
        publisher=publisher_of(STATUS),
        for_utilisation=partial(publisher_of, UTILISATION_REF),
        incidents=incidents,
        identity=me,
        publish=cluster.apply,
        published=partial(read_all, cluster.requests, (OVERVIEW_REF, UTILISATION_REF)),
        lead_to=lambda address, port: closing(LeaderAddress(cluster.requests, leadership.held, address, port)),
        ask_for_git=lambda: ask_for_git(cluster.requests, SystemClock().now_ms()),
    )


def _tell_what_lacks(requests: Requests, journal: Journal) -> None:
    """Log once which kinds the server lacks, if it can be reached now."""
    from gpuctl.adapters.kubernetes.discovery import discover  # noqa: PLC0415 - slow to import

    with suppress(WorldFault):
        lacking = discover(requests).told
        if lacking is not None:
            facts = dict(zip(("code", "message"), lacking, strict=True))
            journal.tell(SystemClock().now_ms(), Entry(event="server", level=Level.WARNING, fields=facts))


def _make_home(connection: Connection, journal: Journal) -> None:
    """Create gpuctl's own namespace if there is none; a server that can't be reached yet is asked later, by the Lease.

    Raises WorldFault GPU7085.
    """
    from gpuctl.adapters.kubernetes.home import make_home  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.requests import Requests  # noqa: PLC0415

    with suppress(ClusterUnavailable), closing(Requests(connection)) as requests:
        if make_home(requests):
            facts = {"message": f"there was no namespace {SYSTEM_NAMESPACE}: it was made"}
            journal.tell(SystemClock().now_ms(), Entry(event="made", fields=facts))


def _cache_folder(stack: ExitStack) -> Path:
    """The folder for clones: the user's cache folder or, without a home, one that is removed after this command."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - raises nothing
    if not base.startswith("/"):
        return Path(stack.enter_context(TemporaryDirectory(prefix="gpuctl-", ignore_cleanup_errors=True)))
    return Path(base, "gpuctl")
