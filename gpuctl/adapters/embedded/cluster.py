"""The embedded cluster: an API server with controllers, scheduler and nodes in one object, at any speed of time.

Nothing runs beside the caller: every call first lets everything happen that is due by the clock, in order of time, each
at its own instant. So a virtual clock makes it a simulation, and the machine's clock a small cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition, RLock

from gpuctl.adapters.embedded.agenda import Agenda, Task
from gpuctl.adapters.embedded.api import Api
from gpuctl.adapters.embedded.autoscalers import LOAD, Autoscalers
from gpuctl.adapters.embedded.bodies import Key, key_of, put
from gpuctl.adapters.embedded.claims import DeviceClaims, Volumes
from gpuctl.adapters.embedded.collector import Collector, Namespaces
from gpuctl.adapters.embedded.controller import Controller, Desk
from gpuctl.adapters.embedded.deployments import Deployments
from gpuctl.adapters.embedded.devices import DeviceBook
from gpuctl.adapters.embedded.faults import not_found
from gpuctl.adapters.embedded.jobs import Jobs
from gpuctl.adapters.embedded.jobsets import JobSets
from gpuctl.adapters.embedded.kubelets import CHECKPOINT, RUN_FOR, STUCK, Kubelets
from gpuctl.adapters.embedded.nodebook import NodeBook
from gpuctl.adapters.embedded.nodes import Evictions, provide, set_cordoned, set_ready
from gpuctl.adapters.embedded.otherkinds import OtherKinds
from gpuctl.adapters.embedded.quotas import Quotas
from gpuctl.adapters.embedded.scheduler import DEALT, Scheduler
from gpuctl.adapters.embedded.selecting import selections
from gpuctl.adapters.embedded.sqlite import SqliteJournal, read
from gpuctl.adapters.embedded.store import HISTORY, Journal, Memory, Store
from gpuctl.adapters.embedded.strangers import set_strangers
from gpuctl.adapters.embedded.timings import EmbeddedTimings
from gpuctl.app.ports import Clock, Invalid, ObjectList, R, T, Taken, WatchEvent, WorldFault
from gpuctl.k8s import kinds, names
from gpuctl.k8s.crowding import is_crowded
from gpuctl.k8s.kinds import SCOPES, WITH_PEOPLES, Kind, Scope
from gpuctl.k8s.makers import is_foreign, tells_its_maker
from gpuctl.k8s.names import FIELD_MANAGER
from gpuctl.k8s.objects import annotations_of, is_deleting, ref_of, text
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.k8s.workload_table import rows_of
from gpuctl.k8s.workloads import is_workload, job_of, keeps_its_pods
from gpuctl.model.decision import Placement
from gpuctl.model.declared import NodePool
from gpuctl.model.ids import JobId, NodeName, ObjectRef
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant
from gpuctl.model.workload_kind import WorkloadKind

_GLANCE_MS = 20


class EmbeddedCluster:
    """Implements the ports Cluster, Machines and World. `path`: the file that keeps it. Safe for threads.

    `scopes`: which objects of a kind are listed and watched, by their labels alone.
    """

    def __init__(  # noqa: PLR0913 - all by name, all with a default
        self,
        clock: Clock,
        path: str | None = None,
        *,
        timings: EmbeddedTimings | None = None,
        history: int = HISTORY,
        journal: Journal | None = None,
        scopes: Mapping[Kind, Scope] = SCOPES,
    ) -> None:
        self._clock = clock
        self._ticks = False
        self._lock = RLock()
        self._written = Condition(self._lock)
        self._store = Store(journal or (SqliteJournal(path) if path else Memory()), history, selections(scopes))
        self._api = Api(self._store)
        self._agenda = Agenda()
        self._book = NodeBook()
        self._devices = DeviceBook()
        timings = timings or EmbeddedTimings()
        self._retry_ms = timings.retry_ms
        desk = Desk(self._api, self._agenda, timings)
        self._kubelets, self._collector = Kubelets(desk, self._book), Collector(desk)
        controllers: list[Controller] = [
            Namespaces(desk),
            self._collector,
            Jobs(desk),
            JobSets(desk),
            OtherKinds(desk),
            Deployments(desk),
            Autoscalers(desk),
            DeviceClaims(desk, self._book),
            Volumes(desk),
            Quotas(desk),
            Scheduler(desk, self._book, self._devices),
            self._kubelets,
            Evictions(desk, self._book),
        ]
        self._controllers = {controller.name: controller for controller in controllers}
        self._store.listeners += [self._book.note, self._devices.note, self._note]
        self._open()

    @classmethod
    def copy_of(cls, path: str, clock: Clock) -> EmbeddedCluster:
        """A copy, to look at, of the cluster in a file as it would be now; another process may be running that cluster.

        Writes to a copy are not kept. Raises ClusterUnavailable if there is no such file.
        """
        return cls(clock, journal=Memory(read(path)), scopes=WITH_PEOPLES)

    # Cluster

    def list(self, kind: Kind) -> ObjectList:
        """All objects of a kind within its scope, by namespace and name. Raises NotFound for a kind that is not
        served."""
        with self._turn():
            self._served(kind)
            return ObjectList(items=self._store.listed(kind), resource_version=str(self._store.version))

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        """The events of a kind after a version, then a bookmark. Raises Gone, or ClusterUnavailable for a future
        version.

        It waits for the first event by the clock's time, but not if the clock stands still.
        """
        with self._turn():
            self._served(kind)
            until = self._api.instant + timeout_ms
            events = self._store.events(kind, int(resource_version))
            while not events and self._waited(until):
                events = self._store.events(kind, int(resource_version))
            return (*events, self._bookmark(kind))

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        """Server-side apply as field manager `gpuctl`, forced. Returns the object as stored; faults as the port
        says."""
        ref = ref_of(body)
        with self._turn():
            if is_new and tells_its_maker(ref):
                live = self._store.get(key_of(body))
                if live is not None and is_foreign(body, live):
                    raise Taken(ref)
            try:
                return self._api.apply(body, FIELD_MANAGER, force=not (is_new and is_workload(ref)))
            except Invalid as refusal:
                if not is_crowded(body, str(refusal)) or not self._api.uncrowd(body):
                    raise
            return self._api.apply(body, FIELD_MANAGER)

    def check(self, body: Body) -> None:
        """Try an apply without changing anything."""
        with self._turn():
            self._api.apply(body, FIELD_MANAGER, dry_run=True)

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        """Delete exactly this object, its dependents in the background. If the object would keep its pods, they are
        deleted before it goes."""
        key = Key(ref.api_version, ref.kind, ref.namespace, ref.name)
        with self._turn():
            self._served((ref.api_version, ref.kind))
            self._api.delete(key, uid, resource_version)
            left = self._store.get(key)
            if left is not None and keeps_its_pods(ref, left):
                self._collector.end_dependents(left)
            return left

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        """Do the work one item after the other: this cluster has one writer."""
        return [work(item) for item in items]

    # Machines

    def provide(self, pools: Sequence[NodePool]) -> None:
        """Provide nodes, device class and slices of the declared inventory; remove nodes that are no longer
        declared."""
        with self._turn():
            provide(self._api, pools)

    def define(self, declared: Sequence[WorkloadKind]) -> None:
        """Serve these kinds too, and play their controllers, which also look at all existing objects."""
        with self._turn():
            rows, before = rows_of(declared), self._api.rows
            self._api.rows = rows
            for kind in rows.keys() - before.keys():
                for body in self._store.list(kind):
                    self._note(key_of(body), None, body)

    # World

    def settle(self) -> None:
        """Let everything happen that is due by now."""
        with self._turn():
            pass

    def next_event_ms(self) -> Instant | None:
        """The instant at which something is next due by itself."""
        with self._turn():
            return self._agenda.next_due()

    def run_for(self, job: JobId, duration_ms: DurationMs) -> None:
        """Make the job's workers succeed after running this long in all, without pauses, in each of its runs."""
        with self._turn():
            self._store.set_fact(str(job), RUN_FOR, duration_ms)
            for key in self._book.workers(job):
                self._agenda.soon(Task(self._kubelets.name, key))

    def checkpoint(self, job: JobId, every_ms: DurationMs | None) -> None:
        """Have the job's workers, once stopped, go on from the last multiple of `every_ms` since their start."""
        with self._turn():
            self._store.set_fact(str(job), CHECKPOINT, every_ms)

    def deal(self, job: JobId, placement: Placement | None) -> None:
        """Have the job's pods scheduled where the placement has them, worker by worker, if they fit there. None:
        kube-scheduler chooses."""
        workers = placement.workers if placement is not None else ()
        with self._turn():
            self._store.set_fact(str(job), DEALT, [[worker.node, list(worker.gpus)] for worker in workers] or None)

    def finish(self, job: JobId, exit_code: int) -> None:
        """End the job's running pods now. A Deployment's pods start again at once."""
        with self._turn():
            for key in self._book.workers(job):
                pod = self._store.get(key)
                if pod is not None and text(pod, "status", "phase") == "Running" and not is_deleting(pod):
                    self._kubelets.exit(pod, exit_code)

    def set_node_ready(self, node: NodeName, *, ready: bool) -> None:
        """Lose a node, or bring it back. Raises NotFound for a node that is not there."""
        with self._turn():
            set_ready(self._api, node, ready=ready)

    def cordon(self, node: NodeName, *, cordoned: bool) -> None:
        """Let a node take no new pods, or take them again. Raises NotFound for a node that is not there."""
        with self._turn():
            set_cordoned(self._api, node, cordoned=cordoned)

    def set_idle(self, job: JobId, since_ms: Instant | None) -> None:
        """Write on the job's pods since when their GPUs are unused; None removes it."""
        with self._turn():
            for key in self._book.workers(job):
                pod = self._store.get(key)
                if pod is not None:
                    notes = {k: v for k, v in annotations_of(pod).items() if k != names.IDLE_SINCE_ANNOTATION}
                    if since_ms is not None:
                        notes[names.IDLE_SINCE_ANNOTATION] = format_timestamp(since_ms)
                    self._api.replace(put(pod, ("metadata", "annotations"), notes))

    def set_stuck(self, job: JobId, reason: str | None) -> None:
        """Have the job's containers that have not started wait for this reason; None: let them start."""
        with self._turn():
            self._store.set_fact(str(job), STUCK, reason)
            for key in self._book.workers(job):
                self._agenda.soon(Task(self._kubelets.name, key))

    def set_load(self, job: JobId, load_milli: int) -> None:
        """Set the load that all replicas of a service have together in its metric, in thousandths."""
        with self._turn():
            self._store.set_fact(str(job), LOAD, load_milli)
            for body in self._store.list(kinds.AUTOSCALER):
                if job_of(body) == job:
                    self._agenda.soon(Task(Autoscalers.name, key_of(body)))

    def set_strangers(self, node: NodeName, gpus: int) -> None:
        """Have pods of others, not gpuctl's, ask for this many GPUs of a node. Raises NotFound for a node that is not
        there."""
        with self._turn():
            set_strangers(self._api, node, gpus)

    # a person with kubectl

    def update(self, body: Body, manager: str = "kubectl") -> Body:
        """Replace an object as another field manager would: for drift, in scenarios and tests."""
        with self._turn():
            return self._api.update(body, manager)

    def create(self, body: Body, manager: str = "kubectl") -> Body:
        """Make an object as another field manager would, with any labels and owners."""
        with self._turn():
            return self._api.make(body, manager)

    def remove(self, ref: ObjectRef) -> None:
        """Delete an object as a person would, its dependents in the background."""
        with self._turn():
            self._api.delete(Key(ref.api_version, ref.kind, ref.namespace, ref.name))

    def close(self) -> None:
        """Close the file. The cluster can't be used after this."""
        with self._lock:
            self._store.close()

    # inside

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One call: alone, after everything that was due before it, and complete with what it causes."""
        with self._lock:
            before = self._store.version
            self._settle()
            try:
                yield
                self._settle()
            finally:
                self._store.commit(self._api.instant)
                if self._store.version != before:
                    self._written.notify_all()

    def _settle(self) -> None:
        """Do what is due by the clock, in order of time; all that one thing causes comes before the next instant."""
        until = max(self._clock.now_ms(), self._api.instant)
        while True:
            task = self._agenda.take()
            if task is not None:
                self._sync(task)
                continue
            due = self._agenda.next_due()
            if due is None or due > until:
                break
            self._api.instant = max(due, self._api.instant)
            self._agenda.ripen()
        self._api.instant = until

    def _sync(self, task: Task) -> None:
        """Let one controller look at one object; if it is refused, it tries again later."""
        try:
            self._controllers[task.controller].sync(task.key)
        except WorldFault:
            self._agenda.at(self._api.instant + self._retry_ms, task)

    def _note(self, key: Key, old: Body | None, new: Body | None) -> None:
        """Tell the controllers of a write."""
        for controller in self._controllers.values():
            if new is None:
                self._agenda.forget(Task(controller.name, key))
            for concerned in controller.concerns(key, old, new):
                self._agenda.soon(Task(controller.name, concerned))

    def _waited(self, until: Instant) -> bool:
        """Wait for a writer, or for something to be due. False if the time is over or the clock stands still."""
        now = self._clock.now_ms()
        if until <= now:
            return False
        due = self._agenda.next_due()
        ahead = (until if due is None else min(until, due)) - now
        # A short wait shows whether the clock moves by itself; only then is a long one any use.
        written = self._written.wait((ahead if self._ticks else min(ahead, _GLANCE_MS)) / 1000)
        self._ticks = self._ticks or self._clock.now_ms() > now
        self._settle()
        self._store.commit(self._api.instant)
        return written or self._ticks

    def _bookmark(self, kind: Kind) -> WatchEvent:
        body = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"resourceVersion": str(self._store.version)}}
        return WatchEvent(type="BOOKMARK", body=body)

    def _served(self, kind: Kind) -> None:
        if not self._api.serves(kind):
            raise not_found(f"the server has no {kinds.in_words(kind)}")

    def _open(self) -> None:
        """Look at everything in the store as of the time it was left; a new store gets a server's own namespaces."""
        now = self._clock.now_ms()
        self._api.instant = min(now, self._store.closed_ms or now)
        for key, body in self._store.all():
            self._book.note(key, None, body)
            self._devices.note(key, None, body)
            self._note(key, None, body)
        if not self._store.version:
            for name in ("default", "kube-system"):
                self._api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self._store.commit(self._api.instant)
