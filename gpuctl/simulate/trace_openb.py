"""Read Alibaba's openb traces, 2023: nodes with GPUs, and lists of pods with a part of a GPU, whole ones, or none.

Columns of a list: name, cpu_milli, memory_mib, num_gpu, gpu_milli (of each GPU), and in most gpu_spec (the GPU models
that a pod may use, "T4|P100"; empty: any), qos, creation_time and deletion_time (seconds from the trace's begin).
Source: data/csv of hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0; Weng et al., "Beware of Fragmentation",
ATC 2023.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.ids import ProjectName
from gpuctl.model.units import MOST_NODE_GPUS, WHOLE_GPU, CpuMilli, GpuMilli, MemBytes
from gpuctl.simulate.trace import Table, Trace, TraceJob

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
MODELS_COLUMN = "gpu_spec"
TIME_COLUMNS = ("qos", "creation_time", "deletion_time")
COLUMNS = (*POD_COLUMNS, *TIME_COLUMNS)
"""The columns of a pod list with times."""

T = TypeVar("T")
_MIB = 1 << 20
_MOST_DIGITS = 12
_MOST_SECONDS = 10**9
_MOST_GPUS_OF_A_POD = 10_000
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbNode:
    """A node and its free CPU, memory and GPUs."""

    name: str
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    gpus: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenbPod:
    """A pod and its requests. `gpu_milli`: of all its GPUs together: a part of one GPU, whole ones, or 0.

    `models`: the GPU models that it may use, sorted, each once; () for any. Published lists name some twice.
    """

    name: str
    cpu_milli: CpuMilli
    mem_bytes: MemBytes
    gpu_milli: GpuMilli
    models: tuple[str, ...] = ()


def read_nodes(path: str, content: bytes) -> tuple[tuple[OpenbNode, ...], tuple[Diagnostic, ...]]:
    """Read the nodes of a list, in its order; empty if a line is wrong."""
    table = Table(path, content, NODE_COLUMNS)
    nodes: list[OpenbNode] = []
    for number, (name, cpu, mib, gpus, model) in table.rows():
        amounts = _numbers(cpu, mib, gpus)
        if amounts is None or amounts[2] > MOST_NODE_GPUS:
            table.wrong(number, f"cpu_milli, memory_mib and gpu (at most {MOST_NODE_GPUS}) are whole numbers")
            continue
        if not _is_name(name) or not _is_name(model):
            table.wrong(number, "sn and model are names")
            continue
        nodes.append(
            OpenbNode(name=name, cpu_milli=amounts[0], mem_bytes=amounts[1] * _MIB, gpus=amounts[2], model=model)
        )
    return _checked(table, tuple(nodes))


def read_pods(
    path: str, content: bytes, models: Collection[str] = ()
) -> tuple[tuple[OpenbPod, ...], tuple[Diagnostic, ...]]:
    """Read the pods of a list, in its order; empty if a line is wrong.

    `models`: those of the nodes; a pod that names another one is wrong. (): not known, so any may be named.
    """
    table = Table(path, content, POD_COLUMNS, (MODELS_COLUMN,))
    pods: list[OpenbPod] = []
    for number, cells in table.rows():
        pod = _pod(cells)
        if isinstance(pod, str):
            table.wrong(number, pod)
        elif models and (unknown := next((model for model in pod.models if model not in models), None)):
            table.wrong(number, f"no node has the GPU model {unknown!r}; nodes have {', '.join(sorted(models))}")
        else:
            pods.append(pod)
    return _checked(table, tuple(pods))


def read_openb(path: str, content: bytes) -> tuple[Trace | None, tuple[Diagnostic, ...]]:
    """Read the pods with GPUs as jobs, by time: each ran until its deletion. Its quality of service stands for the
    project.

    openb has no teams. A pod that was deleted at its creation held nothing and is left out. The GPU models that a pod
    may use are checked but not kept: a replay's nodes are all equal.
    """
    table = Table(path, content, COLUMNS, (MODELS_COLUMN,))
    jobs: list[TraceJob] = []
    for number, (*asked, service, created, deleted, models) in table.rows():
        pod, times = _pod([*asked, models]), _times(created, deleted)
        if isinstance(pod, str):
            table.wrong(number, pod)
        elif isinstance(times, str):
            table.wrong(number, times)
        elif not _is_name(service):
            table.wrong(number, "qos is a name")
        elif pod.gpu_milli and times[0] < times[1]:
            jobs.append(_job(pod, service, times[0], times[1]))
    if not jobs and not table.mistakes:
        table.nothing("no pod in it held GPUs for any time")
    if table.mistakes:
        return None, tuple(table.mistakes)
    return Trace(name="openb", jobs=tuple(sorted(jobs, key=lambda job: job.submitted_ms))), ()


def _job(pod: OpenbPod, service: str, created_s: int, deleted_s: int) -> TraceJob:
    return TraceJob(
        project=ProjectName(service.lower() or "none"),
        submitted_ms=1000 * created_s,
        duration_ms=1000 * (deleted_s - created_s),
        gpu_milli=pod.gpu_milli,
        cpu_milli=pod.cpu_milli,
        mem_bytes=pod.mem_bytes,
    )


def _pod(cells: list[str]) -> OpenbPod | str:
    """The pod of a line, or what is wrong with it. The cells are those of POD_COLUMNS and MODELS_COLUMN."""
    name, *numbers, spec = cells
    amounts = _numbers(*numbers)
    if amounts is None:
        return "cpu_milli, memory_mib, num_gpu and gpu_milli are whole numbers"
    if not _is_name(name):
        return "name is a name"
    models = tuple(sorted(set(spec.split("|")))) if spec else ()
    if not all(_is_name(model) and model and model == model.strip() for model in models):
        return f"gpu_spec {spec!r} is not a list of GPU models: write T4|P100, or nothing for any"
    cpu, mib, gpus, gpu_milli = amounts
    if gpus > _MOST_GPUS_OF_A_POD:
        return f"{gpus} GPUs are more than a pod can have"
    if gpus and not 0 < gpu_milli <= WHOLE_GPU:
        return f"gpu_milli {gpu_milli} is not a part of one GPU"
    if gpus > 1 and gpu_milli != WHOLE_GPU:
        return "parts of several GPUs"
    return OpenbPod(name=name, cpu_milli=cpu, mem_bytes=mib * _MIB, gpu_milli=gpus * gpu_milli, models=models)


def _times(created: str, deleted: str) -> list[int] | str:
    """When a pod was created and deleted, in seconds, or what is wrong with the line."""
    times = _numbers(created, deleted)
    if times is None or max(times) > _MOST_SECONDS:
        return "creation_time and deletion_time are whole numbers of seconds"
    return times if times[0] <= times[1] else f"deleted at {times[1]}, before it was created at {times[0]}"


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and text.isprintable()


def _numbers(*cells: str) -> list[int] | None:
    """Whole numbers of at most _MOST_DIGITS digits; None for anything else."""
    if all(cell.isdecimal() and len(cell) <= _MOST_DIGITS for cell in cells):
        return [int(cell) for cell in cells]
    return None


def _checked(table: Table, found: tuple[T, ...]) -> tuple[tuple[T, ...], tuple[Diagnostic, ...]]:
    if not found and not table.mistakes:
        table.nothing("no line follows the first")
    return (() if table.mistakes else found), tuple(table.mistakes)
