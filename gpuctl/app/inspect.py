"""Reads a cluster once for the commands, and finds a job or a pod in it by name.

A person who runs a command may have fewer rights than the controller. The kinds that the command needs must be
readable; of the others, those that could not be read are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuctl.app.object_cache import ObjectCache, unread_now
from gpuctl.app.ports import Cluster, ClusterUnavailable, Forbidden, NotFound, WorldFault
from gpuctl.app.session_ports import Sessions
from gpuctl.diag.wording import message, reason_text
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import is_deleting, labels_of, ref_of, uid
from gpuctl.k8s.overview import OVERVIEW_REF, decode_overview
from gpuctl.k8s.utilisation import UTILISATION_REF, PublishedUse, decode_utilisation, uses_by_ref
from gpuctl.model.decision import JobState
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunKey
from gpuctl.model.memo import Sweep
from gpuctl.model.overview import Overview, removal_ticket
from gpuctl.model.pod_problem import PodProblem
from gpuctl.model.state import Body, ClusterState, FinishedRun, RawObjects, Removal
from gpuctl.model.units import Instant
from gpuctl.model.utilisation import MOST_GAP_MS, ProjectUse
from gpuctl.model.workload_kind import WorkloadKind
from gpuctl.observe import ObserveCache, Unexplained, observe, problem_of_events, unexplained_runs, with_problems
from gpuctl.views.jobs import JobView, PodView
from gpuctl.views.nodes import READY
from gpuctl.views.running import views_now

WORKLOADS: tuple[Kind, ...] = (kinds.JOB, kinds.DEPLOYMENT, kinds.POD)
"""The kinds that jobs are made of."""

READ: tuple[Kind, ...] = (
    *WORKLOADS, kinds.REPLICA_SET, kinds.AUTOSCALER, *kinds.OF_OTHERS, kinds.NAMESPACE, kinds.NODE, kinds.INGRESS,
    kinds.CONFIG_MAP, kinds.RESOURCE_CLAIM, kinds.RESOURCE_SLICE,
)  # fmt: skip
"""The kinds that commands read. The other kinds that a cycle reads say nothing of jobs, projects or nodes."""

MOST_ASKED = 20
"""The most runs whose events one command reads."""

ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.TIMED_OUT, JobState.DELETED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A cluster as it is observed now. `unread`: the faults of kinds that could not be read, and are missing.

    `overview` and `utilisation`: what the leader publishes, if it does and they may be read.
    """

    state: ClusterState
    jobs: tuple[JobView, ...]
    unread: tuple[WorldFault, ...] = ()
    overview: Overview | None = None
    utilisation: PublishedUse | None = None

    @property
    def uses(self) -> Mapping[ProjectName, ProjectUse] | None:
        """How each project's GPUs are used; None where that is not known."""
        return None if self.utilisation is None else self.utilisation.projects

    def of_project(self, project: ProjectName | None) -> tuple[JobView, ...]:
        """The jobs of a project, or all jobs; the newest start first."""
        return tuple(job for job in self.jobs if project is None or job.id.project == project)

    def find(self, job: JobId | str) -> tuple[JobView, ...]:
        """The runs of one job by its id, or of all jobs with a name; the newest first."""
        return tuple(view for view in self.jobs if job in {view.id, view.id.name})

    def sweep(self, name: JobId | str) -> tuple[JobView, ...]:
        """The jobs of one sweep by its id, or of all sweeps with a name."""
        return tuple(
            view for view in self.jobs if view.sweep and name in {JobId(view.id.project, view.sweep), view.sweep}
        )

    def ended(self, job: JobId | str) -> FinishedRun | None:
        """The newest ended run of a job, according to the ledgers; its object may be gone."""
        runs = [run for ledger in self.state.ledgers.values() for run in ledger.finished.values()]
        return max((run for run in runs if job in {run.job, run.job.name}), key=lambda run: run.at_ms, default=None)


def is_in_deleted_namespace(current: Live, ref: ObjectRef) -> bool:
    """Whether an object is deleted with its namespace; also False where the namespace may not be read."""
    namespace = current.state.live.get(ObjectRef(*kinds.NAMESPACE, "", ref.namespace))
    return namespace is not None and is_deleting(namespace)


def in_the_way(current: Live, wanted: JobId | str) -> tuple[str, str] | None:
    """The reason that may prevent a job from existing, with its diagnostic code; None if none is found."""
    project, name = (wanted.project, wanted.name) if isinstance(wanted, JobId) else ("", wanted)
    for ref in sorted(current.state.foreign):
        if names.is_run_name(ref.name, name) and ref.namespace.endswith(project):
            return f"{ref}, which gpuctl did not create, has a name that its run may have", "GPU7057"
    for ref, body in current.state.live.items():
        is_its = bool(project) and labels_of(body).get(names.PROJECT_LABEL) == project
        if is_its and (ref.api_version, ref.kind) == kinds.NAMESPACE and is_deleting(body):
            return (
                f"namespace {ref.name} is being deleted, and nothing can be created there until it is gone",
                "GPU7023",
            )
    return None


def removal_in(cluster: Cluster, current: Live, wanted: JobId | str) -> tuple[JobId, Removal] | None:
    """When a job was removed from the declarations, from the ledgers or else from the overview; None where neither
    says.

    Of several jobs with the name, the one that was removed last. Cost: one request, where ledgers may not be read.
    """
    found = [
        (JobId(project, name), removal)
        for project, ledger in current.state.ledgers.items()
        for name, removal in ledger.removed.items()
        if wanted in {JobId(project, name), name}
    ]
    if not found and current.overview is not None and current.overview.removed:
        found = list(_published_removals(cluster, current.overview, wanted))
    return max(found, key=lambda each: each[1].at_ms, default=None)


def _published_removals(cluster: Cluster, overview: Overview, wanted: JobId | str) -> Iterator[tuple[JobId, Removal]]:
    try:
        quotas = {ref_of(body): uid(body) for body in cluster.list(kinds.RESOURCE_QUOTA).items}
    except WorldFault:
        return
    for project in overview.projects:
        job = wanted if isinstance(wanted, JobId) else JobId(project.name, wanted)
        quota = quotas.get(ObjectRef(*kinds.RESOURCE_QUOTA, project.namespace, names.QUOTA_NAME), "")
        removal = overview.removed.get(removal_ticket(job, quota)) if quota and job.project == project.name else None
        if removal is not None:
            yield job, removal


def live(cluster: Cluster, needed: Iterable[Kind] = WORKLOADS, *, or_published: bool = False) -> Live:
    """Read a cluster, one list a kind, all at once. Raises ClusterUnavailable; Forbidden for a kind in `needed`.

    `or_published`: no kind is needed where the overview can be read.
    """

    def listed(kind: Kind) -> tuple[Body, ...] | WorldFault:
        try:
            return cluster.list(kind).items
        except NotFound:
            return ()
        except Forbidden as fault:
            return fault
        except ClusterUnavailable as fault:
            if not kinds.is_of_others(kind):
                raise
            return unread_now(kind, fault)  # the server answers for its own kinds; what is missing is reported

    found = dict(zip(READ, cluster.each(listed, READ), strict=True))
    told = found[kinds.CONFIG_MAP]
    more = [row.kind for row in _declared_kinds(() if isinstance(told, WorldFault) else told)]
    found |= zip(more, cluster.each(listed, more), strict=True)
    refused = {kind: fault for kind, fault in found.items() if isinstance(fault, WorldFault)}
    current = live_of([body for each in found.values() if not isinstance(each, WorldFault) for body in each])
    for kind in needed:
        if kind in refused and not (or_published and current.overview is not None):
            raise refused[kind]
    return replace(current, unread=tuple(refused.values()))


def _declared_kinds(config_maps: Iterable[Body]) -> tuple[WorkloadKind, ...]:
    """The workload kinds that the Cluster declares, as the leader publishes them."""
    published = next((body for body in config_maps if ref_of(body) == OVERVIEW_REF), None)
    overview = None if published is None else decode_overview(published)
    return () if overview is None else tuple(row for row in overview.workload_kinds if kinds.is_declared(row.kind))


class AskedNow:
    """Implements the port Incidents for commands: it asks at once, about the first MOST_ASKED runs.

    Where events may not be read it reports nothing. Cost: nothing where all runs start; else a request an object.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def of(self, late: Sequence[Unexplained]) -> Mapping[RunKey, PodProblem]:
        """What the events of these runs' objects say now."""
        told: dict[RunKey, PodProblem] = {}
        for each in late[:MOST_ASKED]:
            try:
                found = problem_of_events(each, self._sessions.events(each.objects))
            except (Forbidden, ClusterUnavailable):
                break
            if found is not None:
                told[each.run] = found
        return told

    def has_news(self) -> bool:
        """Never: `of` has told everything."""
        return False


def with_events(current: Live, sessions: Sessions, now_ms: Instant) -> Live:
    """The same cluster, with the reasons why runs do not start that only events give."""
    told = AskedNow(sessions).of(unexplained_runs(current.state, now_ms))
    if not told:
        return current
    state = with_problems(current.state, told)
    return replace(current, state=state, jobs=views_now(state))


def live_of(bodies: Iterable[Body]) -> Live:
    """The cluster that these objects describe."""
    return observed(RawObjects(objects={ref_of(body): body for body in bodies}))


@dataclass(frozen=True, slots=True)
class LiveCache:
    """Caches for where a cluster is read again and again. They change no result."""

    observe: ObserveCache = field(default_factory=ObserveCache)
    views: Sweep[RunKey, JobView] = field(default_factory=Sweep)


def observed(raw: RawObjects, cache: LiveCache | None = None) -> Live:
    """The cluster that these objects describe. `cache`: of earlier calls."""
    cache = cache or LiveCache()
    published = raw.objects.get(OVERVIEW_REF)
    state = observe(raw, cache=cache.observe, declared_kinds=_declared_kinds(() if published is None else (published,)))
    overview = None if published is None else decode_overview(published)
    if overview is not None:
        state = _with_tolerated(state, overview)
    told = raw.objects.get(UTILISATION_REF)
    utilisation = None if told is None else decode_utilisation(told)
    return Live(state=state, jobs=views_now(state, cache.views), overview=overview, utilisation=utilisation)


def measured(current: Live, now_ms: Instant) -> Live:
    """The same with the measured use of the jobs' GPUs, if it is published and no older than MOST_GAP_MS; else
    without."""
    told = current.utilisation
    if told is None or not now_ms - MOST_GAP_MS <= told.at_ms <= now_ms + MOST_GAP_MS:
        return replace(current, utilisation=None)
    uses = uses_by_ref(told, current.state)
    jobs = tuple(
        view if use is None else replace(view, use=use, run=replace(view.run, idle_since_ms=use.idle_since_ms))
        for view, use in ((view, uses.get(view.ref)) for view in current.jobs)
    )
    return replace(current, jobs=jobs)


def _with_tolerated(state: ClusterState, overview: Overview) -> ClusterState:
    """Mark nodes usable that the reconciler uses in spite of a taint: only Git says which taints a pool tolerates."""
    tainted = {node.name for node in state.nodes if not node.usable}
    used = {node.name for node in overview.nodes if node.name in tainted and node.status == READY}
    if not used:
        return state
    return replace(
        state, nodes=tuple(replace(node, usable=True) if node.name in used else node for node in state.nodes)
    )


class Mirror:
    """A cluster that is read again and again: after the first time only changes are read.

    A kind that may not be read is left out for good, unless jobs are made of it. A kind that can't be read now, or any
    more, stays as it was before or is missing; `unread` names it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._unread: tuple[Forbidden, ...] = ()
        self._cache: ObjectCache | None = None
        self._observed = LiveCache()
        self._last: tuple[RawObjects, Live] | None = None

    def live(self) -> Live:
        """The cluster now; the same value while nothing changes. Raises ClusterUnavailable, Forbidden."""
        if self._cache is None:
            readable = self._readable()
            self._cache = ObjectCache(self._cluster, readable, keep=lambda body: body)
        self._cache.take_in()
        self._cache.read_also(_declared_kinds(self._cache.of_kind(kinds.CONFIG_MAP)))
        raw = self._cache.objects()
        if self._last is None or self._last[0] is not raw:
            unread = (*self._unread, *self._cache.faults.values())
            self._last = raw, replace(observed(raw, self._observed), unread=unread)
        return self._last[1]

    def _readable(self) -> list[Kind]:
        """The kinds that may be read and are served. Those of WORKLOADS must be: the cache finds out."""
        found = list(WORKLOADS)
        for kind in READ:
            if kind in WORKLOADS:
                continue
            try:
                self._cluster.list(kind)
            except NotFound:
                continue
            except Forbidden as fault:
                self._unread += (fault,)
                continue
            except ClusterUnavailable:
                if not kinds.is_of_others(kind):
                    raise
            found.append(kind)
        return found


class Unreachable(WorldFault):
    """The job has no container to connect to now."""


def pod_of(view: JobView, worker: int, *, started: bool = False) -> PodView:
    """The pod of one worker of a job's run; the newest if it was replaced. `started`: the pod must run now.

    Raises Unreachable, which says why there is no such pod.
    """
    workers = sorted(view.pods, key=lambda pod: pod.name)
    if view.type == "inference":
        mine = [pod for pod in workers if pod.live or not started][worker : worker + 1]
    else:
        mine = [pod for pod in workers if pod.worker == worker]
    if not mine:
        raise Unreachable("GPU7040", message("GPU7040", {"job": str(view.id), "why": _why_without(view, worker)}))
    newest = max(mine, key=lambda pod: (pod.live, pod.created_at_ms or 0, pod.name))
    if started and newest.phase != "Running":
        why = f"its pod {newest.name} is {newest.phase}"
        raise Unreachable("GPU7040", message("GPU7040", {"job": str(view.id), "why": why}))
    return newest


def _why_without(view: JobView, worker: int) -> str:
    if view.pods:
        last = max(pod.worker for pod in view.pods) if view.type != "inference" else len(view.pods) - 1
        return f"it has no worker {worker}, only {'0' if last == 0 else f'0 to {last}'}"
    if view.state in ENDED:
        return f"it has ended ({view.state.value}), and its pod is gone"
    if view.state is JobState.SUSPENDED:
        return "it is suspended in Git"
    if view.state is JobState.SCALED_TO_ZERO:
        return "it is scaled to zero, for there is no load"
    if view.placement is not None:
        return f"it is {view.state.value}, its pod is not created yet"
    reason = view.run.reason
    return f"it is waiting: {reason.code}: {reason_text(reason)}" if reason is not None else f"it is {view.state.value}"
