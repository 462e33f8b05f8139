"""Adapters for commands that read and edit: clusters, folders, repositories, code hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuctl.adapters.clock import PassingClock, SystemClock, VirtualClock
from gpuctl.adapters.console import ProcessConsole
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.files import is_inside, read_regular, read_tree
from gpuctl.adapters.links import holder
from gpuctl.app.forge_ports import Forge
from gpuctl.app.ports import Clock, Cluster, Reference, SourceUnavailable, VirtualTime
from gpuctl.app.session_ports import Sessions
from gpuctl.k8s.kinds import CONFIG_MAP, DEVICE_CLASS, LEASE, NODE, RESOURCE_SLICE, SCOPES, Kind, Scope
from gpuctl.k8s.names import LEASE_NAME, STATUS_NAME, SYSTEM_NAMESPACE
from gpuctl.model.declared import NodePool
from gpuctl.model.ids import NO_REVISION, JobId
from gpuctl.model.source import MAX_FILE_BYTES, SourceFile, SourceTree
from gpuctl.model.state import Body
from gpuctl.simulate.scenario import EPOCH_MS

if TYPE_CHECKING:
    from gpuctl.adapters.checkout import FolderCheckout
    from gpuctl.adapters.forge import ForgeOptions
    from gpuctl.adapters.githistory import Removal
    from gpuctl.adapters.gitmerge import Compared
    from gpuctl.adapters.screen import Screen
    from gpuctl.adapters.verdicts import Entry
    from gpuctl.app.beginning import NewRepository
    from gpuctl.app.control import ControlObject
    from gpuctl.app.forwarding import Forwarder
    from gpuctl.app.simulation import ReadTree
    from gpuctl.compile import CompileCache
    from gpuctl.install.host import Host

LEAST_CACHED_FILES = 1000
"""The fewest files that are worth caching: fewer compile within 0.3 s."""


def clock() -> Clock:
    """The machine's clock."""
    return SystemClock()


def terminal_screen() -> Screen:
    """The whole terminal, for drawing."""
    from gpuctl.adapters.screen import Screen  # noqa: PLC0415 - not every Python has curses

    return Screen()


def passing_clock() -> VirtualTime:
    """The machine's clock, for waiting."""
    return PassingClock()


@contextmanager
def reading_embedded(path: str) -> Iterator[Cluster]:
    """Open the embedded cluster of a file as it is now, even while a controller uses it. The file is not written."""
    with closing(EmbeddedCluster.copy_of(path, SystemClock())) as cluster:
        yield cluster


@contextmanager
def reading(kubeconfig: str | None, context: str | None, scopes: Mapping[Kind, Scope] = SCOPES) -> Iterator[Cluster]:
    """Connect to the cluster of a kubeconfig's context, or of kubectl's current one, to read everything in the
    scopes."""
    from gpuctl.adapters.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415
    from gpuctl.app.kept import KeepSmall  # noqa: PLC0415 - only for clusters

    with ExitStack() as stack:
        connection = stack.enter_context(closing(connect(kubeconfig, context)))
        yield stack.enter_context(closing(KubernetesCluster(connection, scopes=scopes, keep=KeepSmall())))


@contextmanager
def reading_once(kubeconfig: str | None, context: str | None) -> Iterator[Cluster]:
    """Connect to the same cluster, to read once everything that a cycle reads."""
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.reader import OnceCluster  # noqa: PLC0415

    with ExitStack() as stack:
        connection = stack.enter_context(closing(connect(kubeconfig, context)))
        yield stack.enter_context(closing(OnceCluster(connection)))


@contextmanager
def looking(
    kubeconfig: str | None, context: str | None, namespace: str | None, project: str | None = None
) -> Iterator[tuple[Cluster, Sessions]]:
    """Connect to the same cluster and to its containers, for a person who may read all of it or a part.

    `namespace`: namespaced kinds are read only there. `project`: read in its namespace if not everything may be read.
    """
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.reader import PartCluster  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.terminal import PodSessions  # noqa: PLC0415

    with ExitStack() as stack:
        connection = stack.enter_context(closing(connect(kubeconfig, context)))
        yield stack.enter_context(closing(PartCluster(connection, namespace, project))), PodSessions(connection)


@contextmanager
def reading_status(kubeconfig: str | None, context: str | None) -> Iterator[tuple[Cluster, Reference]]:
    """Connect to a cluster to read only the published status and the Lease, since few people may read more there. Also
    gives the cluster's clock, as far as an answer has told the time."""
    from gpuctl.adapters.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415

    scopes = {
        kind: Scope(namespace=SYSTEM_NAMESPACE, field_selector=f"metadata.name={name}")
        for kind, name in ((CONFIG_MAP, STATUS_NAME), (LEASE, LEASE_NAME))
    }
    with ExitStack() as stack:
        connection = stack.enter_context(closing(connect(kubeconfig, context)))
        yield stack.enter_context(closing(KubernetesCluster(connection, scopes=scopes))), connection.time


def sessions_of(cluster: Cluster) -> Sessions | None:
    """Sessions with the containers of an open cluster; None if it has no containers."""
    from gpuctl.adapters.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.terminal import PodSessions  # noqa: PLC0415

    return PodSessions(cluster.requests.connection) if isinstance(cluster, KubernetesCluster) else None


def forwarder(sessions: Sessions) -> Forwarder:
    """Forwards ports of containers to this machine. TypeError for sessions without an API server."""
    from gpuctl.adapters.kubernetes.portforward import PortForwarder  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.terminal import PodSessions  # noqa: PLC0415

    if not isinstance(sessions, PodSessions):
        raise TypeError("sessions of an API server alone lead ports")
    return PortForwarder(sessions)


@contextmanager
def control(kubeconfig: str | None, context: str | None) -> Iterator[ControlObject]:
    """The object by which people control a running gpuctl, with the rights of the command's user."""
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.control import KubernetesControl  # noqa: PLC0415

    with closing(connect(kubeconfig, context)) as connection, closing(KubernetesControl(connection)) as found:
        yield found


def host(kubeconfig: str | None, context: str | None) -> Host:
    """The facts of a cluster that an installation there depends on."""
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.host import host as read  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.requests import Requests  # noqa: PLC0415

    with closing(connect(kubeconfig, context)) as connection, closing(Requests(connection)) as requests:
        return read(requests)


def lacking(kubeconfig: str | None, context: str | None) -> tuple[str, str] | None:
    """The code and message for kinds that gpuctl uses and the server lacks; None if it has all."""
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.discovery import discover  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.requests import Requests  # noqa: PLC0415

    with closing(connect(kubeconfig, context)) as connection, closing(Requests(connection)) as requests:
        return discover(requests).told


@contextmanager
def forge(options: ForgeOptions) -> Iterator[Forge]:
    """Talk to the code host that options name, or else the environment of the CI job.

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
    """The terminal or the pipes of the command."""
    return ProcessConsole()


def scenario_reader(scenario: Path) -> ReadTree:
    """Reads the folders and files that a scenario names, relative to the scenario's own folder.

    Security: a scenario in a Git working tree can name nothing outside of it. A mistake is shown with its line, and
    scenarios come in pull requests and bug reports.
    """
    top = holder(scenario.parent)

    def read(name: str) -> SourceTree:
        path = Path(os.path.normpath(scenario.parent / name))
        try:
            if top is not None and not is_inside(Path(os.path.realpath(path)), top):
                raise SourceUnavailable("GPU3904", "it is not in the scenario's repository")
            if path.is_dir():
                return read_tree(str(path))
            content = read_regular(path, MAX_FILE_BYTES)
        except OSError as error:
            raise SourceUnavailable("GPU3904", error.strerror or "not readable") from error
        return SourceTree(cluster_dir=str(path.parent), files={str(path): SourceFile(content=content)})

    return read


def removal(job: JobId | str) -> Removal | None:
    """The commit that removed a job, in the repository of the current folder; None if it is not known."""
    from gpuctl.adapters.githistory import removal_of  # noqa: PLC0415 - slow to import

    with suppress(SourceUnavailable):
        return removal_of(Path.cwd(), job)
    return None


def checkout(folder: str) -> FolderCheckout:
    """The working tree that contains a cluster's folder, for edits."""
    from gpuctl.adapters.checkout import FolderCheckout  # noqa: PLC0415 - only for edits

    return FolderCheckout(Path(folder), forge)


def compared_revisions(folder: Path, base: str, head: str | None, *, direct: bool) -> Compared:
    """Read a cluster's folder before and after merging head, or the working tree, into base.

    `direct`: read base and head themselves. Raises SourceUnavailable: no repository, no such revision.
    """
    from gpuctl.adapters.gitmerge import compare  # noqa: PLC0415 - slow to import

    return compare(folder, base, head, read_tree, direct=direct)


@contextmanager
def compile_cache(folder: Path, files: int) -> Iterator[CompileCache]:
    """The compile cache of a cluster's folder of so many files, with what earlier processes compiled.

    It is stored if much was new, but not the first time: for a working tree that is used once, as CI's are, that costs
    more than it saves. The folder is only the name of an entry: a value is used only for inputs equal to its own.
    """
    from gpuctl.adapters.verdicts import compiled_folder  # noqa: PLC0415 - only for plans
    from gpuctl.compile import CompileCache  # noqa: PLC0415 - slow to import
    from gpuctl.compile.stored import restored, stored  # noqa: PLC0415 - as above

    store = compiled_folder(os.environ) if files >= LEAST_CACHED_FILES else None
    key = os.fsencode(folder.resolve())
    body = None if store is None else store.get(key)
    cache = (restored(body) if body else None) or CompileCache()
    yield cache
    if store is not None and cache.reading.files.made > files // 8:
        store.put(key, b"" if body is None else stored(cache))


def rest_entry(base: SourceTree | None) -> Entry | None:
    """The cache entry for the declared nodes at rest with the jobs of base. Its key: every byte of base's files, at any
    commit."""
    from gpuctl.adapters.verdicts import Entry, rest_folder  # noqa: PLC0415 - only for plans
    from gpuctl.app.validation import key_of  # noqa: PLC0415 - as above

    if base is None or len(base.files) < LEAST_CACHED_FILES:
        return None
    store = rest_folder(os.environ)
    files = {path: replace(file, revision=NO_REVISION) for path, file in base.files.items()}
    return None if store is None else Entry(store, key_of(replace(base, revision=NO_REVISION, files=files)))


def rolled_back(folder: Path, base: str, to: str) -> Compared:
    """Read a cluster's folder at base, and as it would be after a rollback to an earlier commit."""
    from gpuctl.adapters.gitmerge import roll_back  # noqa: PLC0415 - slow to import

    return roll_back(folder, base, to)


def new_repository(folder: Path) -> NewRepository:
    """The folder that becomes a repository."""
    from gpuctl.adapters.git import WorkingCopy  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.newfiles import NewFolder  # noqa: PLC0415

    return NewFolder(folder, WorkingCopy.create)


def new_files(folder: str) -> NewRepository:
    """A cluster's folder, for creating files in it."""
    from gpuctl.adapters.newfiles import NewFolder  # noqa: PLC0415 - only for new files

    return NewFolder(Path(folder), lambda _: None)


def blueprint(pools: Sequence[NodePool]) -> Sequence[Body]:
    """The device classes, nodes and slices of the declared inventory, as the embedded cluster creates them."""
    made = EmbeddedCluster(VirtualClock(EPOCH_MS))
    made.provide(pools)
    return [body for kind in (DEVICE_CLASS, NODE, RESOURCE_SLICE) for body in made.list(kind).items]
