"""Leader election as a pure state machine over one Lease: what one process has seen of it, and what to write next.

Invariant: two processes never lead at once. Each measures only differences of its own monotonic clock, so neither the
clocks' times matter nor those in the Lease:

- the leader counts from before it sent the request that renewed the Lease, and stops at the renew deadline;
- a candidate counts from after the answer in which it first saw a version, and waits the whole duration.

So between the last moment of one leader and the first of the next lies `duration - deadline`: the time that a request
sent in the last moment may still take. Writes name the resource version they are based on, so one of two concurrent
writes fails.

A Lease that does not exist, or is not the one seen before, may have been deleted while it had a leader, which does not
know it yet; and more than once since the last read. So a candidate that finds none creates one in its own name at once,
which the other candidates see and can't create again. But it leads only after the whole duration, if the Lease was not
deleted in that time.

A shorter wait would not be safe. The leader of the deleted Lease learns of it at its next renewal, some two seconds
later, but only if it runs and is connected. If it is stopped, or its network is slow, it may write up to the deadline
after a renewal that came just before the deletion, and its last request may take the rest of the duration. The
successful creation proves that there is no Lease now, but not since when. Nor is there other evidence that there never
was one: even without any ledger, another process may have become leader a moment ago and be about to write its first. A
Lease that exists beforehand costs no wait: `gpuctl install` creates an empty one, which the first process to read it
acquires at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.kinds import LEASE
from gpuctl.k8s.objects import mapping, number, resource_version, text, uid
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a lease lasts, how long its holder acts after the last renewal, and how often each process tries."""

    duration_ms: DurationMs = 15_000
    deadline_ms: DurationMs = 10_000
    retry_ms: DurationMs = 2_000
    request_ms: DurationMs = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """What one process knows. Instants are of the process's monotonic clock.

    `lease`: the version last seen (None: there was none), first seen at `seen_ms` (None: nothing was read yet).
    `held_until_ms`: when the process's own term ends by itself; None while it has none. `others_until_ms`: until then a
    deleted Lease may still have a leader. `last_term`: the highest ever seen.
    """

    identity: str
    lease: Body | None = None
    seen_ms: Instant | None = None
    held_until_ms: Instant | None = None
    others_until_ms: Instant | None = None
    last_term: int = 0

    def holds(self, now_ms: Instant) -> bool:
        """Whether the process may write now."""
        if self.others_until_ms is not None and now_ms < self.others_until_ms:
            return False
        return self.held_until_ms is not None and now_ms < self.held_until_ms

    @property
    def holder(self) -> str:
        """The identity of the holder in the version last seen; "" if there is none."""
        return text(self.lease or {}, "spec", "holderIdentity")

    @property
    def term(self) -> int:
        """How often the Lease has changed hands; 0 if it was never seen."""
        return number(self.lease or {}, "spec", "leaseTransitions")

    @property
    def is_own(self) -> bool:
        """Whether the version last seen names this process."""
        return self.holder == self.identity


def shows_a_restore(candidacy: Candidacy, lease: Body | None) -> bool:
    """Whether a Lease that was read now is older than the one last seen, or gone: etcd may have been restored.

    Each write of an object has a higher version than the one before, and the Lease is written every few seconds.
    """
    if candidacy.lease is None:
        return False
    now, before = whole_number(_version(lease)), whole_number(_version(candidacy.lease))
    return lease is None or (now is not None and before is not None and now < before)


def observed(candidacy: Candidacy, lease: Body | None, now_ms: Instant, timing: Timing) -> Candidacy:
    """The candidacy after a read that was answered at `now_ms`. If another process holds the Lease, this one's term
    ends."""
    if candidacy.seen_ms is not None and _version(lease) == _version(candidacy.lease):
        return candidacy
    seen = _replaced(candidacy, now_ms, timing) if _is_other(candidacy, lease) else candidacy
    seen = replace(seen, lease=lease, seen_ms=now_ms)
    seen = replace(seen, last_term=max(seen.term, seen.last_term))
    return seen if seen.is_own else dropped(seen)


def made(candidacy: Candidacy, lease: Body, now_ms: Instant, timing: Timing) -> Candidacy:
    """The candidacy after the process created the Lease; the answer came at `now_ms`."""
    seen = _replaced(candidacy, now_ms, timing)
    return replace(seen, lease=lease, seen_ms=now_ms, last_term=candidacy.last_term + 1)


def renewed(candidacy: Candidacy, lease: Body, sent_ms: Instant, timing: Timing) -> Candidacy:
    """The candidacy after a write to the known Lease that was sent at `sent_ms` and took effect."""
    held = replace(candidacy, lease=lease, seen_ms=sent_ms, held_until_ms=sent_ms + timing.deadline_ms)
    return replace(held, last_term=max(held.term, held.last_term))


def claim(candidacy: Candidacy, timing: Timing, now_ms: Instant, wall_ms: Instant) -> Body | None:
    """The Lease to write to acquire or renew it; None while it is another process's.

    `wall_ms`: the time of day, which is written for people to read and never compared.
    """
    if candidacy.seen_ms is None or now_ms < _free_ms(candidacy, timing):
        return None
    at = _micro_time(wall_ms)
    own = candidacy.is_own
    return _with_spec(candidacy.lease, {
        "holderIdentity": candidacy.identity,
        "leaseDurationSeconds": timing.duration_ms // 1000,
        "acquireTime": text(candidacy.lease or {}, "spec", "acquireTime") if own else at,
        "renewTime": at,
        "leaseTransitions": candidacy.term if own else max(candidacy.term, candidacy.last_term) + 1,
    })  # fmt: skip


def dropped(candidacy: Candidacy) -> Candidacy:
    """The candidacy after the process gave up its term."""
    return replace(candidacy, held_until_ms=None)


def release(candidacy: Candidacy, now_ms: Instant, wall_ms: Instant) -> Body | None:
    """The Lease to write at the end, so that the next process need not wait; None if this process can't release it.

    A Lease that the process created but never held is not released: the next process must wait for the same earlier
    leaders.
    """
    if candidacy.lease is None or not candidacy.is_own or now_ms < (candidacy.others_until_ms or now_ms):
        return None
    spec = mapping(candidacy.lease, "spec")
    return _with_spec(candidacy.lease, {**spec, "holderIdentity": "", "renewTime": _micro_time(wall_ms)})


def _free_ms(candidacy: Candidacy, timing: Timing) -> Instant:
    """From when on the Lease may be acquired, as far as is known."""
    seen_ms = candidacy.seen_ms or 0
    if candidacy.is_own or not candidacy.holder:
        return seen_ms
    return seen_ms + _longest_ms(candidacy, timing)


def _is_other(candidacy: Candidacy, lease: Body | None) -> bool:
    """Whether this is another Lease than that of the last read."""
    return candidacy.seen_ms is not None and uid(lease or {}) != uid(candidacy.lease or {})


def _replaced(candidacy: Candidacy, now_ms: Instant, timing: Timing) -> Candidacy:
    """The candidacy after the known Lease was deleted: its leader may still write for one term."""
    return replace(dropped(candidacy), others_until_ms=now_ms + _longest_ms(candidacy, timing))


def _longest_ms(candidacy: Candidacy, timing: Timing) -> DurationMs:
    """How long a term lasts: the longer of this process's setting and the holder's."""
    return max(timing.duration_ms, 1000 * number(candidacy.lease or {}, "spec", "leaseDurationSeconds"))


def _version(lease: Body | None) -> str:
    return "" if lease is None else resource_version(lease)


def _with_spec(lease: Body | None, spec: Mapping[str, Any]) -> Body:
    api_version, kind = LEASE
    base = {"apiVersion": api_version, "kind": kind, "metadata": {}} if lease is None else lease
    return {**base, "spec": spec}


def _micro_time(wall_ms: Instant) -> str:
    """A time as the API accepts it: with exactly six digits after the second."""
    return f"{format_timestamp(wall_ms)[:-1]}000Z"
