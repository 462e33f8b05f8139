"""`gpuctl bench cluster`: a controller under load on a real API server, and the same Jobs there without it.

The controller is a child process, `gpuctl reconcile` as it runs in a cluster, so that its CPU and memory don't include
the benchmark's own. Everything is measured from outside, in the watch of Jobs, in the same way with and without a
controller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.app.bench.cluster_bare import Bare, compiled
from gpuctl.app.bench.cluster_figures import (
    ClusterBench,
    Costs,
    Crowd,
    Flow,
    Held,
    Reclaimed,
    Refills,
    Written,
    fullness,
    refills_of,
)
from gpuctl.app.bench.cluster_log import JobLog, pod_lives
from gpuctl.app.bench.cluster_ports import Controller, Usage, Yard
from gpuctl.app.bench.cluster_tree import (
    GPUS_PER_NODE,
    HOLDER,
    PREFIX,
    REFILLED_GPUS,
    Scale,
    Wish,
    borrowed,
    borrowers,
    flowing,
    ground_files,
    held,
    held_nodes,
    job_files,
    lasting,
    owned,
    teams,
    too_large,
    turning,
)
from gpuctl.app.ports import Workshop
from gpuctl.k8s import kinds
from gpuctl.model.units import DurationMs
from gpuctl.simulate.scenario import EPOCH_MS

_MS_NS = 1_000_000


_QUIET_S, _QUIET_CPU_MS = 5, 100
SHORT_INTERVAL = "200ms"
"""How often Git is fetched where the time from a commit counts."""
WORKLOADS = ("flow", "turnover", "reclaim", "crowd", "refills", "memory")
_WITHOUT_BARE = frozenset({"memory"})
"""Workloads that measure only the controller."""


def bench_cluster(
    yard: Yard, scale: Scale, workloads: Sequence[str] = WORKLOADS, say: Callable[[str], object] = str
) -> ClusterBench:
    """Measure the workloads one after another on a cluster that runs nothing else. Raises WorldFault."""
    bench = _Bench(yard, scale, say)
    measured: dict[str, Any] = {}
    bench.prepare()
    bare: dict[str, tuple[Costs, ...]] = {}
    for name in workloads:
        before = (bench.bare(name),) if name == "flow" else ()
        measured[name] = getattr(bench, name)()
        if name == "flow":
            measured["queued"] = bench.bare("queued")
        if name not in _WITHOUT_BARE:
            bare[name] = (*before, bench.bare(name))
    return ClusterBench(scale=scale, bare=bare, **measured)


@dataclass(frozen=True, slots=True)
class _Run:
    """A controller that follows a repository, and the log of the Jobs."""

    log: JobLog
    workshop: Workshop
    controller: Controller
    url: str

    def declare(self, wishes: Sequence[Wish], text: str) -> int:
        """Commit jobs. Returns the instant of the commit, in ns."""
        _write(self.workshop, job_files(wishes))
        self.workshop.commit(text, EPOCH_MS)
        return time.monotonic_ns()


class _Bench:
    """The workloads, each on a cluster without projects, with a controller of its own."""

    def __init__(self, yard: Yard, scale: Scale, say: Callable[[str], object]) -> None:
        self._yard = yard
        self._scale = scale
        self._say = say

    def prepare(self) -> None:
        """Create the nodes, and remove everything else."""
        self._say(f"{self._scale.nodes} nodes of {GPUS_PER_NODE} GPUs")
        declared = compiled(dict(ground_files(self._scale, teams(self._scale, 0))))
        self._yard.machines.provide(declared.cluster.pools)
        self._yard.ground.clear()

    def bare(self, workload: str) -> Costs:
        """Measure the equivalent of a workload without gpuctl."""
        self._say(f"{workload} without gpuctl")
        scale, bare = self._scale, Bare(self._yard.ground, self._scale)
        match workload:
            case "flow":
                return bare.queue(flowing(scale))
            case "queued":
                return bare.queued(flowing(scale))
            case "turnover":
                return bare.queue(turning(scale), held_nodes(scale.nodes - scale.turned_nodes))
            case "refills":
                return bare.queue(_turns(scale), held(scale, REFILLED_GPUS))
            case "reclaim":
                return bare.reclaim()
            case _:
                return bare.crowd()

    def flow(self) -> Flow:
        """Measure a stream of short jobs, twice as many as GPUs."""
        scale = self._scale
        self._say(f"{scale.jobs} jobs of {scale.projects} projects")
        with self._run(teams(scale, scale.gpus // scale.projects)) as run:
            stretch = self._begin(run)
            run.declare(flowing(scale), "jobs")
            log = run.log
            log.until("jobs end", lambda: log.count(lambda life: life.ended_ns) == scale.jobs)
            costs = stretch()
            return fullness(log.lives.values(), scale.gpus, time.monotonic_ns() - costs.wall_ms * _MS_NS, costs)

    def turnover(self) -> Flow:
        """Measure jobs that last for a while, three for each GPU that they may use."""
        scale, jobs = self._scale, turning(self._scale)
        gpus = GPUS_PER_NODE * scale.turned_nodes
        holding = held_nodes(scale.nodes - scale.turned_nodes)
        self._say(f"{len(jobs)} jobs that last, on {gpus} GPUs")
        with self._run({HOLDER: scale.gpus - gpus, **teams(scale, gpus // scale.projects)}) as run:
            self._hold(run, holding)
            stretch = self._begin(run)
            run.declare(jobs, "jobs")
            log = run.log
            log.until("jobs end", lambda: log.count(lambda life: life.ended_ns) == len(jobs))
            costs = stretch()
            lives = [life for ref, life in log.lives.items() if ref.namespace != f"{PREFIX}{HOLDER}"]
            return fullness(lives, gpus, time.monotonic_ns() - costs.wall_ms * _MS_NS, costs)

    def reclaim(self) -> Reclaimed:
        """Measure a reclaim: all GPUs are borrowed, then jobs of the owner of the quota want some back."""
        scale = self._scale
        quotas = {"owner": scale.gpus - sum(borrowers(scale).values()), **borrowers(scale)}
        self._say(f"{scale.owned} jobs want {scale.owned} of {quotas['owner']} lent GPUs")
        with self._run(quotas) as run:
            run.declare(borrowed(scale), "borrow")
            log = run.log
            log.until("GPUs are lent", lambda: log.count(lambda life: life.holds) == scale.gpus)
            self._rest(run)
            stretch = self._begin(run)
            began_ns = run.declare(owned(scale), "owner")
            owner = f"{PREFIX}owner"
            log.until("the owner's jobs start", lambda: sum(life.holds for life in log.of(owner)) == scale.owned)
            costs = stretch()
            self._rest(run)
            return Reclaimed(
                wanted=scale.owned,
                paused=log.count(lambda life: life.paused_ns),
                pausing_cycles=sum("paused" in told for told in run.controller.told()),
                made_ms=_ms(max(life.made_ns for life in log.of(owner)) - began_ns),
                costs=costs,
            )

    def crowd(self) -> Crowd:
        """Measure the start of one job among many that can't start: one GPU is free, many jobs want two, one job wants
        one."""
        scale = self._scale
        self._say(f"{scale.pending} jobs that can't start, then {scale.fitting} that can, one after another")
        with self._run({HOLDER: scale.gpus, **teams(scale, 0)}, interval=SHORT_INTERVAL) as run:
            self._hold(run, held(scale, 1))
            log = run.log
            run.declare(too_large(scale), "crowd")
            log.until("jobs are made", lambda: len(log.lives) == scale.pending + scale.nodes)
            self._rest(run)
            stretch = self._begin(run)
            waits = [self._one_more(run, f"fits-{number}") for number in range(scale.fitting)]
            return Crowd(
                pending=scale.pending,
                from_commit_ms=tuple(sorted(from_commit for from_commit, _ in waits)),
                from_object_ms=tuple(sorted(from_object for _, from_object in waits)),
                costs=stretch(),
            )

    def refills(self) -> Refills:
        """Measure short jobs that follow one another on the five free GPUs."""
        scale, own = self._scale, f"{PREFIX}team-0"
        self._say(f"{scale.refills} jobs that take turns on {REFILLED_GPUS} GPUs")
        quotas = {HOLDER: scale.gpus - REFILLED_GPUS, "team-0": REFILLED_GPUS}
        wishes = [*held(scale, REFILLED_GPUS), *_turns(scale)]
        with pod_lives(self._yard.ground.cluster, own) as pods, self._run(quotas, wishes, interval="1h") as run:
            stretch, log = self._begin(run), run.log
            log.until("jobs take turns", lambda: sum(bool(life.ended_ns) for life in log.of(own)) == scale.refills)
            return refills_of(pods.values(), log.lives, REFILLED_GPUS, stretch())

    def memory(self) -> Held:
        """Measure memory with jobs on all GPUs and others that wait: after their creation, and after a restart."""
        scale, jobs = self._scale, lasting(self._scale)
        self._say(f"{len(jobs)} jobs on {scale.gpus} GPUs, made from nothing and found again")
        with self._run(teams(scale, scale.gpus // scale.projects)) as run:
            stretch = self._begin(run)
            run.declare(jobs, "jobs")
            run.log.until("jobs are made", lambda: len(run.log.lives) == len(jobs))
            run.log.until("GPUs are given away", lambda: run.log.count(lambda life: life.holds) == scale.gpus)
            self._rest(run)
            made = stretch()
            run.controller.close()
            with closing(self._yard.launch(run.url, "1s")) as controller:
                again = replace(run, controller=controller)
                stretch = self._begin(again)
                self._idle(again)
                return Held(jobs=len(jobs), made=made, found=stretch())

    @contextmanager
    def _run(self, quotas: Mapping[str, int], wishes: Sequence[Wish] = (), interval: str = "1s") -> Iterator[_Run]:
        """Start a controller that fetches a new repository at this interval; without wishes, wait until it is at rest.

        All objects that it made are removed afterwards.
        """
        url, workshop = self._yard.workshop()
        _write(workshop, ground_files(self._scale, quotas))
        _write(workshop, job_files(wishes))
        workshop.commit("projects", EPOCH_MS)
        ground = self._yard.ground
        log = JobLog(ground.cluster)
        try:
            with closing(self._yard.launch(url, interval)) as controller:
                run = _Run(log, workshop, controller, url)
                if not wishes:
                    self._rest(run)
                yield run
        finally:
            ground.clear()

    def _hold(self, run: _Run, wishes: Sequence[Wish]) -> None:
        """Start jobs that hold GPUs."""
        run.declare(wishes, "hold")
        run.log.until("GPUs are held", lambda: run.log.count(lambda life: life.holds) == len(wishes))
        self._rest(run)

    def _one_more(self, run: _Run, name: str) -> tuple[DurationMs, DurationMs]:
        """Declare a job and wait for its end. Returns how long it waited for its start: from its commit, and from its
        object."""
        lives = run.log.lives
        known = set(lives)
        began_ns = run.declare([Wish(project="team-0", name=name)], name)
        run.log.until(f"{name} ends", lambda: any(lives[ref].ended_ns for ref in lives.keys() - known))
        (ref,) = lives.keys() - known
        return _ms(lives[ref].let_go_ns - began_ns), _ms(lives[ref].let_go_ns - lives[ref].made_ns)

    def _rest(self, run: _Run) -> None:
        """Wait until the controller has written nothing for a second."""
        before = run.controller.usage()
        while True:
            time.sleep(1.0)
            now = run.controller.usage()
            if now.writes == before.writes and now.writes:
                return
            before = now

    def _idle(self, run: _Run) -> None:
        """Wait until the controller has used next to no CPU for some seconds. It may have nothing to write."""
        quiet, before = 0, run.controller.usage()
        while quiet < _QUIET_S:
            time.sleep(1.0)
            now = run.controller.usage()
            quiet = quiet + 1 if now.cpu_ms - before.cpu_ms < _QUIET_CPU_MS else 0
            before = now

    def _begin(self, run: _Run) -> Callable[[], Costs]:
        """Begin to measure. Returns a function that returns what was used since."""
        began_ns, cpu_ms, used = time.monotonic_ns(), self._yard.ground.server_cpu_ms(), run.controller.usage()

        def end() -> Costs:
            wall_ms, now = _ms(time.monotonic_ns() - began_ns), run.controller.usage()
            return Costs(
                wall_ms=wall_ms,
                server_cpu_ms=self._yard.ground.server_cpu_ms() - cpu_ms,
                own_cpu_ms=now.cpu_ms - used.cpu_ms,
                memory_mib=now.memory_mib,
                peak_mib=now.peak_mib,
                writes=sum(now.writes.values()) - sum(used.writes.values()),
                ledger_writes=_ledgers(now) - _ledgers(used),
                events=now.events - used.events,
                by_kind=_by_kind(used, now),
            )

        return end


def _ledgers(usage: Usage) -> int:
    return usage.writes.get(kinds.CONFIG_MAP[1], 0)


def _by_kind(used: Usage, now: Usage) -> dict[str, Written]:
    """The writes between two usages, Events included."""
    counts = {**now.writes, kinds.EVENT[1]: now.events}
    before = {**used.writes, kinds.EVENT[1]: used.events}
    return {
        kind: Written(
            count=count - before.get(kind, 0), taken_ms=now.write_ms.get(kind, 0) - used.write_ms.get(kind, 0)
        )
        for kind, count in sorted(counts.items())
        if count > before.get(kind, 0)
    }


def _ms(duration_ns: int) -> DurationMs:
    return duration_ns // _MS_NS


def _write(workshop: Workshop, files: Iterator[tuple[str, bytes]]) -> None:
    for path, content in files:
        workshop.write(path, content)


def _turns(scale: Scale) -> Sequence[Wish]:
    return [Wish(project="team-0", name=f"turn-{number}") for number in range(scale.refills)]
