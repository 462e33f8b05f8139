"""The composition root: builds adapters and hands them to the verbs. Only commands import this, when they run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING

from gpuctl.adapters.background import ThreadBackground
from gpuctl.adapters.clock import PassingClock, SystemClock, VirtualClock
from gpuctl.adapters.console import ProcessConsole
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.files import read_regular, read_tree
from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.adapters.githistory import Removal, removal_of
from gpuctl.adapters.gitmerge import Compared, compare, roll_back
from gpuctl.adapters.gitsignatures import Checked, Signers
from gpuctl.adapters.newfiles import NewFolder
from gpuctl.adapters.prometheus import MetricsServer, PrometheusMeters
from gpuctl.adapters.signals import StopOnSignal
from gpuctl.app.beginning import NewRepository
from gpuctl.app.bench.cluster_ports import Controller, Yard
from gpuctl.app.bench.cluster_tree import CLUSTER as BENCH_CLUSTER
from gpuctl.app.bench.cluster_tree import FOLDER as BENCH_FOLDER
from gpuctl.app.bench.cluster_tree import PREFIX as BENCH_PREFIX
from gpuctl.app.demo import STORY, Demo, Stage
from gpuctl.app.kept import Keep
from gpuctl.app.loop import LoopSettings, run
from gpuctl.app.play import LivePlay, Sandbox, Venue
from gpuctl.app.ports import (
    Clock,
    Cluster,
    Forge,
    Leadership,
    Machines,
    Recorder,
    Reference,
    Sessions,
    SourceUnavailable,
    Workshop,
    WorldFault,
)
from gpuctl.app.reconciler import ALONE, AT_ONCE, UNRECORDED, Outside
from gpuctl.app.report import Entry, Journal, Level
from gpuctl.app.simulation import ReadTree
from gpuctl.app.timekeeping import NO_REFERENCE
from gpuctl.k8s.kinds import DEVICE_CLASS, NODE, RESOURCE_SLICE, SCOPES, within
from gpuctl.model.declared import NodePool
from gpuctl.model.ids import JobId
from gpuctl.model.source import MAX_FILE_BYTES, SourceFile, SourceTree
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant
from gpuctl.simulate.scenario import EPOCH_MS

if TYPE_CHECKING:
    from gpuctl.adapters.checkout import FolderCheckout
    from gpuctl.adapters.forge import ForgeOptions

EXAMPLE = "clusters/tr4858"
IN_MEMORY = ":memory:"


def now_ms() -> Instant:
    """The machine's time."""
    return SystemClock().now_ms()


def sandbox(at_ms: Instant) -> Sandbox:
    """Create an empty cluster in memory whose clock stands at an instant."""
    clock = VirtualClock(at_ms)
    cluster = EmbeddedCluster(clock)
    return Sandbox(cluster=cluster, machines=cluster, world=cluster, time=clock)


def clock() -> Clock:
    """The machine's clock."""
    return SystemClock()


@contextmanager
def reading_embedded(path: str) -> Iterator[Cluster]:
    """Open the embedded cluster of a file as it is now, also while a controller uses it. The file is not written."""
    with closing(EmbeddedCluster.copy_of(path, SystemClock())) as cluster:
        yield cluster


@contextmanager
def looking(kubeconfig: str | None, context: str | None, namespace: str | None) -> Iterator[tuple[Cluster, Sessions]]:
    """Connect to the cluster of a kubeconfig's context, or the one kubectl would use, and to its containers.

    `namespace`: namespaced kinds are read only there, for users who may read no other namespace.
    """
    from gpuctl.adapters.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.terminal import PodSessions  # noqa: PLC0415

    scopes = SCOPES if namespace is None else within(namespace)
    with ExitStack() as stack:
        connection = stack.enter_context(closing(connect(kubeconfig, context)))
        yield stack.enter_context(closing(KubernetesCluster(connection, scopes=scopes))), PodSessions(connection)


def lacking(kubeconfig: str | None, context: str | None) -> tuple[str, str] | None:
    """The code and the message for what the server lacks of what gpuctl uses; None if it serves all."""
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.discovery import discover  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.requests import Requests  # noqa: PLC0415

    with closing(connect(kubeconfig, context)) as connection, closing(Requests(connection)) as requests:
        return discover(requests).told


@contextmanager
def forge(options: ForgeOptions) -> Iterator[Forge]:
    """Talk to the code host that options, or else the environment of the CI job, name.

    The token comes from the environment or a file. Raises ForgeFault: GPU6201, GPU6202.
    """
    from gpuctl.adapters.forge import open_forge  # noqa: PLC0415 - slow to import

    with closing(open_forge(options, os.environ, PassingClock())) as opened:
        yield opened


def forge_number(options: ForgeOptions) -> int:
    """The number of the pull or merge request that the CI job is for. Raises ForgeFault: GPU6202."""
    from gpuctl.adapters.forge import number_of  # noqa: PLC0415 - slow to import

    return number_of(options, os.environ)


def console() -> ProcessConsole:
    """The terminal, or the pipes, of the command."""
    return ProcessConsole()


def scenario_reader(scenario: Path) -> ReadTree:
    """A reader of what a scenario names: cluster folders and files, relative to the scenario's own folder."""

    def read(name: str) -> SourceTree:
        path = Path(os.path.normpath(scenario.parent / name))
        try:
            if path.is_dir():
                return read_tree(str(path))
            content = read_regular(path, MAX_FILE_BYTES)
        except OSError as error:
            raise SourceUnavailable("GPU3904", error.strerror or "not readable") from error
        return SourceTree(cluster_dir=str(path.parent), files={str(path): SourceFile(content=content)})

    return read


def removal(job: JobId | str) -> Removal | None:
    """The commit that removed a job, in the repository of the current folder; None where that is not known."""
    with suppress(SourceUnavailable):
        return removal_of(Path.cwd(), job)
    return None


def checkout(folder: str) -> FolderCheckout:
    """The working tree that a cluster's folder is in, to be edited."""
    from gpuctl.adapters.checkout import FolderCheckout  # noqa: PLC0415 - only for edits

    return FolderCheckout(Path(folder), forge)


def compared_revisions(folder: Path, base: str, head: str | None, *, direct: bool) -> Compared:
    """Read a cluster's folder before and after merging head, or the working tree, into base.

    `direct`: base and head themselves. Raises SourceUnavailable: no repository, no such revision.
    """
    return compare(folder, base, head, read_tree, direct=direct)


def rolled_back(folder: Path, base: str, to: str) -> Compared:
    """Read a cluster's folder at base, and as it would be after a rollback to an earlier commit."""
    return roll_back(folder, base, to)


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Which branch the controller follows, and how. `workdir` None: the user's cache folder.

    `verify`: which commits need a signature, by a key in `allowed_signers` or `openpgp_keys`; None: none does.
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

    @property
    def signers(self) -> Signers | None:
        """Whose signatures count; None where none is needed."""
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

    `write_qps` and `write_burst` bound the controller's writes to an API server; None: as WriteLimits has it.
    """

    embedded: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    write_qps: int | None = None
    write_burst: int | None = None


def reconcile(follow: Follow, target: Target, metrics_address: str | None, journal: Journal) -> int:
    """Run the controller until it is told to stop. Returns the exit code. Raises WorldFault if it can't begin."""
    with StopOnSignal() as stop, ExitStack() as stack:
        workdir = Path(follow.workdir) if follow.workdir else _cache_folder(stack)
        source = stack.enter_context(
            closing(GitSource(follow.url, follow.path, follow.branch, workdir, stop.requested, signers=follow.signers))
        )
        background = AT_ONCE if follow.once else stack.enter_context(closing(ThreadBackground(stop.wake)))
        ports = (
            _embedded_ports(target, stack) if target.embedded else _kubernetes_ports(target, stop.wake, stack, journal)
        )
        if metrics_address:
            stack.enter_context(MetricsServer(ports.meters, metrics_address))
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
        )
        settings = LoopSettings(interval_ms=follow.interval_ms, react_ms=ports.react_ms, once=follow.once)
        return run(settings, outside, journal, stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterPorts:
    """The ports of the cluster that the controller works on. `react_ms`: how often it polls the cluster for changes."""

    cluster: Cluster
    machines: Machines
    leadership: Leadership
    meters: PrometheusMeters
    react_ms: DurationMs
    recorder: Recorder = UNRECORDED
    reference: Reference = NO_REFERENCE


def _embedded_ports(target: Target, stack: ExitStack) -> _ClusterPorts:
    path = None if target.embedded == IN_MEMORY else target.embedded
    cluster = stack.enter_context(closing(EmbeddedCluster(SystemClock(), path)))
    return _ClusterPorts(cluster=cluster, machines=cluster, leadership=ALONE, meters=PrometheusMeters(), react_ms=250)


def _kubernetes_ports(target: Target, wake: Callable[[], None], stack: ExitStack, journal: Journal) -> _ClusterPorts:
    """The ports of a real cluster, which the replica with the Lease writes, and whose watches wake the loop.

    What the server lacks is journaled once, if it can be reached now.
    """
    from gpuctl.adapters.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.discovery import discover  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.lease import LeaseLeadership, new_identity  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.machines import StandingMachines  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.recorder import EventRecorder  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.timings import limited  # noqa: PLC0415

    connection = stack.enter_context(closing(connect(target.kubeconfig, target.context)))

    def leads() -> bool:
        return leadership.held()

    meters = PrometheusMeters(leads)
    me = new_identity()
    leadership = LeaseLeadership(connection, identity=me, on_change=wake, on_request=meters.request)
    stack.enter_context(closing(leadership))
    writes = limited(target.write_qps, target.write_burst)
    cluster = KubernetesCluster(
        connection, permit=leadership.held, on_news=wake, on_request=meters.request, writes=writes, keep=Keep()
    )
    stack.enter_context(closing(cluster))
    recorder = EventRecorder(connection, me, permit=leadership.held, on_request=meters.request)
    stack.enter_context(closing(recorder))
    with suppress(WorldFault):
        lacking = discover(cluster.requests).told
        if lacking is not None:
            facts = dict(zip(("code", "message"), lacking, strict=True))
            journal.tell(now_ms(), Entry(event="server", level=Level.WARNING, fields=facts))
    return _ClusterPorts(
        cluster=cluster,
        machines=StandingMachines(),
        leadership=leadership,
        meters=meters,
        react_ms=1_000,
        recorder=recorder,
        reference=connection.time,
    )


def _cache_folder(stack: ExitStack) -> Path:
    """The folder for clones: the user's cache folder, or without a home, one that is removed after this command."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - raises nothing
    if not base.startswith("/"):
        return Path(stack.enter_context(TemporaryDirectory(prefix="gpuctl-", ignore_cleanup_errors=True)))
    return Path(base, "gpuctl")


@contextmanager
def demo(keep: Path | None, target: Target | None = None) -> Iterator[Demo]:
    """Prepare the story: a new repository (in `keep`, or a folder that is removed afterwards) and a cluster.

    Without a target it is the embedded cluster, in virtual time; with a target, a real cluster without nodes.
    """
    with TemporaryDirectory(prefix="gpuctl-demo-") as scratch, ExitStack() as stack:
        folder = keep or Path(scratch, "repository")
        example = example_cluster()
        stage = Stage(
            example=lambda path: example.joinpath(*path.split("/")).read_bytes(),
            workshop=WorkingCopy.create(folder, "main"),
            source=GitSource(str(folder), EXAMPLE, "main", Path(scratch, "clones")),
            venue=sandbox(EPOCH_MS),
        )
        if target is not None:
            stage = replace(stage, venue=_live_venue(target, stack), begin=LivePlay, every_ms=0)
        yield Demo(resources.files("gpuctl.app").joinpath(STORY).read_bytes(), stage)


def _live_venue(target: Target, stack: ExitStack) -> Venue:
    """A real cluster whose nodes and pods KWOK simulates, in the machine's time."""
    from gpuctl.adapters.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.machines import KwokMachines  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.news import News  # noqa: PLC0415

    connection = stack.enter_context(closing(connect(target.kubeconfig, target.context)))
    news = News()
    cluster = stack.enter_context(closing(KubernetesCluster(connection, on_news=news.ring)))
    return Venue(cluster=cluster, machines=KwokMachines(cluster, blueprint), world=news, time=PassingClock())


@contextmanager
def cluster_bench(target: Target) -> Iterator[Yard]:
    """A real cluster to measure on: with KWOK, and no nodes but those of benchmarks."""
    from gpuctl.adapters.child import ReconcileProcess  # noqa: PLC0415 - only here
    from gpuctl.adapters.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.ground import KubernetesGround  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.machines import KwokMachines  # noqa: PLC0415

    given = (("--kubeconfig", target.kubeconfig), ("--context", target.context))
    where = [word for option, value in given if value is not None for word in (option, value)]

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="gpuctl-bench-")))
        connection = stack.enter_context(closing(connect(target.kubeconfig, target.context)))
        cluster = stack.enter_context(closing(KubernetesCluster(connection)))

        def workshop() -> tuple[str, Workshop]:
            repository = Path(mkdtemp(prefix="repository-", dir=folder))
            return str(repository), WorkingCopy.create(repository)

        def launch(url: str, interval: str) -> Controller:
            own = Path(mkdtemp(prefix="controller-", dir=folder))
            follow = ["--repo", url, "--path", BENCH_FOLDER, "--workdir", str(own), "--interval", interval]
            return ReconcileProcess([*follow, *where], own)

        yield Yard(
            ground=KubernetesGround(cluster, BENCH_CLUSTER, BENCH_PREFIX),
            machines=KwokMachines(cluster, blueprint),
            workshop=workshop,
            launch=launch,
        )


def blueprint(pools: Sequence[NodePool]) -> Sequence[Body]:
    """The device classes, nodes and slices of the declared inventory, as the embedded cluster creates them."""
    made = EmbeddedCluster(VirtualClock(EPOCH_MS))
    made.provide(pools)
    return [body for kind in (DEVICE_CLASS, NODE, RESOURCE_SLICE) for body in made.list(kind).items]


def example_policies(names: Sequence[str]) -> dict[str, bytes]:
    """The content of files of the project's `policies/`: beside the package in a wheel, or in a checkout."""
    folder = resources.files("gpuctl").joinpath("examples", "policies")
    folder = folder if folder.is_dir() else Path(__file__).resolve().parent.parent / "policies"
    return {name: (folder / name).read_bytes() for name in names}


def new_repository(folder: Path) -> NewRepository:
    """The folder that is to be a repository."""
    return NewFolder(folder, WorkingCopy.create)


def example_cluster() -> Traversable:
    """The example cluster: beside the package in a wheel, in `clusters/` of a checkout."""
    packaged = resources.files("gpuctl").joinpath("examples", "tr4858")
    return packaged if packaged.is_dir() else Path(__file__).resolve().parent.parent / EXAMPLE
