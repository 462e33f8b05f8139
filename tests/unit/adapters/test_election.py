"""Two processes and one Lease: whatever pauses, clocks, lost and late requests there are, only one holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuctl.adapters.kubernetes.election import Candidacy, Timing, claim, dropped, observed, release, renewed
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
    lives: int = 1

    def delete(self) -> None:
        self.lease, self.terms = None, {}
        self.lives += 1

    def put(self, body: Body) -> Body | None:
        """The stored object; None for a conflict."""
        based_on = body["metadata"].get("resourceVersion")
        current = None if self.lease is None else self.lease["metadata"]["resourceVersion"]
        if based_on != current:
            return None
        self.writes += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.writes)}}
        spec = body["spec"]
        if spec["holderIdentity"]:
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


def empty() -> Server:
    """As `gpuctl install` makes it."""
    return Server(lease={"metadata": {"resourceVersion": "0"}, "spec": {}})


def replica(name: str, offset_ms: int = 0) -> Replica:
    return Replica(Candidacy(identity=name), offset_ms)


def step(one: Replica, server: Server, late: list[Body], true_ms: int, what: str) -> None:
    """Read; send; the server does it; hear of it. `lose` drops the request or the answer, `late` delivers it later."""
    now_ms = true_ms + one.offset_ms
    if what == "round":
        for each in WELL:
            step(one, server, late, true_ms, each)
    elif what == "release":
        body = release(one.candidacy, NOON_MS)
        one.candidacy, one.pending, one.answer = dropped(one.candidacy), None, None
        if body is not None:
            late.append(body)
    elif what == "read":
        one.candidacy = observed(one.candidacy, server.lease, now_ms)
    elif what == "send" and one.pending is None:
        one.answer, one.sent_ms = None, now_ms
        one.pending = claim(one.candidacy, TIMING, now_ms, NOON_MS)
    elif what == "arrive" and one.pending is not None:
        one.answer, one.pending = server.put(one.pending), None
    elif what == "hear" and one.answer is not None:
        one.candidacy, one.answer = renewed(one.candidacy, one.answer, one.sent_ms, TIMING), None
    elif what == "lose":
        one.pending = one.answer = None
    elif what == "late" and one.pending is not None:
        late.append(one.pending)
        one.pending = None
    elif what == "settle" and late:
        server.put(late.pop())


WELL = ("read", "send", "arrive", "hear")
STEPS = (*WELL, "round", "round", "round", "round", "release", "lose", "late", "settle", "delete")
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
            if each.candidacy.held_until_ms is not None:
                last[each.candidacy.identity] = min(each.candidacy.held_until_ms - each.offset_ms, true_ms + pause_ms)
        true_ms += pause_ms
        if what == "delete" and server.lives == 1:  # a second absence can't be told from the first
            server.delete()
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


def test_a_lease_that_is_not_there_is_waited_for() -> None:
    server, one = Server(), replica("a")
    turn(one, server, 0)
    turn(one, server, 14_999)
    assert server.lease is None
    turn(one, server, 15_000)
    assert one.holds(15_000)


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
    body = release(one.candidacy, NOON_MS)
    assert body is not None
    server.put(body)
    turn(other, server, 1_000)
    assert other.holds(1_000)
    assert release(one.candidacy, NOON_MS) is not None, "what it does not know of, the server's 409 stops"
    one.candidacy = observed(one.candidacy, server.lease, 1_500)
    assert not one.holds(1_500)
    assert release(one.candidacy, NOON_MS) is None


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
