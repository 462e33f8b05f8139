"""What binds those who wait, told to all that are alike at once, as things stand when the turns are over.

It depends on what is free for what they ask, the same for all wishes of a sort but for what is kept for others, and on
what their project holds and has a right to. Where neither has changed nobody is told anew. Cost: O(sorts), the projects
there is news about, what is kept for others, and O(groups) of those that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from gpuctl.model.decision import Reason
from gpuctl.model.ids import JobId
from gpuctl.model.units import WHOLE_GPU
from gpuctl.schedule import reasons
from gpuctl.schedule.books import Books
from gpuctl.schedule.jobs.line import Cohort, Group, Line, Needs, Terms
from gpuctl.schedule.jobs.lineup import Lineup
from gpuctl.schedule.jobs.ordering import Waiting
from gpuctl.schedule.jobs.wishes import Wishes
from gpuctl.schedule.news import News
from gpuctl.schedule.places.gang import Offer, Sort, Wish, has_place, room_for, sort_of
from gpuctl.schedule.places.ledger import Ledger
from gpuctl.schedule.promises.starvation import Guards
from gpuctl.schedule.shares.accounts import project_owner
from gpuctl.schedule.shares.rights import forbidden


class Want(NamedTuple):
    """What a request wants for: whether GPUs are `enough`, whether only CPU or memory is short, and for whom what would
    do is `kept_for`."""

    enough: bool
    is_cpu: bool
    kept_for: JobId | None = None


class Shortages:
    """What those who wait want for, as they were told last."""

    __slots__ = ("_kept", "_reader", "_wants")

    def __init__(self, news: News) -> None:
        self._reader = news.reader()
        self._wants: dict[Sort, Want] = {}
        self._kept: dict[Wish, JobId] = {}

    def tell(self, lineup: Lineup, books: Books, guards: Guards) -> list[Group]:
        """Bring everybody's reason up to date; the groups whose reason is another now."""
        wants, kept = _wants(lineup.wishes, books), _kept(lineup.wishes, books, guards)
        sorts = [sort for sort, want in wants.items() if want != self._wants.get(sort)]
        wishes = {wish for wish, _ in kept.items() ^ self._kept.items()} if kept != self._kept else set()
        of_sorts = chain.from_iterable(map(lineup.wishes.of_sort, sorts))
        concerned = dict.fromkeys(chain.from_iterable(map(lineup.wishes.groups_of, chain(of_sorts, wishes))))
        self._wants, self._kept = wants, kept
        for line in self._changed(lineup, books):
            before, line.terms = line.terms, _terms(line, books)
            if before is None or _may_matter(before, line.terms, line.needs(books.capacity)):
                concerned.update(dict.fromkeys(line.groups.values()))
            else:
                concerned.update(line.untold)
            line.untold.clear()
        return self._told(concerned, books)

    def _told(self, concerned: Iterable[Group], books: Books) -> list[Group]:
        """Those of some groups whose reason is another now. Cost: a reason for each cohort, and what it wants for."""
        reasons_of: dict[tuple[Cohort, tuple[Want, ...]], Reason] = {}
        told = []
        for group in concerned:
            wants = tuple([self._want_of(wish) for wish in group.shape])
            reason = reasons_of.get((group.cohort, wants))
            if reason is None:
                reason = reasons_of[group.cohort, wants] = _why(group.first, wants, books)
            if reason != group.reason:
                group.reason = reason
                told.append(group)
        return told

    def _want_of(self, wish: Wish) -> Want:
        want, kept_for = self._wants[sort_of(wish)], self._kept.get(wish)
        return want if kept_for is None else want._replace(kept_for=kept_for)

    def _changed(self, lineup: Lineup, books: Books) -> Iterator[Line]:
        """The lines of projects there is news about, and of those that share a ceiling with one."""
        projects = self._reader.take()
        sharing = chain.from_iterable(map(books.accounts.tree.ceiled_with, projects))
        return chain.from_iterable(map(lineup.lines_of, dict.fromkeys(chain(projects, sharing))))


def _wants(wishes: Wishes, books: Books) -> dict[Sort, Want]:
    """What each sort of wish wants for, but for what is kept for others."""
    found: dict[Sort, Want] = {}
    for sort, offer in wishes.sorts().items():
        least = _fewest(offer)
        enough = _free_for(books.now, least)
        is_cpu = enough and has_place(books.now, Offer(least.pool, least.request.without_cpu()))
        found[sort] = Want(enough, is_cpu)
    return found


def _kept(wishes: Wishes, books: Books, guards: Guards) -> dict[Wish, JobId]:
    """For whom what would do for a wish is kept."""
    kept: dict[Wish, JobId] = {}
    if guards:
        with guards.lifted():
            for sort, offer in wishes.sorts().items():
                guard = guards.in_pool(offer.pool.name)
                if guard is not None and _free_for(books.now, _fewest(offer)):
                    fitting = wishes.fitting(lambda offer: room_for(books.now, _fewest(offer)), sort)
                    kept.update(dict.fromkeys(fitting, guard.waiting.job.id))
    return kept


def _fewest(offer: Offer) -> Offer:
    """With as few workers as it could start with: that is what it wants for."""
    return offer.of(offer.least or offer.request.workers)


def _free_for(ledger: Ledger, offer: Offer) -> bool:
    """Whether as much is free in a pool, of the kind an offer asks for: whole devices, or any parts of them."""
    request, pool = offer.request, offer.pool.name
    if request.fraction_milli:
        return ledger.free_milli(pool, request.profile) >= request.total_milli
    return ledger.whole_devices(pool) * WHOLE_GPU >= request.total_milli


def _terms(line: Line, books: Books) -> Terms:
    """All that a project holds and has a right to that a reason may depend on."""
    accounts, project = books.accounts, line.project
    owner, domains = project_owner(project), line.needs(books.capacity).domains
    ceiled = {
        domain: (
            accounts.fixed(domain, project),
            *[accounts.held(domain, limited) for limited, _ in accounts.tree.limits(domain, project)],
        )
        for domain in domains
    }
    left = {domain: max(accounts.portion(domain, owner)) - accounts.held(domain, owner) for domain in domains}
    return Terms(ceiled, left)


def _may_matter(before: Terms, after: Terms, needs: Needs) -> bool:
    """Whether another ceiling may bind any of those who wait by other terms, or what is left is enough for others."""
    if before.ceiled != after.ceiled:
        return True
    return any(
        (milli > before.left_milli[domain]) is not (milli > after.left_milli[domain]) for domain, milli in needs.asked
    )


def _why(waiting: Waiting, wants: tuple[Want, ...], books: Books) -> Reason:
    """What binds a job that has no place: a ceiling, who has waited longer, CPU, the nodes, or the GPUs."""
    job, domain_of = waiting.job, books.capacity.domain_of
    barrier: Reason | None = None
    legal: list[tuple[Offer, Want]] = []
    for offer, want in zip(waiting.offers, wants, strict=True):
        forbids = forbidden(books.accounts, job, domain_of[offer.pool.name], offer.least_milli)
        if forbids is None:
            legal.append((offer, want))
        barrier = barrier or forbids
    if barrier is not None and not legal:
        return barrier
    for _, want in legal:
        if want.kept_for is not None:
            return reasons.held_back(want.kept_for)
    if not waiting.gpu_milli:
        return reasons.cpu_short(job)
    enough = [want for _, want in legal if want.enough]
    if enough:
        if any(want.is_cpu for want in enough):
            return reasons.cpu_short(job)
        return reasons.gang_short(job) if job.min_workers > 1 else reasons.scattered(job)
    return reasons.over_share(job) if _is_beyond_share(waiting, legal[0][0], books) else reasons.no_free_gpus(job)


def _is_beyond_share(waiting: Waiting, offer: Offer, books: Books) -> bool:
    domain, owner = books.capacity.domain_of[offer.pool.name], project_owner(waiting.job.id.project)
    held_milli, milli = books.accounts.held(domain, owner), offer.least_milli
    return milli > 0 and held_milli + milli > max(books.accounts.portion(domain, owner))
