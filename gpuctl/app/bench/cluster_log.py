"""Logs what happens to Jobs and to pods, with the times of their watch events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from gpuctl.app.ports import Cluster, Gone, WorldFault
from gpuctl.diag.wording import message
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import condition, flag, items, mapping, ref_of, resource_version, text
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant

STALL_MS: DurationMs = 120_000
"""If no event of any Job comes for this long, none will come."""
_LOOK_MS = 200
_MS_NS = 1_000_000
_ENDS = ("SuccessCriteriaMet", "Complete", "Failed")
_POD_ENDS = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class Life:
    """A Job's instants on the monotonic clock, in nanoseconds; 0 for what has not happened.

    `pods`: how many it has now; `ready`: how many of them are ready.
    """

    made_ns: int = 0
    let_go_ns: int = 0
    paused_ns: int = 0
    ended_ns: int = 0
    pods: int = 0
    ready: int = 0

    @property
    def holds(self) -> bool:
        """Whether the Job holds its GPUs: it was released, and has neither ended nor been paused since."""
        return bool(self.let_go_ns) and not self.ended_ns and self.paused_ns < self.let_go_ns


class JobLog:
    """Follows all Jobs of a cluster from now on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        listed = cluster.list(kinds.JOB)
        self._version = listed.resource_version
        self.lives: dict[ObjectRef, Life] = {}
        self._follow(0)

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Follow until `done`. Raises WorldFault GPU7091 if no more events come before that."""
        stalls_ns = time.monotonic_ns() + STALL_MS * _MS_NS
        while not done():
            if self._follow(_LOOK_MS):
                stalls_ns = time.monotonic_ns() + STALL_MS * _MS_NS
            elif time.monotonic_ns() > stalls_ns:
                told = message("GPU7091", {"what": what, "seconds": STALL_MS // 1000})
                raise WorldFault("GPU7091", told)

    def of(self, namespace: str) -> Iterator[Life]:
        """The Jobs of one namespace."""
        return (life for ref, life in self.lives.items() if ref.namespace == namespace)

    def of_job(self, ref: ObjectRef) -> Life:
        """The life of a Job; an empty one if the Job was not seen."""
        return self.lives.get(ref, Life())

    def count(self, holds: Callable[[Life], object]) -> int:
        """How many Jobs satisfy a condition."""
        return sum(bool(holds(life)) for life in self.lives.values())

    def _follow(self, timeout_ms: DurationMs) -> int:
        """Take in the events. Returns how many Jobs they were about: all, if the watch missed some."""
        try:
            events = self._cluster.watch(kinds.JOB, self._version, timeout_ms)
        except Gone:
            listed = self._cluster.list(kinds.JOB)
            self._version = listed.resource_version
            bodies: Sequence[Body] = listed.items
        else:
            self._version = resource_version(events[-1].body)
            bodies = [event.body for event in events if event.type in {"ADDED", "MODIFIED"}]
        now_ns = time.monotonic_ns()
        for body in bodies:
            self._note(body, now_ns)
        return len(bodies)

    def _note(self, body: Body, now_ns: int) -> None:
        life = self.lives.setdefault(ref_of(body), Life(made_ns=now_ns))
        status = mapping(body, "status")
        life.pods = status.get("active", 0) + status.get("terminating", 0)
        life.ready = status.get("ready", 0)
        if flag(body, "spec", "suspend"):
            if life.let_go_ns > life.paused_ns:
                life.paused_ns = now_ns
        elif not life.let_go_ns or life.paused_ns > life.let_go_ns:
            life.let_go_ns = now_ns
        if not life.ended_ns and any(condition(body, kind) for kind in _ENDS):
            life.ended_ns = now_ns


@dataclass(slots=True)
class PodLife:
    """A pod's instants on the monotonic clock, in nanoseconds; 0 for what has not happened. `job`: the Job that made
    it."""

    job: ObjectRef
    made_ns: int
    bound_ns: int = 0
    ended_ns: int = 0


@contextmanager
def pod_lives(cluster: Cluster, namespace: str) -> Iterator[Mapping[ObjectRef, PodLife]]:
    """Follow the pods of a namespace in a separate thread, so that each event gets the time of its arrival.

    Raises WorldFault at the end if they could not be followed.
    """
    lives: dict[ObjectRef, PodLife] = {}
    faults: list[WorldFault] = []
    over = Event()

    def follow(version: str) -> None:
        try:
            while not over.is_set():
                events = cluster.watch(kinds.POD, version, _LOOK_MS)
                now_ns, version = time.monotonic_ns(), resource_version(events[-1].body)
                for event in events:
                    if event.type in {"ADDED", "MODIFIED"} and ref_of(event.body).namespace == namespace:
                        _note_pod(lives, event.body, now_ns)
        except WorldFault as fault:
            faults.append(fault)

    thread = Thread(target=follow, args=(cluster.list(kinds.POD).resource_version,), name="pod log", daemon=True)
    thread.start()
    try:
        yield lives
    finally:
        over.set()
        thread.join()
    if faults:
        raise faults[0]


def _note_pod(lives: dict[ObjectRef, PodLife], body: Body, now_ns: Instant) -> None:
    ref = ref_of(body)
    if ref not in lives:
        owner = next((text(one, "name") for one in items(body, "metadata", "ownerReferences")), "")
        lives[ref] = PodLife(job=ObjectRef(*kinds.JOB, ref.namespace, owner), made_ns=now_ns)
    life = lives[ref]
    life.bound_ns = life.bound_ns or (now_ns if text(body, "spec", "nodeName") else 0)
    life.ended_ns = life.ended_ns or (now_ns if text(body, "status", "phase") in _POD_ENDS else 0)
