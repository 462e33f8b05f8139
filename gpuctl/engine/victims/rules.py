"""Which sets of runs may make way for a job: its rights inside its project and against others, combined in one rule.

One set may hold work of the job's own project (`preempt`) and of others (`reclaim`). Sometimes it must: once own work
leaves, the project holds less, so that it is entitled with the job, or breaks no limit. An example: docs/concepts.md,
"Rights combine".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

from gpuctl.engine import reasons
from gpuctl.engine.capacity.gang import PoolOption
from gpuctl.engine.jobs.runs import Allocation, gpu_milli_of
from gpuctl.engine.jobs.victim_order import Preference
from gpuctl.engine.shares.accounts import project_owner
from gpuctl.engine.shares.entitlement import rights_of
from gpuctl.engine.snapshot import Snapshot
from gpuctl.engine.victims.preempt import preempt_key, preemptible_by
from gpuctl.engine.victims.reclaim import (
    Beneficiary,
    ReclaimStrategy,
    Strategies,
    VictimTotals,
    combinations_of,
    excess_milli,
    over_allocated,
    price_of_loss,
    surplus_milli,
    totals_with,
)
from gpuctl.model.decision import Reason
from gpuctl.model.ids import DomainName, ProjectName
from gpuctl.model.job import Job
from gpuctl.model.units import GpuMilli


class Cost(NamedTuple):
    """What a set of evictions costs; lower is better, in the order of the fields.

    `price`: of the rule. `lost_milli`, `stopped`: GPUs lost and runs that stop, now and by what follows; a run that
    only loses surplus workers does not stop. `outranked`: moved runs that a victim of their project outranks, and whose
    next places it would take. `moved_loss`, `moved`: GPU-milliseconds that moved runs lose, and how many they are.
    `at_once_milli`: GPUs lost at once, because what follows may not come. `preferences`: the victims'. `[:-1]` are the
    amounts, which a search can bound before it knows the victims.
    """

    price: int
    lost_milli: GpuMilli
    stopped: int
    outranked: int
    moved_loss: int
    moved: int
    at_once_milli: GpuMilli
    preferences: tuple[Preference, ...]

    def plus(self, other: Cost) -> Cost:
        """The cost of two sets together, except price and preferences, which do not add up."""
        return Cost._make((self.price, *map(add, self[1:-1], other[1:-1]), ()))

    def more(self, lost_milli: GpuMilli, stopped: int) -> Cost:
        """The cost including what follows."""
        return self._replace(lost_milli=self.lost_milli + lost_milli, stopped=self.stopped + stopped)


NO_COST = Cost(0, 0, 0, 0, 0, 0, 0, ())


@dataclass(slots=True, eq=False)
class VictimRule:
    """The sets of runs that may make way for one job, so that it gets an option, by given strategies.

    `only`: the only candidates, in order; None: all runs that the job has rights over. `milli`: the GPUs of its
    `domain` that the job asks for.
    """

    snapshot: Snapshot
    job: Job
    option: PoolOption
    strategies: Strategies
    only: tuple[Allocation, ...] | None = None
    domain: DomainName = field(init=False)
    milli: GpuMilli = field(init=False)
    chain: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.domain, self.milli = self.option.domain, self.option.request.total_milli
        self.chain = self.snapshot.accounts.tree.chain(self.job.id.project)

    @property
    def key(self) -> tuple[object, ...] | None:
        """A key that is equal for rules that allow the same sets in this snapshot; None if that is not known."""
        if self.only is not None:
            return None
        own = preempt_key(self.snapshot, self.job, self.domain, self.milli) if self._own() else None
        amounts = None if self.is_plain else (self.job.id.project, self.milli)
        return self._key_of_others(), own, amounts

    @property
    def is_entitled(self) -> bool:
        """Whether the project is entitled with the job, so that GPUs which come free are reserved for the job."""
        return self.strategies[0] is not None

    @property
    def is_guaranteed(self) -> bool:
        """Whether the project stays within its guarantee with the job."""
        return self.strategies[0] is ReclaimStrategy.GUARANTEE

    @property
    def is_plain(self) -> bool:
        """Whether every set that its losers may lose is allowed: no owner of the beneficiary would hold too much."""
        return self.missing({}, range(1, len(self.chain) + 1)) is None

    # Candidates

    def candidates(self) -> Sequence[Allocation]:
        """The runs that may be part of a set, in order of preference."""
        if self.only is not None:
            return self.only
        own = self._own()
        others = self.snapshot.candidates(self._key_of_others(), self._others)
        if not (own and others):
            return own or others
        return self.snapshot.candidates(self.key, lambda: (own, others))

    def _own(self) -> tuple[Allocation, ...]:
        return preemptible_by(self.snapshot, self.job, self.domain, self.milli)

    def _key_of_others(self) -> tuple[object, ...]:
        """The departments above, and the strategies; and the project itself if others could take from it."""
        project = self.job.id.project
        used = (strategy for strategy in ReclaimStrategy if strategy in self.strategies)
        accounts = self.snapshot.accounts
        may_lose = any(surplus_milli(accounts, self.domain, strategy, self.chain[0]) > 0 for strategy in used)
        may_lose = may_lose or bool(self.snapshot.without_gpus(self.domain).get(project))
        settled = self.snapshot.settled.get(project)
        return "reclaim", self.domain, self.chain[1:], self.strategies, project if may_lose else None, settled

    def _others(self) -> Iterator[Iterable[Allocation]]:
        pausable = self.snapshot.pausable(self.domain)
        for strategy in ReclaimStrategy:
            if strategy in self.strategies:
                for project in over_allocated(self.snapshot, self.domain, strategy):
                    if self._strategy_against(project_owner(project)) is strategy:
                        yield self._of(project, strategy, pausable[project])
        # No quota covers their CPU and memory, so each entitled job goes before them.
        for project, runs in self.snapshot.without_gpus(self.domain).items():
            right = self._strategy_against(project_owner(project))
            if right is not None and project != self.job.id.project:
                yield [run for run in runs if self._may_lose(run, right)]

    def _of(
        self, project: ProjectName, strategy: ReclaimStrategy, allocations: Iterable[Allocation]
    ) -> list[Allocation]:
        """The runs of another project that it could lose to the job, each judged as the only victim."""
        accounts = self.snapshot.accounts
        losers = (owner for owner in accounts.tree.chain(project) if owner not in self.chain)
        most = min((surplus_milli(accounts, self.domain, strategy, owner) for owner in losers), default=0)
        if most <= 0:
            return []
        # By guarantee a job may also take the last run, which straddles the line; fair shares are kept.
        is_fair = strategy is ReclaimStrategy.FAIRNESS
        sized = (each for each in allocations if each.total_milli > 0 and (each.total_milli <= most or not is_fair))
        return [allocation for allocation in sized if self._may_lose(allocation, strategy)]

    def _may_lose(self, allocation: Allocation, strategy: ReclaimStrategy) -> bool:
        """Whether a run of another project is old enough for a strategy, not protected, and by fairness not settled."""
        snapshot = self.snapshot
        if allocation.run.job in snapshot.protected:
            return False
        if strategy is ReclaimStrategy.FAIRNESS:
            return not (snapshot.is_young(allocation) or snapshot.is_settled(allocation, self.job.id.project))
        return snapshot.has_run(allocation, snapshot.min_runtime.guarantee_ms)

    def may_move(self, allocation: Allocation) -> bool:
        """Whether a pausable run is old enough to be moved for the job.

        For a job within its project's guarantee, it may be moved as soon as it could be paused: a pause would cost
        more.
        """
        is_free = allocation.run.job not in self.snapshot.restraints.unmoved
        return is_free and self._is_old_enough(allocation, is_guaranteed=self.is_guaranteed)

    def _is_old_enough(self, allocation: Allocation, *, is_guaranteed: bool) -> bool:
        least = self.snapshot.min_runtime.after(allocation.run.starts)
        least_ms = min(least.guarantee_ms, least.moves_ms) if is_guaranteed else least.moves_ms
        return self.snapshot.has_run(allocation, least_ms)

    # Sets

    def price(self, totals: VictimTotals) -> int | None:
        """0 if the owners may lose the victims; 1 if one falls below its guarantee by its largest; else None."""
        worst = 0
        for owner, lost in totals.items():
            if owner not in self.chain:
                strategy = self._strategy_against(owner)
                accounts = self.snapshot.accounts
                price = None if strategy is None else price_of_loss(accounts, self.domain, strategy, owner, lost)
                if price is None:
                    return None
                worst = max(worst, price)
        return worst

    def missing(self, totals: VictimTotals, levels: Iterable[int] | None = None) -> tuple[str, GpuMilli] | None:
        """The lowest owner of the beneficiary that would hold too much once the victims have left and the job runs, and
        by how much; None if there is none. `levels`: of the victims, in place of those in `totals`."""
        accounts, project = self.snapshot.accounts, self.job.id.project
        levels = {self._level(o) for o in totals if o not in self.chain} if levels is None else levels
        beneficiary = Beneficiary(project, self.domain, self.milli)
        limits = dict(accounts.tree.limits(self.domain, project))
        for index, owner in enumerate(self.chain):
            used = {self.strategies[level - 1] for level in levels if level > index}
            over = [
                excess_milli(accounts, strategy, owner, beneficiary, totals)
                for strategy in used
                if strategy is not None
            ]
            if owner in limits:
                lost = totals.get(owner, (0, 0))[0]
                over.append(accounts.held(self.domain, owner) - lost + self.milli - limits[owner])
            if over and max(over) > 0:
                return owner, max(over)
        return None

    def cost(self, chosen: Sequence[Allocation]) -> Cost | None:
        """What it costs to pause a set, without what follows; None if that is not allowed."""
        totals = totals_with({}, chosen, self.snapshot)
        price = self.price(totals)
        if price is None or self.missing(totals) is not None:
            return None
        preferences = tuple(sorted(map(self.snapshot.preference, chosen)))
        milli, stopped = gpu_milli_of(chosen), sum(not allocation.is_extra for allocation in chosen)
        return Cost(price, milli, stopped, 0, 0, 0, milli, preferences)

    def allows_moves(self, victims: Iterable[Allocation] = (), moved: Iterable[Allocation] = ()) -> bool:
        """Whether runs may be moved for the job: its project stays within its fair share once the victims have left,
        and the `moved` runs are old enough for the right that it has then."""
        project = self.job.id.project
        own_milli = gpu_milli_of(victim for victim in victims if victim.project == project)
        rights = rights_of(self.snapshot.accounts, self.domain, project, self.milli - own_milli)
        return any(rights) and all(self._is_old_enough(run, is_guaranteed=rights[0]) for run in moved)

    def complete(self, chosen: tuple[Allocation, ...]) -> tuple[Allocation, ...] | None:
        """A set with further runs, wherever they are, that make it allowed; None if there are none.

        One run is added after another: the largest that is not too much, else the smallest. For many runs that is
        mostly the least in all; if candidates are few, all sets are tried besides (`cheapest_of_few`).
        """
        chosen, chain = with_leaving(self.snapshot, chosen), self.snapshot.accounts.tree.chain
        while (missing := self.missing(totals_with({}, chosen, self.snapshot))) is not None:
            owner, milli = missing
            left = [
                run
                for run in self.candidates()
                if run.total_milli > 0 and run not in chosen and owner in chain(run.project)
            ]
            if not left:
                return None
            fitting = [run for run in left if run.total_milli <= milli]
            more = (max if fitting else min)(fitting or left, key=lambda run: run.total_milli)
            chosen = with_leaving(self.snapshot, (*chosen, more))
        return chosen if self.cost(chosen) is not None else None

    # Reasons

    def reason(self, victim: Allocation) -> Reason:
        """The reason of a victim's pause."""
        if victim.project == self.job.id.project:
            lower = victim.job is None or victim.job.priority < self.job.priority
            return (reasons.paused_by_priority if lower else reasons.paused_by_interactive)(self.job.id)
        guaranteed = self._strategy_against(project_owner(victim.project)) is ReclaimStrategy.GUARANTEE
        return (reasons.paused_by_guarantee if guaranteed else reasons.paused_by_fairness)(self.job.id)

    # Levels

    def _strategy_against(self, owner: str) -> ReclaimStrategy | None:
        level = self._level(owner)
        return self.strategies[level - 1] if level else None

    def _level(self, owner: str) -> int:
        """How many owners of the beneficiary are below the nearest department that it shares with another owner."""
        tree = self.snapshot.accounts.tree
        above = [each for name in tree.below.get(owner, ())[:1] for each in tree.chain(name)]
        return next((level for level, mine in enumerate(self.chain) if mine in above), len(self.chain))


def rules_of(snapshot: Snapshot, job: Job, option: PoolOption) -> tuple[VictimRule, ...]:
    """The rules by which a job may have runs paused for an option, first the one for which no own work must leave. ()
    if restraints let no run make way for the job."""
    return () if job.id in snapshot.restraints.unaided else rules_by_right(snapshot, job, option)


def rules_by_right(snapshot: Snapshot, job: Job, option: PoolOption) -> tuple[VictimRule, ...]:
    """The same without regard to restraints, so for all jobs of its class."""
    found = combinations_of(snapshot, job, option.domain, option.request.total_milli)
    return tuple(VictimRule(snapshot, job, option, strategies) for strategies in found)


def with_leaving(snapshot: Snapshot, allocations: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """The allocations, and those in place of the same runs that leave with them."""
    found = dict.fromkeys(allocations)
    for allocation in tuple(found):
        found.update(dict.fromkeys(other for other in allocation.leaves_with if snapshot.stays(other)))
    return tuple(found)
