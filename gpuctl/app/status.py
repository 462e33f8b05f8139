"""Keeps the reconciler's state as one value: the leader publishes it, and every replica answers with it.

It is written to the cluster when something other than a time has changed, at most every PUBLISH_MS, and again every
REPEAT_MS: the leader does not watch the object, so one that was deleted or edited by hand comes back. A standby replica
answers with what the leader published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from gpuctl import __version__
from gpuctl.app.cycle import CycleReport
from gpuctl.app.metrics import Meters, ToldStatus
from gpuctl.app.notices import UNNOTIFIED, Notifier, Told, notices_of, told_by
from gpuctl.app.ports import Clock, Cluster, Forbidden, NotFound, Reference, WorldFault
from gpuctl.app.predictions import MOST_NAMED, Checked, Result, told
from gpuctl.app.rejections import is_of_tenant, that_hold
from gpuctl.app.report import Entry, Level
from gpuctl.app.revisions import Desired
from gpuctl.app.timekeeping import NO_REFERENCE
from gpuctl.diag.wording import message
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import mapping, ref_of, text
from gpuctl.k8s.timestamps import format_timestamp, parse_timestamp
from gpuctl.model.change import OutcomeStatus
from gpuctl.model.ids import NO_REVISION, ObjectRef, Revision
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant
from gpuctl.views.status import MOST_BYTES, NO_LEADER, StatusFacts, document, status_of
from gpuctl.views.status_form import PredictionForm, ProblemForm, ReplicaForm, StatusV1, parsed

PUBLISH_MS: DurationMs = 2_000
"""The shortest time between two writes of the object."""
REPEAT_MS: DurationMs = 300_000
"""The longest time between two writes, as for the overview: its times are renewed, and a deleted object comes back."""
LEADERLESS_MS: DurationMs = 60_000
"""A Lease that was not renewed for this long has no leader: a leader renews it about every two seconds."""
MOST_PREDICTIONS = 5
REF = ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, names.STATUS_NAME)


class Publisher(Protocol):
    """Publishes the status in the cluster. Nothing depends on it."""

    def publish(self, body: Body) -> None:
        """Write the object soon; a newer one replaces one that still waits. Returns at once, never raises."""
        ...

    def latest(self) -> Body | None:
        """The object as a standby replica last read it, some seconds ago; None if it is not known."""
        ...

    def now(self) -> Body | None:
        """The object as it is now, by one request; None if it does not exist or can't be read. Never raises."""
        ...


class Unpublished:
    """Implements the port Publisher where nothing is published."""

    def publish(self, body: Body) -> None:
        """Drop it."""

    def latest(self) -> None:
        """None."""

    def now(self) -> None:
        """None."""


UNPUBLISHED = Unpublished()


class Direct:
    """Implements the port Publisher on a cluster in this process, which always answers."""

    def __init__(self, cluster: Cluster, ref: ObjectRef = REF) -> None:
        self._cluster = cluster
        self._ref = ref

    def publish(self, body: Body) -> None:
        """Write it now."""
        try:
            self._cluster.apply(body)
        except WorldFault:
            return  # gpuctl-system may not exist yet; the next change is written

    def latest(self) -> Body | None:
        """The object as it is now."""
        return self.now()

    def now(self) -> Body | None:
        """The object as it is now."""
        return _one(self._cluster.list(kinds.CONFIG_MAP).items, self._ref)


class StatusBoard:
    """Notes what happens in the loop, and publishes the status when it may have changed. Keeps the last few
    predictions."""

    def __init__(
        self, publisher: Publisher, meters: Meters, clock: Clock, identity: str, notifier: Notifier = UNNOTIFIED
    ) -> None:
        self._publisher = publisher
        self._notifier = notifier
        self._meters = meters
        self._clock = clock
        self._identity = identity
        self.begin()

    def begin(self) -> None:
        """Start over: another replica has led."""
        self._facts = StatusFacts(version=__version__, now_ms=0, replica=self._replica("leader", self._identity))
        self._next = NO_REVISION
        self._published: StatusV1 | None = None
        self._published_ms: Instant = 0
        self._told_ms: Instant | None = None
        self._changed = True
        self._stood: tuple[str, Body | None] | None = None
        self._told: Told | None = None
        """What receivers outside were told; None: this leader does not know it yet."""

    def fetched(self, *, well: bool, branch: str, head: Revision) -> None:
        """Git was fetched. `head` empty: the newest commit is unchanged."""
        facts = replace(self._facts, branch=branch, head=head or self._facts.head)
        self._facts = replace(facts, fetched_ms=self._clock.now_ms()) if well else facts
        self._changed = True

    def taking_up(self, revision: Revision) -> None:
        """A commit is enforced from now on."""
        self._next = revision

    def cycled(self, report: CycleReport | None, desired: Desired) -> None:
        """Cycles have ended. `report` None: they could not be run."""
        self._meters.enforced(well=_went_well(report))
        facts = replace(self._facts, kept_back=desired.kept_back, diagnostics=desired.diagnostics)
        self._facts = facts = replace(facts, head_files=desired.head_files, declared=desired.declared)
        if report is not None and _went_well(report):
            facts = replace(facts, cycled_ms=report.at_ms, nodes=report.state.nodes, frozen=report.state.frozen)
            if report.calm and not report.state.all_frozen and self._next and self._next != facts.applied:
                facts = replace(facts, applied=self._next, applied_ms=report.at_ms)
        self._facts, self._changed = facts, True

    def predicted(self, checked: Checked) -> None:
        """A prediction has ended."""
        if checked.result not in {Result.EXPLAINED, Result.BUG}:
            return
        made = PredictionForm(
            commit=checked.revision,
            at=format_timestamp(checked.at_ms),
            result="bug" if checked.result is Result.BUG else "explained",
            differences=[told(each) for each in checked.differences[:MOST_NAMED]],
        )
        kept = (made, *self._facts.predictions)[:MOST_PREDICTIONS]
        self._facts, self._changed = replace(self._facts, predictions=kept), True

    def tell(self, standing: Callable[[], Iterable[Entry]]) -> None:
        """As the leader, publish the status if it may have changed."""
        now_ms = self._clock.now_ms()
        since_ms = None if self._told_ms is None else now_ms - self._told_ms
        if not self._changed or (since_ms is not None and 0 <= since_ms < PUBLISH_MS):
            return
        self._changed, self._told_ms = False, now_ms
        problems = [_problem(entry) for entry in standing() if entry.level is not Level.INFO]
        status = status_of(replace(self._facts, now_ms=now_ms, standing=problems))
        self._measure(status)
        if self._published is None or _timeless(status) != _timeless(self._published) or self._is_old(now_ms):
            before = self._told_before()
            self._published, self._published_ms = status, now_ms
            self._publisher.publish(body_of(document(status)))
            self._notify(before, status)

    def _is_old(self, now_ms: Instant) -> bool:
        return not 0 <= now_ms - self._published_ms < REPEAT_MS

    def _told_before(self) -> Told:
        """What receivers outside were told. A new leader reads it from the status that the last one published."""
        if self._told is None and self._notifier is not UNNOTIFIED:
            try:
                self._told = told_by(parsed(_content(self._publisher.now())))
            except ValueError:
                self._told = Told()
        return self._told or Told()

    def _notify(self, before: Told, status: StatusV1) -> None:
        """Notify receivers outside of changes, once a cycle has shown the state."""
        if self._facts.cycled_ms is None or self._notifier is UNNOTIFIED:
            return
        notices, self._told = notices_of(before, status)
        commit = self._told.commit if self._told.commit != before.commit else None
        if notices or commit is not None:
            self._notifier.notify(notices, commit)

    def stand_by(self, leader: str) -> None:
        """Answer, as a replica in standby, with the status that the leader published."""
        self._meters.enforced(well=True)
        latest = self._publisher.latest()
        if self._stood == (leader, latest):
            return
        self._stood = (leader, latest)
        replica = self._replica("standby", leader)
        try:
            published = parsed(_content(latest)).model_copy(update={"replica": replica})
        except ValueError:
            facts = StatusFacts(version=__version__, now_ms=self._clock.now_ms(), replica=replica)
            published = status_of(facts)
        if not leader and published.ready:
            published = published.model_copy(update={"ready": False, "why_not": [NO_LEADER]})
        self._measure(published)

    def _measure(self, status: StatusV1) -> None:
        facts = self._facts
        self._meters.status(
            ToldStatus(
                document=document(status),
                ready=status.ready,
                fetched_ms=facts.fetched_ms,
                cycled_ms=facts.cycled_ms,
                frozen=tuple(facts.frozen),
            )
        )

    def _replica(self, role: Literal["leader", "standby"], leader: str) -> ReplicaForm:
        return ReplicaForm(identity=self._identity, role=role, leader=leader)


def _went_well(report: CycleReport | None) -> bool:
    """Whether something could be applied, or nothing had to be applied except writes that tenants can cause to be
    refused."""
    if report is None:
        return False
    outcomes = {each.status for each in report.result.outcomes if not each.refused}
    refused = any(not is_of_tenant(each.ref, each.error) for each in that_hold(report.rejected).values())
    return OutcomeStatus.APPLIED in outcomes or not (refused or OutcomeStatus.FAILED in outcomes)


def _problem(entry: Entry) -> ProblemForm:
    facts = {key: value if isinstance(value, str) else str(value) for key, value in entry.fields.items()}
    return ProblemForm(
        event=entry.event,
        level="error" if entry.level is Level.ERROR else "warning",
        code=facts.get("code", ""),
        message=facts.get("message") or " ".join(f"{key}={value}" for key, value in facts.items()),
        place=facts.get("place") or facts.get("object", ""),
        help=facts.get("help", ""),
    )


def _timeless(status: StatusV1) -> StatusV1:
    """The status without the values that change by themselves."""
    git = status.git.model_copy(update={"last_good_fetch": None})
    cycle = status.cycle.model_copy(update={"last_good_cycle": None})
    return status.model_copy(update={"written_at": "", "git": git, "cycle": cycle})


def body_of(content: bytes) -> Body:
    """The object that is published."""
    note = "The state of gpuctl, as the leader wrote it; gpuctl status shows it."
    return {
        "apiVersion": REF.api_version,
        "kind": REF.kind,
        "metadata": {
            "name": REF.name,
            "namespace": REF.namespace,
            "labels": {"app.kubernetes.io/name": "gpuctl"},
            "annotations": {"kubernetes.io/description": note},
        },
        "data": {names.STATUS_KEY: content.decode()},
    }


def _content(body: Body | None) -> bytes:
    found = b"" if body is None else text(body, "data", names.STATUS_KEY).encode()
    return found if len(found) <= 2 * MOST_BYTES else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The status as read from a cluster. `now_ms`: the time by the API server's clock if known, else the machine's.
    `renewed_ms`: when the Lease was last renewed; None if not known, as on the embedded cluster, which has none."""

    status: StatusV1
    now_ms: Instant
    renewed_ms: Instant | None = None


def read_status(cluster: Cluster, clock: Clock, reference: Reference = NO_REFERENCE) -> Published:
    """Read what the leader published. If the leader is gone, the status is not ready. That is judged by the API
    server's clock: a leader acts by no other, and the clock of the asking machine may be minutes off.

    Raises WorldFault: GPU7080 where nothing is published, GPU7081 where the object is no status, and what `list`
    raises.
    """
    body = _one(cluster.list(kinds.CONFIG_MAP).items, REF)
    if body is None:
        raise WorldFault("GPU7080", message("GPU7080", {"name": f"{REF.namespace}/{REF.name}"}))
    try:
        status = parsed(_content(body))
    except ValueError as error:
        told_why = {"name": f"{REF.namespace}/{REF.name}", "why": str(error)}
        raise WorldFault("GPU7081", message("GPU7081", told_why)) from error
    lease = _lease(cluster)
    there_ms = reference.now_ms()
    now_ms = clock.now_ms() if there_ms is None else there_ms
    renewed_ms = _renewed_ms(lease)
    is_released = lease is not None and not text(lease, "spec", "holderIdentity")
    if is_released or (renewed_ms is not None and now_ms - renewed_ms > LEADERLESS_MS):
        why_not = [NO_LEADER, *status.why_not]
        status = status.model_copy(update={"ready": False, "why_not": why_not})
    return Published(status=status, now_ms=now_ms, renewed_ms=renewed_ms)


def _lease(cluster: Cluster) -> Body | None:
    """The Lease by which a replica leads; None if it does not exist or may not be read."""
    try:
        found = cluster.list(kinds.LEASE).items
    except (NotFound, Forbidden):
        return None
    return _one(found, ObjectRef(*kinds.LEASE, names.SYSTEM_NAMESPACE, names.LEASE_NAME))


def _renewed_ms(lease: Body | None) -> Instant | None:
    try:
        return parse_timestamp(text(mapping(lease or {}, "spec"), "renewTime"))
    except ValueError:
        return None


def _one(bodies: Sequence[Body], ref: ObjectRef) -> Body | None:
    return next((body for body in bodies if ref_of(body) == ref), None)
