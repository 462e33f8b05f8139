"""The declarations of `gpuctl bench cluster`: a cluster of equal nodes, projects with quotas, and jobs of fixed length.

A job's variable RUN_FOR says how long it runs: a stage of KWOK ends its pod then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

CLUSTER = "bench"
FOLDER = f"clusters/{CLUSTER}"
PREFIX = "bench-"
GPUS_PER_NODE = 8
HOLDER = "holder"
"""The project of the jobs that hold GPUs during the whole measurement."""
LASTING = "24h"
BRIEF, BRIEF_MS = "1s", 1000
TURN = "10s"
"""How long the jobs run that keep some GPUs full: long enough for a small control plane to start them all in time."""

_CLUSTER = """\
apiVersion: gpuctl.dev/v1
kind: Cluster
metadata:
  name: {name}
spec:
  nodePools:
  - name: bench
    nodes: [{nodes}]
    gpusPerNode: {gpus}
    resourcesPerNode: {{cpu: 1000, memory: 8Ti}}
  namespacePrefix: {prefix}
"""

_PROJECT = """\
apiVersion: gpuctl.dev/v1
kind: Project
metadata:
  name: {name}
spec:
  quota: {quota}
"""

_JOB = """\
apiVersion: gpuctl.dev/v1
kind: Job
metadata:
  name: {name}
  project: {project}
spec:
  type: training
  image: registry.example.com/bench
  gpus: {gpus}
  resources: {{memory: {memory}Mi}}
  env: {{RUN_FOR: {run_for}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The sizes of the workloads. `owned`: jobs of the project that wants its quota back; `fitting`: jobs that start
    among jobs that can't; `refills`: jobs that follow one another on the GPUs that are left.
    """

    nodes: int
    projects: int
    jobs: int
    owned: int
    pending: int
    fitting: int
    refills: int

    @property
    def gpus(self) -> int:
        """The GPUs of the whole cluster."""
        return GPUS_PER_NODE * self.nodes

    @property
    def turned_nodes(self) -> int:
        """How many nodes the jobs of the turnover share, one after another."""
        return max(1, self.nodes // 5)


LARGE = Scale(nodes=1000, projects=20, jobs=10_000, owned=100, pending=5000, fitting=5, refills=300)
FULL = Scale(nodes=125, projects=20, jobs=2000, owned=100, pending=5000, fitting=5, refills=300)
SMALL = Scale(nodes=2, projects=2, jobs=20, owned=4, pending=20, fitting=2, refills=150)

REFILLED_GPUS = 5
"""The GPUs that the holder leaves free for jobs that follow one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A job: whole GPUs, memory, and how long it runs."""

    project: str
    name: str
    gpus: int = 1
    memory_mib: int = 64
    run_for: str = BRIEF


def node_names(scale: Scale) -> Sequence[str]:
    """The names of the nodes, the same for all scales."""
    return [f"{PREFIX}{number:03}" for number in range(scale.nodes)]


def ground_files(scale: Scale, quotas: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """The files of the cluster and its projects."""
    nodes = ", ".join(node_names(scale))
    cluster = _CLUSTER.format(name=CLUSTER, nodes=nodes, gpus=GPUS_PER_NODE, prefix=PREFIX)
    yield f"{FOLDER}/cluster.yaml", cluster.encode()
    for name, quota in quotas.items():
        yield f"{FOLDER}/projects/{name}/project.yaml", _PROJECT.format(name=name, quota=quota).encode()


def job_files(wishes: Sequence[Wish]) -> Iterator[tuple[str, bytes]]:
    """The files of the jobs, one each."""
    for wish in wishes:
        text = _JOB.format(
            name=wish.name, project=wish.project, gpus=wish.gpus, memory=wish.memory_mib, run_for=wish.run_for
        )
        yield f"{FOLDER}/projects/{wish.project}/jobs/{wish.name}.yaml", text.encode()


def teams(scale: Scale, quota: int) -> Mapping[str, int]:
    """The projects of a scale, each with that quota."""
    return {f"team-{number}": quota for number in range(scale.projects)}


def flowing(scale: Scale) -> Sequence[Wish]:
    """Short one-GPU jobs of all projects in turn."""
    return [Wish(project=f"team-{number % scale.projects}", name=f"job-{number}") for number in range(scale.jobs)]


def lasting(scale: Scale) -> Sequence[Wish]:
    """One-GPU jobs of all projects in turn that don't end, a quarter more than there are GPUs."""
    return [
        Wish(project=f"team-{number % scale.projects}", name=f"job-{number}", run_for=LASTING)
        for number in range(scale.gpus + scale.gpus // 4)
    ]


def borrowers(scale: Scale) -> Mapping[str, int]:
    """Four projects with a twentieth of the GPUs each."""
    return {f"borrower-{number}": scale.gpus // 20 for number in range(4)}


def borrowed(scale: Scale) -> Sequence[Wish]:
    """One-GPU jobs of the four projects on all GPUs: beyond their quotas they borrow from the owner."""
    return [
        Wish(project=f"borrower-{number % 4}", name=f"job-{number}", run_for=LASTING) for number in range(scale.gpus)
    ]


def owned(scale: Scale) -> Sequence[Wish]:
    """The jobs for which the owner wants its quota back."""
    return [Wish(project="owner", name=f"job-{number}", run_for=LASTING) for number in range(scale.owned)]


def held(scale: Scale, free_gpus: int) -> Sequence[Wish]:
    """Jobs that hold all GPUs except this many, which are on one node."""
    rest = Wish(project=HOLDER, name="rest", gpus=GPUS_PER_NODE - free_gpus, run_for=LASTING)
    return [*held_nodes(scale.nodes - 1), rest]


def held_nodes(count: int) -> Sequence[Wish]:
    """Jobs of a whole node each."""
    return [Wish(project=HOLDER, name=f"node-{number}", gpus=GPUS_PER_NODE, run_for=LASTING) for number in range(count)]


def turning(scale: Scale) -> Sequence[Wish]:
    """One-GPU jobs that last for a while, three for each GPU of the nodes they take turns on."""
    return [
        Wish(project=f"team-{number % scale.projects}", name=f"job-{number}", run_for=TURN)
        for number in range(3 * GPUS_PER_NODE * scale.turned_nodes)
    ]


def too_large(scale: Scale) -> Sequence[Wish]:
    """Jobs of two GPUs, each with another amount of memory."""
    return [
        Wish(project=f"team-{number % scale.projects}", name=f"large-{number}", gpus=2, memory_mib=64 + number)
        for number in range(scale.pending)
    ]
