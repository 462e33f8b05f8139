"""The ports: what the verbs need of the outside world. Adapters implement them, and raise only the exceptions here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from gpuctl.diag.wording import message
from gpuctl.model.decision import Placement
from gpuctl.model.declared import NodePool
from gpuctl.model.history import Commit
from gpuctl.model.ids import JobId, NodeName, ObjectRef, Revision
from gpuctl.model.source import SourceTree
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant
from gpuctl.model.workload_kind import WorkloadKind

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class WorldFault(Exception):
    """Something outside failed. `code`: its catalogue code. The cycle reports it, loses nothing and is run again."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SourceUnavailable(WorldFault):
    """The repository, or a branch, path or commit of it, can't be read now."""


class ClusterUnavailable(WorldFault):
    """The API server did not answer, or answered that it can't now."""


class RightDoubted(ClusterUnavailable):
    """403 for what was allowed before: by a server that has just started, or a right was taken away a moment ago."""


class WrongTime(WorldFault):
    """The machine's clock differs from the API server's, so no decision is made by it."""


class Conflict(WorldFault):
    """409: the object has another version than the request names, or is another object."""


class Invalid(WorldFault):
    """422: the server refuses this body."""


OF_A_WEBHOOK = "failed calling webhook"
"""In the server's words where an admission webhook does not answer."""
OF_A_BUSY_QUOTA = "resource quota evaluation timed out"
"""In the server's words where it took too long to count what a namespace has."""


class WebhookAway(Invalid):
    """500: the server can't take this body now, because an admission webhook for such objects does not answer."""


class Forbidden(WorldFault):
    """403: the account may not do this, or a quota is used up."""


class Taken(WorldFault):
    """An object that gpuctl did not make has the name; that object was not changed."""

    CODE = "GPU7060"

    def __init__(self, ref: ObjectRef) -> None:
        super().__init__(self.CODE, message(self.CODE, {"object": str(ref)}))


class NotFound(WorldFault):
    """404: no such object or namespace."""


class Gone(WorldFault):
    """410: the watch can't continue from that resource version; list again."""


class ForgeFault(WorldFault):
    """The code host can't be reached, or refuses what was asked: GPU6203 to GPU6209."""


class Clock(Protocol):
    """The time."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class Reference(Protocol):
    """Another clock, to compare the machine's own with."""

    def now_ms(self) -> Instant | None:
        """The other clock's time; None if it is not known yet, or there is no other clock."""
        ...


class VirtualTime(Clock, Protocol):
    """A clock that stands still until it is moved."""

    def advance_to(self, now_ms: Instant) -> None:
        """Move the clock to that instant. Raises ValueError for one that has passed."""
        ...


class Source(Protocol):
    """A branch of a repository, or a folder. Used by one thread at a time, not always the loop's."""

    @property
    def branch(self) -> str:
        """The name of the followed branch; "HEAD" while it is not known."""
        ...

    def head(self) -> Revision:
        """Fetch, and return the newest commit. Raises SourceUnavailable."""
        ...

    def tree(self, revision: Revision) -> SourceTree:
        """The cluster's files at a commit. Raises SourceUnavailable when the commit or the path isn't there."""
        ...

    def follows(self, older: Revision, newer: Revision) -> bool:
        """Whether `newer` contains `older`; if not, the branch was rewritten. False for an unknown `older`."""
        ...

    def confirmations(self, since: Revision, until: Revision, within: str | None = None) -> frozenset[str]:
        """The values of `Gpuctl-Confirm:` trailers in the commits after `since` up to `until`.

        `within`: a folder below the cluster's; "" for the whole cluster with its policies. With it, only some commits
        count: the newest one that changed something there, if it is after `since`; the commits that it merged; and all
        commits after it.
        """
        ...

    def commits(self, revisions: Collection[Revision]) -> tuple[Commit, ...]:
        """The log entries of some commits; an unknown commit has none. Raises SourceUnavailable."""
        ...

    def verify(self, since: Collection[Revision], head: Revision) -> None:
        """Check the signatures of the commits in `head` that are in none of `since`, where signatures are required.

        Empty `since`: of `head` alone. Raises SourceUnavailable for a commit whose signature is not accepted.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectList:
    """A consistent list of one kind, and the version to watch from."""

    items: tuple[Body, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    body: Body


class Writable(Protocol):
    """The writing half of a Kubernetes API server, in raw JSON."""

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        """Server-side apply as field manager `gpuctl`, forced. Returns the object as stored.

        Metadata that others wrote is removed where it leaves no room for gpuctl's own.

        `is_new`: gpuctl has not seen the object. If an object with this name exists and others made it, it is not
        changed (`k8s.makers`); on a run's object, no field that others own is changed.

        Raises Conflict (the namespace terminates, uid or resourceVersion in the body do not match, or others own fields
        of the new object), Taken, Invalid, Forbidden, NotFound (no such namespace).
        """
        ...

    def check(self, body: Body) -> None:
        """Apply as a dry run that changes nothing: raises what `apply` would raise now, as far as the server can
        tell."""
        ...

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        """Delete exactly that object. Its dependents are deleted in the background, or before it where finalizers of
        others keep a Job or Deployment. Raises Conflict, NotFound.

        Returns the object as it is while it ends, if something must happen before it is gone; else None.
        """
        ...

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        """Do the work for every item, several at once, up to this server's limit. Returns the results in order.

        The work calls the other methods of this port. The items are independent.
        """
        ...


class Cluster(Writable, Protocol):
    """A Kubernetes API server, in raw JSON. `kind` is (apiVersion, kind)."""

    def list(self, kind: tuple[str, str]) -> ObjectList:
        """The objects of a kind that gpuctl reads (k8s.names.SCOPES). Raises ClusterUnavailable, Forbidden."""
        ...

    def watch(self, kind: tuple[str, str], resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        """The events after a version. Waits up to the timeout for the first. Raises Gone."""
        ...


class Stop(Protocol):
    """Tells the loop when to end, and is its only way to wait."""

    def requested(self) -> bool:
        """Whether the loop should end."""
        ...

    def wait(self, duration_ms: DurationMs) -> bool:
        """Wait that long, or until the loop should end or the cluster has changes. Returns whether the loop should
        end."""
        ...


class Underway(Protocol[R_co]):
    """Work that has begun."""

    def done(self) -> bool:
        """Whether the work has ended."""
        ...

    def result(self) -> R_co:
        """The result; raises what the work raised. Call it once `done`."""
        ...


class Background(Protocol):
    """Does work in the background, one piece at a time. The work must not touch what the loop is changing."""

    def start(self, work: Callable[[], R]) -> Underway[R]:
        """Begin the work and return at once. The loop's wait ends when the work does."""
        ...


class Leadership(Protocol):
    """Whether this process is the leader, which alone may write. The adapter renews the lease by itself."""

    def held(self) -> bool:
        """Whether this process holds the lease, by its monotonic clock, with a margin. Asked before each write."""
        ...

    def holder(self) -> str:
        """The identity of the process that holds the lease, as far as is known; "" if none does."""
        ...

    def term(self) -> int:
        """The number of the term, as far as is known. It changes each time the lease changes hands."""
        ...

    def fault(self) -> WorldFault | None:
        """Why the last attempt to acquire or renew the lease failed; None if it did not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An event to record for an object, for people who look at it. `reason` is one word, `message` a sentence."""

    regarding: ObjectRef
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    at_ms: Instant


class Recorder(Protocol):
    """Records events of objects, for people to read. Nothing depends on it."""

    def record(self, notes: Sequence[Note]) -> None:
        """Record the notes soon, as far as possible. Returns at once, never raises. Repeated notes are recorded
        seldom."""
        ...


class Machines(Protocol):
    """Provides nodes: the embedded cluster creates the declared ones, a real cluster has its own machines."""

    def provide(self, pools: Sequence[NodePool]) -> None:
        """Create the declared nodes, where gpuctl provides them."""
        ...

    def define(self, declared: Sequence[WorkloadKind]) -> None:
        """Make the cluster serve these kinds, where gpuctl plays their controllers."""
        ...


class Progress(Protocol):
    """Makes the events happen that are due in a cluster without gpuctl."""

    def settle(self) -> None:
        """Make everything happen that is due by now in controllers, the scheduler and the nodes."""
        ...

    def next_event_ms(self) -> Instant | None:
        """The time of the next event (a pod ends, a deadline passes, a pod is gone); None if not known."""
        ...


class World(Progress, Protocol):
    """Changes a cluster in virtual time, as a scenario says. Only the embedded cluster implements it."""

    def run_for(self, job: JobId, duration_ms: DurationMs) -> None:
        """Make the job's pods succeed after they have run this long in total."""
        ...

    def checkpoint(self, job: JobId, every_ms: DurationMs | None) -> None:
        """Set how often the job's pods checkpoint: after a pause they go on from the last multiple of `every_ms` since
        their start; None: from where they were."""
        ...

    def deal(self, job: JobId, placement: Placement | None) -> None:
        """Schedule the job's pods where the placement has them, worker by worker, if they fit there; None: as
        kube-scheduler chooses."""
        ...

    def finish(self, job: JobId, exit_code: int) -> None:
        """End the job's running pods now."""
        ...

    def set_node_ready(self, node: NodeName, *, ready: bool) -> None:
        """Lose a node, or make it ready again."""
        ...

    def cordon(self, node: NodeName, *, cordoned: bool) -> None:
        """Cordon a node, or uncordon it."""
        ...

    def set_idle(self, job: JobId, since_ms: Instant | None) -> None:
        """Report the job's GPUs as unused since then; None: in use."""
        ...

    def set_stuck(self, job: JobId, reason: str | None) -> None:
        """Make the job's pods that do not run yet wait for this reason of a kubelet, such as ImagePullBackOff; None:
        start them."""
        ...

    def set_load(self, job: JobId, load_milli: int) -> None:
        """Set the load of a service: the metric's sum over all its workers, in thousandths."""
        ...

    def set_strangers(self, node: NodeName, gpus: int) -> None:
        """Make foreign pods request that many GPUs of a node. They get free GPUs, and GPUs that become free before
        gpuctl does."""
        ...


class Workshop(Protocol):
    """A repository that the demo writes itself."""

    def write(self, path: str, content: bytes) -> None:
        """Write a file for the next commit."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file with the next commit."""
        ...

    def commit(self, text: str, at_ms: Instant) -> Revision:
        """Commit what was written and removed, with that time as the commit's date. Raises SourceUnavailable."""
        ...
