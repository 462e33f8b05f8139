"""What the verbs need of the outside world. Adapters implement these; exceptions here are the only ones they raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from gpuctl.model.declared import NodePool
from gpuctl.model.ids import JobId, NodeName, ObjectRef, Revision
from gpuctl.model.source import SourceTree
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class WorldFault(Exception):
    """Something outside failed. `code` is its catalogue code; the cycle reports it, loses nothing and tries again."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SourceUnavailable(WorldFault):
    """The repository, the branch, the path or a commit of it can't be read now."""


class ClusterUnavailable(WorldFault):
    """The API server did not answer, or said it can't now."""


class WrongTime(WorldFault):
    """The machine's clock is not believed: nothing is decided by it."""


class Conflict(WorldFault):
    """409: the object is not at the version, or not the object, that was named."""


class Invalid(WorldFault):
    """422: the server refuses this body."""


class Forbidden(WorldFault):
    """403: not allowed, or a quota is used up."""


class NotFound(WorldFault):
    """404: no such object or namespace."""


class Gone(WorldFault):
    """410: the watch can't continue from that resource version; list again."""


class Clock(Protocol):
    """The time."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class Reference(Protocol):
    """Another clock, to compare the machine's own with."""

    def now_ms(self) -> Instant | None:
        """What time it is there, as far as is known by now; None: it has not been heard yet, or there is none."""
        ...


class VirtualTime(Clock, Protocol):
    """A clock that stands still until it is moved."""

    def advance_to(self, now_ms: Instant) -> None:
        """Move on to that instant; ValueError for one that has passed."""
        ...


class Source(Protocol):
    """A branch of a repository, or a folder. Used by one thread at a time, which need not be the loop's."""

    def head(self) -> Revision:
        """The newest commit, fetched now. Raises SourceUnavailable."""
        ...

    def tree(self, revision: Revision) -> SourceTree:
        """The cluster's files at a commit. Raises SourceUnavailable when the commit or the path isn't there."""
        ...

    def follows(self, older: Revision, newer: Revision) -> bool:
        """False when `newer` does not contain `older`: the branch was rewritten. An unknown `older` is rewritten."""
        ...

    def confirmations(self, since: Revision, until: Revision) -> frozenset[str]:
        """The values of `Gpuctl-Confirm:` trailers in the commits after `since` up to `until`."""
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

    def apply(self, body: Body) -> Body:
        """Server-side apply as field manager `gpuctl`, forced. Returns the object as stored.

        Raises Conflict (the namespace terminates, uid or resourceVersion in the body do not match), Invalid,
        Forbidden, NotFound (no such namespace).
        """
        ...

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        """Delete exactly that object, dependents in the background. Raises Conflict, NotFound.

        Returns the object as it is while it ends, when something has to happen before it is gone; else None.
        """
        ...

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        """Do the work for every item, as many at once as this server is given; results in the items' order.

        The work calls this port's other methods; the items do not depend on each other.
        """
        ...


class Cluster(Writable, Protocol):
    """A Kubernetes API server, in raw JSON. `kind` is (apiVersion, kind)."""

    def list(self, kind: tuple[str, str]) -> ObjectList:
        """The objects of a kind that gpuctl reads (k8s.names.SCOPES). Raises ClusterUnavailable, Forbidden."""
        ...

    def watch(self, kind: tuple[str, str], resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        """What happened after a version; waits up to the timeout for the first event. Raises Gone."""
        ...


class Stop(Protocol):
    """Whether to end, and the loop's only way to wait."""

    def requested(self) -> bool:
        """Whether the loop is to end."""
        ...

    def wait(self, duration_ms: DurationMs) -> bool:
        """Wait that long, less if the loop is to end or the cluster has news. True when it is to end."""
        ...


class Underway(Protocol[R_co]):
    """Work that was begun."""

    def done(self) -> bool:
        """Whether it has ended."""
        ...

    def result(self) -> R_co:
        """What it came to, or raises what it raised. To be asked for once it is done."""
        ...


class Background(Protocol):
    """Does work beside the loop, one piece at a time. The work must not touch what the loop is changing."""

    def start(self, work: Callable[[], R]) -> Underway[R]:
        """Begin it; returns before it is done, and the loop's wait ends when it is."""
        ...


class Leadership(Protocol):
    """Whether this process is the one that may write. Renewing it is the adapter's own business."""

    def held(self) -> bool:
        """Whether the lease is ours, by the machine's monotonic clock, with a margin; asked before each write."""
        ...

    def holder(self) -> str:
        """Who holds it as far as is known; "" when nobody does."""
        ...

    def term(self) -> int:
        """Which term it is as far as is known: another number each time that it changes hands."""
        ...

    def fault(self) -> WorldFault | None:
        """Why it could not be sought or renewed when that was last tried; None when it could."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something to be told on an object, for people who look at it. `reason` is one word, `message` a sentence."""

    regarding: ObjectRef
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    at_ms: Instant


class Recorder(Protocol):
    """Tells people, beside the objects, what happened to them. Nothing depends on it."""

    def record(self, notes: Sequence[Note]) -> None:
        """Tell, as far as can be told soon; returns at once and raises nothing. What is repeated is told seldom."""
        ...


class Machines(Protocol):
    """Who brings nodes into being: the embedded cluster has the declared inventory, a real one its own machines."""

    def provide(self, pools: Sequence[NodePool]) -> None:
        """Make the declared nodes be there, where that is ours to do."""
        ...


class Progress(Protocol):
    """How a cluster moves on without gpuctl."""

    def settle(self) -> None:
        """Let everything happen that is due by now: controllers, the scheduler, the nodes."""
        ...

    def next_event_ms(self) -> Instant | None:
        """When something is next due by itself (a pod ends, a deadline passes, a pod is gone), if that is known."""
        ...


class World(Progress, Protocol):
    """What a scenario may do to a cluster in virtual time. Only the embedded cluster has this."""

    def run_for(self, job: JobId, duration_ms: DurationMs) -> None:
        """Make the job's pods succeed after running that long in all."""
        ...

    def finish(self, job: JobId, exit_code: int) -> None:
        """End the job's running pods now."""
        ...

    def set_node_ready(self, node: NodeName, *, ready: bool) -> None:
        """Lose a node, or bring it back."""
        ...

    def cordon(self, node: NodeName, *, cordoned: bool) -> None:
        """Let a node take no new pods, or take them again."""
        ...

    def set_idle(self, job: JobId, since_ms: Instant | None) -> None:
        """Report the job's GPUs as unused since then; None: in use."""
        ...

    def set_strangers(self, node: NodeName, gpus: int) -> None:
        """Have pods that are not gpuctl's ask for so many GPUs of a node: they get what is free, and what comes free
        before gpuctl has it."""
        ...


class Workshop(Protocol):
    """A repository that a demonstration writes itself."""

    def write(self, path: str, content: bytes) -> None:
        """Write a file for the next commit."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file with the next commit."""
        ...

    def commit(self, text: str, at_ms: Instant) -> Revision:
        """Commit what was written and removed, as if it were that time. Raises SourceUnavailable."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """Which part of a container's log is wanted. `tail`: so many lines from its end, None: all of it.

    `previous`: of the container before the one there now; `since_ms`: only what is not older.
    """

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since_ms: DurationMs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """A command to run in a container. `stdin`: what a person types goes to it; `tty`: it has a terminal."""

    command: tuple[str, ...]
    stdin: bool = False
    tty: bool = False


class Console(Protocol):
    """A person's end of a session."""

    def fileno(self) -> int:
        """What becomes readable when something was typed."""
        ...

    def read(self) -> bytes:
        """What was typed; nothing at its end."""
        ...

    def write(self, data: bytes, *, error: bool = False) -> None:
        """Show it at once; errors apart from the rest."""
        ...

    def size(self) -> tuple[int, int] | None:
        """Columns and rows; None where there is no terminal."""
        ...


class Sessions(Protocol):
    """What a person may have of a pod's container, and of what was noted of it."""

    def logs(self, pod: ObjectRef, request: LogRequest) -> Iterator[bytes]:
        """The log as it comes. Raises ClusterUnavailable, Forbidden."""
        ...

    def run(self, pod: ObjectRef, request: CommandRequest, console: Console) -> int:
        """Run a command there until it ends; its exit code. Raises ClusterUnavailable, Forbidden."""
        ...

    def events(self, objects: Sequence[ObjectRef]) -> Sequence[Body]:
        """The events of objects, in no order. Raises ClusterUnavailable, Forbidden."""
        ...
