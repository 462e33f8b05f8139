"""The stages for the sandbox, the demo and the benchmark on a cluster, and the examples they use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING

from gpuctl.adapters.clock import PassingClock, VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import GitSource, WorkingCopy
from gpuctl.app.bench.cluster_ports import Controller, Yard
from gpuctl.app.bench.cluster_tree import CLUSTER as BENCH_CLUSTER
from gpuctl.app.bench.cluster_tree import FOLDER as BENCH_FOLDER
from gpuctl.app.bench.cluster_tree import PREFIX as BENCH_PREFIX
from gpuctl.app.demo import STORY, Demo, Stage
from gpuctl.app.play import LivePlay, Sandbox, Venue
from gpuctl.app.ports import Workshop
from gpuctl.compile.declarations import EXAMPLES
from gpuctl.model.units import Instant
from gpuctl.simulate.scenario import EPOCH_MS
from gpuctl.wiring.access import blueprint

if TYPE_CHECKING:
    from gpuctl.wiring.controller import Target

EXAMPLE = "clusters/tr4858"


def sandbox(at_ms: Instant) -> Sandbox:
    """Create an empty cluster in memory whose clock stands at an instant."""
    clock = VirtualClock(at_ms)
    cluster = EmbeddedCluster(clock)
    return Sandbox(cluster=cluster, machines=cluster, world=cluster, time=clock)


@contextmanager
def demo(keep: Path | None, target: Target | None = None) -> Iterator[Demo]:
    """Prepare the story: a new repository (in `keep`, or in a folder that is removed afterwards) and a cluster.

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
    """A real cluster whose nodes and pods KWOK simulates, in real time."""
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
    """A real cluster for measurements: with KWOK, and without nodes except those of benchmarks."""
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


def example_policies(names: Sequence[str]) -> dict[str, bytes]:
    """Policies of the project's `policies/` and their examples, by path in that folder: beside the package in a wheel,
    or in a checkout."""
    folder = resources.files("gpuctl").joinpath("examples", "policies")
    folder = folder if folder.is_dir() else Path(__file__).resolve().parents[2] / "policies"
    paths = [f"{name}.yaml" for name in names]
    paths += [
        f"{EXAMPLES}/{name}/{example.name}" for name in names for example in folder.joinpath(EXAMPLES, name).iterdir()
    ]
    return {path: folder.joinpath(*path.split("/")).read_bytes() for path in paths}


def example_cluster() -> Traversable:
    """The example cluster: beside the package in a wheel, in `clusters/` of a checkout."""
    packaged = resources.files("gpuctl").joinpath("examples", "tr4858")
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / EXAMPLE
