"""Which objects run a job's pods, and to which run an object belongs."""

from __future__ import annotations

from gpuctl.k8s import kinds, names
from gpuctl.k8s.bounds import MOST_WORKERS, whole_number
from gpuctl.k8s.kinds import Kind
from gpuctl.k8s.objects import is_deleting, items, labels_of, mapping, number, text, texts
from gpuctl.k8s.workload_table import BUILT_IN, Rows
from gpuctl.model.ids import JobId, NodeName, ObjectRef, ProjectName, RunDigest, RunKey
from gpuctl.model.job import Job, JobType
from gpuctl.model.state import Body

_LONGEST_INDEXES = 8 * MOST_WORKERS
_OF_IMAGES = (kinds.JOB, kinds.DEPLOYMENT)
"""The kinds of jobs without a manifest."""
_OF_SERVER = frozenset({"foregroundDeletion", "orphan"})
"""Finalizers that ask the garbage collector to handle dependents first."""
_WORKLOADS = frozenset({*_OF_IMAGES, *BUILT_IN})


def workloads(rows: Rows) -> tuple[Kind, ...]:
    """The kinds that run jobs' pods in a cluster, sorted."""
    return tuple(sorted({*_OF_IMAGES, *rows}))


def is_workload(ref: ObjectRef) -> bool:
    """Whether the object runs a job's pods."""
    kind = (ref.api_version, ref.kind)
    return kind in _WORKLOADS or kinds.is_declared(kind)


def is_of_manifest(ref: ObjectRef) -> bool:
    """Whether it is the object of another controller that a job is."""
    return is_workload(ref) and (ref.api_version, ref.kind) not in _OF_IMAGES


def holders(body: Body) -> list[str]:
    """The finalizers of others that keep a deleted object, sorted. The garbage collector removes its own itself."""
    return sorted(set(texts(body, "metadata", "finalizers")) - _OF_SERVER)


def keeps_its_pods(ref: ObjectRef, body: Body) -> bool:
    """Whether the pods of a deleted Job or Deployment go on as long as finalizers of others keep it. Its controller
    does not stop them then, and the garbage collector, which was asked to delete them after it, does not either."""
    is_asked = _OF_SERVER.isdisjoint(texts(body, "metadata", "finalizers"))
    return is_asked and is_deleting(body) and bool(holders(body)) and (ref.api_version, ref.kind) in _OF_IMAGES


def kind_of(job: Job) -> Kind:
    """The kind of the object of a job's run."""
    manifest = job.container.manifest
    if manifest is not None:
        return manifest.api_version, manifest.kind
    return kinds.DEPLOYMENT if job.type is JobType.INFERENCE else kinds.JOB


def workers_of(body: Body) -> int:
    """How many pods a released Job or Deployment should have."""
    field = "replicas" if text(body, "kind") == kinds.DEPLOYMENT[1] else "parallelism"
    return number(body, "spec", field, default=1)


def named_nodes(body: Body) -> tuple[NodeName, ...]:
    """The nodes that the pods of a workload may go to, if its template names them in gpuctl's form."""
    required = ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    affinity = mapping(body, "spec", "template", "spec", "affinity", *required)
    fields = [field for term in items(affinity, "nodeSelectorTerms") for field in items(term, "matchFields")]
    return tuple(NodeName(str(value)) for field in fields for value in field.get("values") or ())


def completed_indexes(job: Body) -> set[int]:
    """The indexes of an Indexed Job's workers that have succeeded."""
    return indexes_of(text(job, "status", "completedIndexes"))


def failed_indexes(job: Body) -> set[int]:
    """The indexes of an Indexed Job's workers that have failed more often than the limit for each allows."""
    return indexes_of(text(job, "status", "failedIndexes"))


def indexes_of(told: str) -> set[int]:
    """The indexes in a text such as "0,2-4".

    Of a text that no Job can have, only a part is read. Cost: O(MOST_WORKERS), however long the text is.
    """
    found: set[int] = set()
    for part in told[:_LONGEST_INDEXES].split(","):
        first, _, last = part.partition("-")
        start, end = whole_number(first, MOST_WORKERS), whole_number(last or first, MOST_WORKERS)
        if start is not None and end is not None and start not in found:
            found.update(range(start, end + 1))
    return found


def run_of(body: Body, cluster: str = "") -> RunKey | None:
    """The run that an object's labels name; None if it is not gpuctl's, or of another cluster than `cluster`.

    Without a cluster, the runs of all clusters that share the API server count.
    """
    labels = labels_of(body)
    project, job, digest = (labels.get(key) for key in (names.PROJECT_LABEL, names.JOB_LABEL, names.RUN_LABEL))
    if labels.get(names.MANAGED_BY_LABEL) != names.MANAGED_BY or not (project and job and digest):
        return None
    if cluster and labels.get(names.CLUSTER_LABEL) != cluster:
        return None
    return JobId(ProjectName(str(project)), str(job)), RunDigest(str(digest))


def job_of(body: Body) -> JobId | None:
    """The job that an object's labels name, for an object of one of its runs or of the job itself; else None."""
    labels = labels_of(body)
    project, job = (labels.get(key) for key in (names.PROJECT_LABEL, names.JOB_LABEL))
    return JobId(ProjectName(str(project)), str(job)) if project and job else None


def own_run(ref: ObjectRef, body: Body, cluster: str = "") -> RunKey | None:
    """The run whose own object this is; None for anything else, also for a copy with a run's labels and another name.

    The labels in its pod template are preferred to its own: a Job's template can't be changed by hand.
    """
    if not is_workload(ref):
        return None
    run = run_of(mapping(body, "spec", "template"), cluster) or run_of(body, cluster)
    return run if run is not None and ref.name == names.run_name(run[0].name, run[1]) else None
