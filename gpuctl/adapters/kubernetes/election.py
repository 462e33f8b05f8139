"""Who may write, as a pure state machine over one Lease: what one process has seen of it, and what to write next.

Two processes never hold at once. Each measures with its own monotonic clock and only differences, so what the clocks
show does not matter, nor what stands in the Lease as times:

- who holds counts from before the request that renewed was sent, and stops at the renew deadline;
- who waits counts from after the answer in which a version was first seen, and waits the whole duration.

So between the last moment of one and the first of the next lies `duration - deadline`, which is what a request may
still need that was sent in the last moment. Writes name the resource version they stand on, so of two that try at once
one fails.

A Lease that isn't there, or that isn't the one seen before, may have been deleted under its holder, who does not know
yet, and more than once since anybody looked. So whoever finds none makes one in its own name at once, which the others
see and none of them can make again; but it holds only after the whole duration, in which nobody may have deleted it.

Less would not be safe. Who held the deleted one learns of it at its next renewal, two seconds or so later; but only if
it runs and is heard. Stopped, or on a slow network, it may write up to the deadline after a renewal that came just
before the deletion, and what it sent in the last moment may need the rest of the duration. That our making succeeded
says that there is no Lease now, not since when. Nor do other traces say that there never was one: that no ledger is
there is so too when somebody won a moment ago and writes its first one next. What is made beforehand costs no wait:
`gpuctl install` makes an empty Lease, which is taken at once by whom it is the first to be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuctl.k8s.kinds import LEASE
from gpuctl.k8s.objects import mapping, number, resource_version, text, uid
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.state import Body
from gpuctl.model.units import DurationMs, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a lease lasts, how long its holder acts after the last renewal, how often each tries."""

    duration_ms: DurationMs = 15_000
    deadline_ms: DurationMs = 10_000
    retry_ms: DurationMs = 2_000
    request_ms: DurationMs = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """What one process knows. `lease` is the version last seen (None: there was none), `seen_ms` when it was first.

    `held_until_ms` is when its own term ends by itself; None while it has none. `others_until_ms`: until then a Lease
    that was deleted may still be held. `last_term` is the highest ever seen. Instants are of its monotonic clock;
    `seen_ms` None: nothing was read yet.
    """

    identity: str
    lease: Body | None = None
    seen_ms: Instant | None = None
    held_until_ms: Instant | None = None
    others_until_ms: Instant | None = None
    last_term: int = 0

    def holds(self, now_ms: Instant) -> bool:
        """Whether it may write now."""
        if self.others_until_ms is not None and now_ms < self.others_until_ms:
            return False
        return self.held_until_ms is not None and now_ms < self.held_until_ms

    @property
    def holder(self) -> str:
        """Who holds it by the version last seen; "" when nobody does."""
        return text(self.lease or {}, "spec", "holderIdentity")

    @property
    def term(self) -> int:
        """How often it has changed hands; 0 when it was never seen."""
        return number(self.lease or {}, "spec", "leaseTransitions")

    @property
    def is_own(self) -> bool:
        """Whether the version last seen names this process."""
        return self.holder == self.identity


def observed(candidacy: Candidacy, lease: Body | None, now_ms: Instant, timing: Timing) -> Candidacy:
    """After a read whose answer came at `now_ms`. Seen in another's hands, the own term is over at once."""
    if candidacy.seen_ms is not None and _version(lease) == _version(candidacy.lease):
        return candidacy
    seen = _replaced(candidacy, now_ms, timing) if _is_other(candidacy, lease) else candidacy
    seen = replace(seen, lease=lease, seen_ms=now_ms)
    seen = replace(seen, last_term=max(seen.term, seen.last_term))
    return seen if seen.is_own else dropped(seen)


def made(candidacy: Candidacy, lease: Body, now_ms: Instant, timing: Timing) -> Candidacy:
    """After it made the Lease, of which it heard at `now_ms`."""
    seen = _replaced(candidacy, now_ms, timing)
    return replace(seen, lease=lease, seen_ms=now_ms, last_term=candidacy.last_term + 1)


def renewed(candidacy: Candidacy, lease: Body, sent_ms: Instant, timing: Timing) -> Candidacy:
    """After a write to the Lease that it knew, which was sent at `sent_ms` and took effect."""
    held = replace(candidacy, lease=lease, seen_ms=sent_ms, held_until_ms=sent_ms + timing.deadline_ms)
    return replace(held, last_term=max(held.term, held.last_term))


def claim(candidacy: Candidacy, timing: Timing, now_ms: Instant, wall_ms: Instant) -> Body | None:
    """The Lease to write to hold it or go on holding it; None while it is another's.

    `wall_ms` is the time of day, which is written for people to read and never compared.
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
    """Not holding any more, of one's own will."""
    return replace(candidacy, held_until_ms=None)


def release(candidacy: Candidacy, now_ms: Instant, wall_ms: Instant) -> Body | None:
    """The Lease to write when going, so that the next need not wait; None where it is not ours to release.

    Nor is one that it made but never held: the next has to wait for the same others.
    """
    if candidacy.lease is None or not candidacy.is_own or now_ms < (candidacy.others_until_ms or now_ms):
        return None
    spec = mapping(candidacy.lease, "spec")
    return _with_spec(candidacy.lease, {**spec, "holderIdentity": "", "renewTime": _micro_time(wall_ms)})


def _free_ms(candidacy: Candidacy, timing: Timing) -> Instant:
    """From when on it may be taken, as far as is known."""
    seen_ms = candidacy.seen_ms or 0
    if candidacy.is_own or not candidacy.holder:
        return seen_ms
    return seen_ms + _longest_ms(candidacy, timing)


def _is_other(candidacy: Candidacy, lease: Body | None) -> bool:
    """Whether this is not the Lease that was there when it was last looked for."""
    return candidacy.seen_ms is not None and uid(lease or {}) != uid(candidacy.lease or {})


def _replaced(candidacy: Candidacy, now_ms: Instant, timing: Timing) -> Candidacy:
    """What held a Lease that was deleted by now has until then."""
    return replace(dropped(candidacy), others_until_ms=now_ms + _longest_ms(candidacy, timing))


def _longest_ms(candidacy: Candidacy, timing: Timing) -> DurationMs:
    """As long as a term lasts, by our own measure and that of who holds it."""
    return max(timing.duration_ms, 1000 * number(candidacy.lease or {}, "spec", "leaseDurationSeconds"))


def _version(lease: Body | None) -> str:
    return "" if lease is None else resource_version(lease)


def _with_spec(lease: Body | None, spec: Mapping[str, Any]) -> Body:
    api_version, kind = LEASE
    base = {"apiVersion": api_version, "kind": kind, "metadata": {}} if lease is None else lease
    return {**base, "spec": spec}


def _micro_time(wall_ms: Instant) -> str:
    """As the API takes it: six digits after the second, exactly."""
    return f"{format_timestamp(wall_ms)[:-1]}000Z"
