"""Measures compiling: a generated tree, timed against only parsing the same bytes with PyYAML's fastest loader."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from gpuctl.compile import compile_tree
from gpuctl.compile.syntax import plain_load
from gpuctl.model.declared import Declared
from gpuctl.model.source import SourceFile, SourceTree

JOBS = 10_000
PROJECTS = 40
SEED = 4858
_DIR = "clusters/bench"
_KIB_IN_MIB = 1024

_CLUSTER = """\
apiVersion: gpuctl.dev/v1
kind: Cluster
metadata:
  name: bench
spec:
  nodePools:
  - name: h100
    nodes: [{h100}]
    gpusPerNode: 8
    gpuMemory: 80Gi
    resourcesPerNode: {{cpu: 128, memory: 2Ti}}
    sharing: dra
  - name: v100
    nodes: [{v100}]
    gpusPerNode: 8
    gpuMemory: 32510Mi
    resourcesPerNode: {{cpu: 80, memory: 512Gi}}
    sharing: dra
  ingress:
    host: bench.example.com
  security:
    podSecurity: privileged
    hostPaths: [/srv/datasets]
"""

_PROJECT = """\
apiVersion: gpuctl.dev/v1
kind: Project
metadata:
  name: {project}
spec:
  quota: {quota}
  interactive:
    maxDuration: 8h
  owners: ["@acme/{project}"]
"""

_JOB = """\
apiVersion: gpuctl.dev/v1
kind: Job
metadata:
  name: {name}
  project: {project}
spec:
  type: {type}
  image: registry.example.com/{project}/train:{tag}
  command: [python, train.py]
  args: ["--epochs", "{epochs}", --resume]
  env:
    EPOCHS: "{epochs}"
    TOKEN: {{secret: hub, key: token}}
  gpus: {gpus}
  workers: {workers}
  resources:
    cpu: {cpu}
    memory: {memory}Gi
  volumes:
  - hostPath: /srv/datasets
    mountPath: /data
    readOnly: true
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileBench:
    """Medians over the runs. `ratio_milli` is compile over parse in thousandths.

    `peak_mib` is the maximum memory of the process, which is the compiler's in a process that does nothing else.
    """

    jobs: int
    projects: int
    files: int
    size_bytes: int
    runs: int
    parse_ms: int
    compile_ms: int
    ratio_milli: int
    peak_mib: int


def bench_compile(jobs: int = JOBS, projects: int = PROJECTS, runs: int = 5) -> CompileBench:
    """Generate a tree, then time parsing and compiling in turn. RuntimeError if the tree does not compile."""
    tree = bench_tree(jobs, projects)
    contents = [file.content for file in tree.files.values()]
    parse, compiled = [], []
    for _ in range(runs):
        parse.append(_timed(lambda: [plain_load(content) for content in contents]))
        compiled.append(_timed(lambda: compiled_bench(tree, jobs)))
    parse_us, compile_us = statistics.median_low(parse), statistics.median_low(compiled)
    return CompileBench(
        jobs=jobs,
        projects=projects,
        files=len(contents),
        size_bytes=sum(map(len, contents)),
        runs=runs,
        parse_ms=parse_us // 1000,
        compile_ms=compile_us // 1000,
        ratio_milli=compile_us * 1000 // max(1, parse_us),
        peak_mib=peak_mib(),
    )


def peak_mib() -> int:
    """The maximum memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // _KIB_IN_MIB


def bench_tree(jobs: int, projects: int) -> SourceTree:
    """A valid cluster in the recommended layout, the same for the same numbers."""
    random = Random(SEED)  # noqa: S311 - the same tree every time
    files = {path: SourceFile(content=text.encode()) for path, text in _files(jobs, projects, random)}
    return SourceTree(cluster_dir=_DIR, files=files)


def _files(jobs: int, projects: int, random: Random) -> Iterator[tuple[str, str]]:
    nodes = projects + 1
    h100, v100 = (", ".join(f"{pool}-{number}" for number in range(nodes)) for pool in ("h100", "v100"))
    yield f"{_DIR}/cluster.yaml", _CLUSTER.format(h100=h100, v100=v100)
    for number in range(projects):
        project = f"team-{number}"
        yield f"{_DIR}/projects/{project}/project.yaml", _PROJECT.format(project=project, quota=random.randint(4, 16))
    for number in range(jobs):
        project, name = f"team-{number % projects}", f"run-{number}"
        yield f"{_DIR}/projects/{project}/jobs/{name}.yaml", _job(name, project, random)


def _job(name: str, project: str, random: Random) -> str:
    interactive = random.randrange(5) == 0
    gang = not interactive and random.randrange(10) == 0
    return _JOB.format(
        name=name,
        project=project,
        type="interactive" if interactive else "training",
        tag=f"v{random.randint(1, 40)}",
        epochs=random.randint(1, 300),
        gpus=random.choice(("0.25", "0.5", "1")) if interactive else 8 if gang else random.choice((1, 2, 4)),
        workers=random.randint(2, 4) if gang else 1,
        cpu=random.randint(1, 16),
        memory=random.randint(4, 64),
    )


def compiled_bench(tree: SourceTree, jobs: int) -> Declared:
    """Compile the generated tree. RuntimeError if it does not compile."""
    declared = compile_tree(tree).declared
    if declared is None or len(declared.jobs) != jobs:
        raise RuntimeError("the generated tree does not compile")
    return declared


def _timed(work: Callable[[], object]) -> int:
    """The microseconds that the work takes, after a garbage collection."""
    gc.collect()
    begin = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - begin) // 1000
