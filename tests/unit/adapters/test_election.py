"""Two processes and one Lease: whatever pauses, clocks, lost and late requests there are, only one holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.adapters.kubernetes.election import (
    Candidacy,
    Timing,
    claim,
    dropped,
    made,
    observed,
    release,
    renewed,
    shows_a_restore,
)
from gpuctl.model.state import Body

TIMING = Timing()
MARGIN_MS = TIMING.duration_ms - TIMING.deadline_ms
NOON_MS = 1_596_024_000_000


@dataclass
class Server:
    """One object under optimistic concurrency."""

    lease: Body | None = None
    writes: int = 0
    terms: dict[int, str] = field(default_factory=dict)
    """Who held each term of the object; a deleted one begins anew."""

    def delete(self) -> None:
        self.lease, self.terms = None, {}

    def lay(self) -> None:
        """An empty one, as somebody may put it in the place of one that was deleted."""
        if self.lease is None:
            self.put({"metadata": {}, "spec": {}})

    def put(self, body: Body) -> Body | None:
        """The stored object, made where the body has no version; None for a conflict."""
        based_on = body["metadata"].get("resourceVersion")
        current = None if self.lease is None else self.lease["metadata"]["resourceVersion"]
        if based_on != current:
            return None
        self.writes += 1
        meta = {"uid": f"uid-{self.writes}", **body["metadata"], "resourceVersion": str(self.writes)}
        self.lease = {**body, "metadata": meta}
        spec = body["spec"]
        if spec.get("holderIdentity"):
            assert self.terms.setdefault(spec["leaseTransitions"], spec["holderIdentity"]) == spec["holderIdentity"]
        return self.lease


@dataclass
class Replica:
    """A process whose clock is `offset_ms` ahead, and the request it has under way."""

    candidacy: Candidacy
    offset_ms: int
    pending: Body | None = None
    sent_ms: int = 0
    answer: Body | None = None

    def holds(self, true_ms: int) -> bool:
        return self.candidacy.holds(true_ms + self.offset_ms)

    def hear(self, answer: Body, now_ms: int) -> None:
        if self.candidacy.lease is None:
            self.candidacy = made(self.candidacy, answer, now_ms, TIMING)
        else:
            self.candidacy = renewed(self.candidacy, answer, self.sent_ms, TIMING)
        self.answer = None

    def held_last(self, true_ms: int) -> int | None:
        """When it held last, if its latest term has begun."""
        known = self.candidacy
        if known.held_until_ms is None:
            return None
        last = min(known.held_until_ms - self.offset_ms, true_ms)
        begun = known.others_until_ms is None or known.others_until_ms - self.offset_ms < last
        return last if begun else None


def empty() -> Server:
    """As `gpuctl install` makes it."""
    return Server(lease={"metadata": {"uid": "uid-0", "resourceVersion": "0"}, "spec": {}})


def replica(name: str, offset_ms: int = 0) -> Replica:
    return Replica(Candidacy(identity=name), offset_ms)


def step(one: Replica, server: Server, late: list[Body], true_ms: int, what: str) -> None:
    """Read; send; the server does it; hear of it. `lose` drops the request or the answer, `late` delivers it later."""
    now_ms = true_ms + one.offset_ms
    if what == "round":
        for each in WELL:
            step(one, server, late, true_ms, each)
    elif what == "release":
        body = release(one.candidacy, now_ms, NOON_MS)
        one.candidacy, one.pending, one.answer = dropped(one.candidacy), None, None
        if body is not None:
            late.append(body)
    elif what == "read":
        one.candidacy = observed(one.candidacy, server.lease, now_ms, TIMING)
    elif what == "send" and one.pending is None:
        one.answer, one.sent_ms = None, now_ms
        one.pending = claim(one.candidacy, TIMING, now_ms, NOON_MS)
    elif what == "arrive" and one.pending is not None:
        one.answer, one.pending = server.put(one.pending), None
    elif what == "hear" and one.answer is not None:
        one.hear(one.answer, now_ms)
    elif what == "lose":
        one.pending = one.answer = None
    elif what == "late" and one.pending is not None:
        late.append(one.pending)
        one.pending = None
    elif what == "settle" and late:
        server.put(late.pop())


WELL = ("read", "send", "arrive", "hear")
STEPS = (*WELL, "round", "round", "round", "round", "release", "lose", "late", "settle", "delete", "delete", "lay")
PAUSES = st.one_of(st.integers(0, 3_000), st.integers(0, 3_000), st.integers(0, 40_000))


@settings(max_examples=200)
@given(
    offsets=st.tuples(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9)),
    events=st.lists(st.tuples(st.sampled_from((0, 1)), PAUSES, st.sampled_from(STEPS)), min_size=40, max_size=120),
)
def test_never_two_hold(offsets: tuple[int, int], events: list[tuple[int, int, str]]) -> None:
    server, true_ms = empty(), 10**10
    late: list[Body] = []
    replicas = [replica(name, offset) for name, offset in zip("ab", offsets, strict=True)]
    last = {"a": -MARGIN_MS, "b": -MARGIN_MS}
    for who, pause_ms, what in events:
        for each in replicas:
            held = each.held_last(true_ms + pause_ms)
            if held is not None:
                last[each.candidacy.identity] = held
        true_ms += pause_ms
        if what == "delete":
            server.delete()
        elif what == "lay" and all(each.candidacy.seen_ms is not None for each in replicas):
            server.lay()  # whom it is the first to be seen takes it at once: nobody else may hold then
        elif what == "release":
            last[replicas[who].candidacy.identity] = -MARGIN_MS
        step(replicas[who], server, late, true_ms, what)
        holding = [each.candidacy.identity for each in replicas if each.holds(true_ms)]
        assert len(holding) <= 1
        for name in holding:
            assert last["b" if name == "a" else "a"] + MARGIN_MS <= true_ms


def turn(one: Replica, server: Server, true_ms: int) -> None:
    """A whole round without faults: read, and write if there is something to write."""
    step(one, server, [], true_ms, "round")


def test_the_first_takes_an_empty_lease_at_once_and_the_other_waits() -> None:
    server = empty()
    one, other = replica("a"), replica("b", 77_000)
    turn(one, server, 0)
    turn(other, server, 1_000)
    assert one.holds(9_999)
    assert not one.holds(10_000)
    assert not other.holds(1_000)
    assert other.candidacy.holder == "a"
    assert one.candidacy.term == 1


def test_a_lease_that_is_not_there_is_made_at_once_and_held_when_no_other_can_be() -> None:
    server, one = Server(), replica("a")
    turn(one, server, 0)
    assert spec(server)["holderIdentity"] == "a"
    for at_ms in range(2_000, 15_000, 2_000):
        turn(one, server, at_ms)
        assert not one.holds(at_ms)
    assert release(one.candidacy, 14_000, NOON_MS) is None
    turn(one, server, 14_500)
    assert one.holds(15_000)
    assert not one.holds(14_500 + TIMING.deadline_ms)


def test_a_lease_that_was_deleted_twice_between_two_looks_is_not_taken() -> None:
    """The other made it anew, held it, and it was deleted again: to who looks, it was missing all the time."""
    server = empty()
    one, other = replica("a"), replica("b")
    turn(one, server, 0)
    server.delete()
    step(other, server, [], 1_000, "read")
    turn(one, server, 1_500)
    turn(one, server, 2_000)
    for at_ms in range(4_000, 18_000, 2_000):
        turn(one, server, at_ms)
    assert one.holds(17_000)
    server.delete()
    turn(other, server, 17_000)
    turn(other, server, 18_000)
    assert not other.holds(18_000)
    assert other.candidacy.is_own
    turn(one, server, 18_100)
    assert not one.holds(18_100)
    turn(other, server, 31_999)
    assert not other.holds(31_999)
    turn(other, server, 32_000)
    assert other.holds(32_000)


def test_terms_count_on_when_the_lease_is_made_anew() -> None:
    server, one = empty(), replica("a")
    for at_ms in (0, 60_000):
        turn(one, server, at_ms)
    assert one.candidacy.last_term == 1
    server.delete()
    for at_ms in (62_000, 62_100, 77_000, 79_000):
        turn(one, server, at_ms)
    assert one.holds(79_000)
    assert one.candidacy.last_term == one.candidacy.term == 2


def test_a_dead_holder_is_followed_after_the_duration_and_the_term_counts_on() -> None:
    server = empty()
    one, other = replica("a"), replica("b")
    turn(one, server, 0)
    for at_ms in range(1_000, 16_000, 2_000):
        turn(other, server, at_ms)
        assert not other.holds(at_ms)
    turn(other, server, 16_000)
    assert other.holds(16_000)
    assert other.candidacy.term == 2


def test_renewing_goes_on_in_one_term_and_keeps_when_it_was_acquired() -> None:
    server, one = empty(), replica("a")
    turn(one, server, 0)
    acquired = spec(server)["acquireTime"]
    for at_ms in range(2_000, 60_000, 2_000):
        turn(one, server, at_ms)
        assert one.holds(at_ms + 1_999)
    assert spec(server)["acquireTime"] == acquired == "2020-07-29T12:00:00.000000Z"
    assert one.candidacy.term == 1


def test_what_others_wrote_on_the_object_stays() -> None:
    metadata = {"resourceVersion": "0", "labels": {"team": "infra"}}
    server, one = Server(lease={"metadata": metadata, "spec": {}}), replica("a")
    turn(one, server, 0)
    assert server.lease is not None
    assert server.lease["metadata"]["labels"] == {"team": "infra"}


def test_a_released_lease_is_taken_at_once() -> None:
    server = empty()
    one, other = replica("a"), replica("b")
    turn(one, server, 0)
    turn(other, server, 500)
    body = release(one.candidacy, 900, NOON_MS)
    assert body is not None
    server.put(body)
    turn(other, server, 1_000)
    assert other.holds(1_000)
    assert release(one.candidacy, 1_000, NOON_MS) is not None, "what it does not know of, the server's 409 stops"
    one.candidacy = observed(one.candidacy, server.lease, 1_500, TIMING)
    assert not one.holds(1_500)
    assert release(one.candidacy, 1_500, NOON_MS) is None


def test_one_whose_answer_was_lost_renews_without_waiting() -> None:
    server, one = empty(), replica("a")
    for what in ("read", "send", "arrive", "lose"):
        step(one, server, [], 0, what)
    assert not one.holds(0)
    turn(one, server, 2_000)
    assert one.holds(2_000)
    assert one.candidacy.term == 1


def spec(server: Server) -> Any:
    assert server.lease is not None
    return server.lease["spec"]


def test_a_lease_that_is_older_than_the_one_seen_or_gone_shows_a_restore() -> None:
    def lease(version: int, holder: str = "a") -> Body:
        return {"metadata": {"uid": "u", "resourceVersion": str(version)}, "spec": {"holderIdentity": holder}}

    new = Candidacy(identity="a")
    assert not shows_a_restore(new, lease(5))
    for holder in ("a", "b"):
        known = observed(new, lease(900, holder), 0, TIMING)
        assert [shows_a_restore(known, found) for found in (lease(900), lease(1000), lease(99), None)] == [
            False,
            False,
            True,
            True,
        ]
