"""The workloads of `gpuctl bench cluster` without gpuctl: what the control plane alone needs for them.

The same Jobs are created directly. Where jobs have to wait, their pods wait for kube-scheduler. Where jobs are paused
for others, the benchmark suspends them; the choice is fixed in advance.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median_low
from typing import Any

from gpuctl.app.bench.cluster_figures import Costs
from gpuctl.app.bench.cluster_log import JobLog
from gpuctl.app.bench.cluster_ports import Ground
from gpuctl.app.bench.cluster_tree import (
    BRIEF_MS,
    FOLDER,
    Scale,
    Wish,
    borrowed,
    ground_files,
    held,
    job_files,
    owned,
    too_large,
)
from gpuctl.app.other_engine import waiting_manifests
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import ref_of
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs

_MS_NS = 1_000_000
_AT_A_TIME = 64
"""How many Jobs are created between two checks for ended ones."""


class Bare:
    """Runs each workload once, on a cluster without projects. Raises WorldFault."""

    def __init__(self, ground: Ground, scale: Scale) -> None:
        self._ground = ground
        self._scale = scale

    def queue(self, wishes: Sequence[Wish], holding: Sequence[Wish] = ()) -> Costs:
        """Create all Jobs at once, beside the Jobs that hold GPUs, and wait for the end of the last."""
        with self._held(holding, wishes) as (log, bodies):
            begun = self._begin()
            self._make(bodies)
            log.until("bare Jobs end", lambda: all(log.of_job(ref_of(body)).ended_ns for body in bodies))
            return self._since(begun)

    def queued(self, wishes: Sequence[Wish]) -> Costs:
        """Create all Jobs suspended, and release each once a GPU is free: the cost of a queue without decisions."""
        with self._held((), wishes) as (log, bodies):
            begun = self._begin()
            waiting = _Waiting(log, bodies, self._scale.gpus)
            log.until("bare Jobs end", lambda: waiting.all_ended(self._apply))
            return self._since(begun)

    def reclaim(self) -> Costs:
        """With Jobs on all GPUs, suspend some, and release as many others when the pods are gone."""
        scale = self._scale
        lent, wanted = borrowed(scale), owned(scale)
        with self._held(lent, wanted) as (log, bodies):
            stopped = _job_bodies(scale, [wish for wish in lent if not wish.name.endswith("0")][: len(wanted)])
            gone = {ref_of(body) for body in stopped}
            begun = self._begin()
            self._make([_suspended(body, suspend=True) for body in bodies])
            self._apply([_suspended(body, suspend=True) for body in stopped])
            log.until("pods are gone", lambda: not any(log.lives[ref].pods for ref in gone))
            self._apply([_suspended(body, suspend=False) for body in bodies])
            log.until("Jobs are let go", lambda: all(log.of_job(ref_of(body)).let_go_ns for body in bodies))
            return self._since(begun)

    def crowd(self) -> Costs:
        """Run single Jobs beside pods that fit nowhere. `wall_ms` is the median of one Job, less its running time."""
        scale, waits = self._scale, list[DurationMs]()
        singles = [Wish(project="team-0", name=f"fits-{number}") for number in range(scale.fitting)]
        with self._held(held(scale, 1), singles) as (log, bodies):
            self._make(_job_bodies(scale, too_large(scale)))
            begun = self._begin()
            for body in bodies:
                began_ns, ref = time.monotonic_ns(), ref_of(body)
                self._make([body])
                log.until(f"{ref.name} ends", partial(_has_ended, log, ref))
                waits.append((log.lives[ref].ended_ns - began_ns) // _MS_NS - BRIEF_MS)
            costs = self._since(begun)
            return Costs(wall_ms=median_low(waits), server_cpu_ms=costs.server_cpu_ms)

    @contextmanager
    def _held(self, holding: Sequence[Wish], wishes: Sequence[Wish]) -> Iterator[tuple[JobLog, Sequence[Body]]]:
        """Create the Jobs that hold GPUs. Yields the log, and the bodies of the wished Jobs, which are not created
        yet."""
        projects = {wish.project for wish in (*holding, *wishes)} | {f"team-{n}" for n in range(self._scale.projects)}
        log = JobLog(self._ground.cluster)
        try:
            self._ground.cluster.each(self._ground.create, _space_bodies(self._scale, projects))
            holders = _job_bodies(self._scale, holding)
            self._make(holders)
            log.until("GPUs are held", lambda: sum(life.ready > 0 for life in log.lives.values()) == len(holders))
            yield log, _job_bodies(self._scale, wishes)
        finally:
            self._ground.clear()

    def _make(self, bodies: Sequence[Body]) -> None:
        self._ground.cluster.each(self._ground.create, bodies)

    def _apply(self, bodies: Sequence[Body]) -> None:
        self._ground.cluster.each(self._ground.cluster.apply, bodies)

    def _begin(self) -> tuple[int, DurationMs]:
        return time.monotonic_ns(), self._ground.server_cpu_ms()

    def _since(self, begun: tuple[int, DurationMs]) -> Costs:
        began_ns, cpu_ms = begun
        wall_ms = (time.monotonic_ns() - began_ns) // _MS_NS
        return Costs(wall_ms=wall_ms, server_cpu_ms=self._ground.server_cpu_ms() - cpu_ms)


class _Waiting:
    """Creates Jobs suspended, some at a time, and releases them in the same order."""

    def __init__(self, log: JobLog, bodies: Sequence[Body], gpus: int) -> None:
        self._log = log
        self._gpus = gpus
        self._unmade = deque(bodies)
        self._made: deque[Body] = deque()
        self._let_go: set[ObjectRef] = set()

    def all_ended(self, write: Callable[[Sequence[Body]], None]) -> bool:
        """Write what is due. Returns whether all Jobs have ended."""
        self._let_go = {ref for ref in self._let_go if not self._log.of_job(ref).ended_ns}
        free = self._gpus - len(self._let_go)
        starts = [self._made.popleft() for _ in range(min(free, len(self._made)))]
        fresh = [self._unmade.popleft() for _ in range(min(_AT_A_TIME, len(self._unmade)))]
        write([_suspended(body, suspend=False) for body in starts] + [_suspended(body, suspend=True) for body in fresh])
        self._made.extend(fresh)
        self._let_go.update(map(ref_of, starts))
        return not (self._unmade or self._made or self._let_go)


def _has_ended(log: JobLog, ref: ObjectRef) -> bool:
    return bool(log.of_job(ref).ended_ns)


def compiled(files: Mapping[str, bytes]) -> Declared:
    """Compile generated files."""
    tree = {path: SourceFile(content=content) for path, content in files.items()}
    found = compile_tree(SourceTree(cluster_dir=FOLDER, files=tree))
    if found.declared is None:
        raise RuntimeError(f"the generated tree does not compile: {found.diagnostics[0].message}")
    return found.declared


def _bodies(scale: Scale, projects: Collection[str], wishes: Sequence[Wish], kinds: set[str]) -> Sequence[Body]:
    """The objects of these kinds that gpuctl would create."""
    files = {**dict(ground_files(scale, dict.fromkeys(sorted(projects), 0))), **dict(job_files(wishes))}
    return [item.body for item in waiting_manifests(compiled(files)).items if item.body["kind"] in kinds]


def _space_bodies(scale: Scale, projects: Collection[str]) -> Sequence[Body]:
    return _bodies(scale, projects, (), {kinds.NAMESPACE[1], kinds.PRIORITY_CLASS[1]})


def _job_bodies(scale: Scale, wishes: Sequence[Wish]) -> Sequence[Body]:
    """The Jobs that gpuctl would create, released."""
    made = _bodies(scale, {wish.project for wish in wishes}, wishes, {kinds.JOB[1]})
    return [_suspended(body, suspend=False) for body in made]


def _suspended(body: Body, *, suspend: bool) -> dict[str, Any]:
    return {**body, "spec": {**body["spec"], "suspend": suspend}}
