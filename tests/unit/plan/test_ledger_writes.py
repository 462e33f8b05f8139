"""A split ledger on a cluster: what a crash between any two of its writes leaves, and what is tidied up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from workbench import example

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.app.object_cache import ObjectCache
from gpuctl.k8s import kinds, names
from gpuctl.k8s.ledger import ledger_ref, shards_of
from gpuctl.k8s.objects import resource_version, uid
from gpuctl.model.change import Action, Change
from gpuctl.model.ids import JobId, ObjectRef, ProjectName, RunDigest
from gpuctl.model.state import ClusterState, FinishedRun, Ledger
from gpuctl.model.tenancy import Tenancy
from gpuctl.observe import observe
from gpuctl.observe.cache import ObserveCache
from gpuctl.plan.cache import PlanCache
from gpuctl.plan.guard import damaged_projects
from gpuctl.plan.inventory import MOST_REMOVED, OWN, Books, next_ledger
from gpuctl.plan.order import Stage, in_order
from gpuctl.plan.writes import book

CLUSTER, TEAM, DIGEST = "tr4858", ProjectName("team-a"), RunDigest("0badcafe")
SMALL, LARGE = 2_000, 12_000


def ledger(runs: int) -> Ledger:
    jobs = [JobId(TEAM, f"train-model-{i:06d}") for i in range(runs)]
    return Ledger(
        project=TEAM,
        inventory=frozenset(ObjectRef(*kinds.JOB, "gpu-team-a", f"{job.name}-{DIGEST}") for job in jobs),
        seen=frozenset((job, DIGEST) for job in jobs),
        finished={(j, DIGEST): FinishedRun(job=j, digest=DIGEST, state="Failed", at_ms=0) for j in jobs},
    )


class Shelf:
    """An embedded cluster that keeps one project's ledger."""

    def __init__(self) -> None:
        self.cluster = EmbeddedCluster(VirtualClock(0))
        self.object_cache = ObjectCache(self.cluster)
        self.observed = ObserveCache()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.SYSTEM_NAMESPACE}}
        self.cluster.apply(namespace)

    def state(self) -> ClusterState:
        self.object_cache.refresh()
        return observe(self.object_cache.objects(), Tenancy(cluster=CLUSTER), self.observed)

    def changes(self, wanted: Ledger, *, closing: bool = False) -> tuple[Change, ...]:
        state = self.state()
        old = state.ledgers.get(TEAM, Ledger(project=TEAM))
        return in_order(book(CLUSTER, old, wanted, state, closing=closing))

    def make(self, change: Change) -> None:
        if change.action is Action.DELETE:
            self.cluster.delete(change.ref, change.uid, change.resource_version)
        elif change.body is not None:
            self.cluster.apply(change.body)

    def write(self, wanted: Ledger, *, closing: bool = False) -> Iterator[ClusterState]:
        """Write until nothing is left to write; what is observed after each write."""
        while changes := self.changes(wanted, closing=closing):
            for change in changes:
                self.make(change)
                yield self.state()


@pytest.fixture(scope="module")
def ledgers() -> tuple[Ledger, Ledger]:
    return ledger(SMALL), ledger(LARGE)


@pytest.mark.parametrize("grows", [True, False])
def test_between_any_two_writes_a_ledger_says_what_it_said_or_what_it_is_to_say(
    ledgers: tuple[Ledger, Ledger], *, grows: bool
) -> None:
    before, after = ledgers if grows else ledgers[::-1]
    shelf = Shelf()
    list(shelf.write(before))
    told = []
    for state in shelf.write(after):
        assert state.damaged == ()
        told.append(state.ledgers[TEAM] == after)
        assert told[-1] or state.ledgers[TEAM] == before
    assert told == sorted(told)
    assert told[-1]
    state = shelf.state()
    assert len(state.shards) == (4 if grows else 2)


def test_what_a_crash_left_is_finished_by_the_next(ledgers: tuple[Ledger, Ledger]) -> None:
    small, large = ledgers
    for died_after in range(6):
        shelf = Shelf()
        list(shelf.write(small))
        for change in shelf.changes(large)[:died_after]:
            shelf.make(change)
        list(shelf.write(large))
        assert shelf.state().ledgers == {TEAM: large}


def test_a_lost_shard_is_damage_and_holds_its_project(ledgers: tuple[Ledger, Ledger]) -> None:
    shelf = Shelf()
    list(shelf.write(ledgers[1]))
    state = shelf.state()
    lost = state.shards[1]
    shelf.cluster.delete(lost, uid(state.live[lost]), resource_version(state.live[lost]))
    after = shelf.state()
    assert after.damaged == ((ledger_ref(CLUSTER, TEAM), "2 of 4"),)
    assert damaged_projects(after) == {TEAM}


def test_a_damaged_ledger_of_the_clusters_own_holds_no_project() -> None:
    assert damaged_projects(ClusterState(damaged=((ledger_ref(CLUSTER, OWN), "inventory"),))) == frozenset()


def test_a_closed_ledger_leaves_nothing(ledgers: tuple[Ledger, Ledger]) -> None:
    shelf = Shelf()
    list(shelf.write(ledgers[1]))
    for state in shelf.write(Ledger(project=TEAM), closing=True):
        assert state.damaged == ()
    state = shelf.state()
    assert (state.ledgers, state.shards) == ({}, ())


def test_shards_without_a_head_are_those_of_a_ledger_that_is_gone(ledgers: tuple[Ledger, Ledger]) -> None:
    shelf = Shelf()
    for change in shelf.changes(ledgers[1])[:2]:
        shelf.make(change)
    state = shelf.state()
    assert (state.ledgers, state.damaged, len(state.shards)) == ({}, (), 2)
    list(shelf.write(ledgers[0]))
    state = shelf.state()
    assert state.shards == ()
    assert shards_of(state.live[ledger_ref(CLUSTER, TEAM)]) == 1


def test_only_that_runs_were_seen_to_end_waits_until_others_are_let_go() -> None:
    """What gpuctl ends itself, or is about to make or let go, is on record before."""
    shelf, whole = Shelf(), ledger(3)
    known = replace(whole, finished={})
    for change in shelf.changes(known):
        shelf.make(change)
    first, *others = whole.finished.items()
    later = JobId(TEAM, "later")

    def stages(wanted: Ledger) -> set[Stage | int]:
        return {change.stage for change in shelf.changes(wanted)}

    assert stages(replace(known, finished=dict([first]))) == {Stage.RECORD}
    assert stages(replace(known, finished=dict([first]), inventory=frozenset())) == {Stage.RECORD}
    assert stages(replace(known, finished={key: replace(run, state="TimedOut") for key, run in others})) == {
        Stage.LEDGER
    }
    assert stages(replace(known, seen=known.seen | {(later, DIGEST)})) == {Stage.LEDGER}
    assert stages(replace(whole, seen=frozenset())) == {Stage.LEDGER}


def test_shards_that_stay_as_many_are_put_on_record_as_late() -> None:
    shelf, whole = Shelf(), ledger(LARGE)
    known = replace(whole, finished=dict(list(whole.finished.items())[1:]))
    for change in shelf.changes(known):
        shelf.make(change)
    changes = shelf.changes(whole)
    assert [(change.stage, names.shard_owner(change.ref.name)) for change in changes] == [
        (Stage.RECORD, (CLUSTER, TEAM))
    ]


def test_of_removed_jobs_the_last_are_on_record_until_they_are_declared_again() -> None:
    declared = example()
    everything = Books(wanted={}, projects=frozenset({TEAM}), declared={}, standing={}, at_ms=7)
    none = next_ledger(declared, ledger(MOST_REMOVED + 5), everything, frozenset(), PlanCache())
    assert {each.at_ms for each in none.removed.values()} == {7}
    assert (len(none.removed), none.seen) == (MOST_REMOVED, frozenset())
    assert next_ledger(declared, none, replace(everything, at_ms=8), frozenset(), PlanCache()) is none
    again = JobId(TEAM, next(iter(none.removed)))
    later = JobId(TEAM, "later")
    known = replace(none, seen=frozenset({(later, DIGEST)}))
    back = replace(everything, declared={TEAM: frozenset({(again, DIGEST)})}, at_ms=9)
    some = next_ledger(declared, known, back, frozenset(), PlanCache())
    assert some.removed.keys() == none.removed.keys() - {again.name} | {"later"}
    assert some.removed["later"].at_ms == 9
