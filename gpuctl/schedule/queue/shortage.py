"""What binds those who wait, told to all that are alike at once, as things stand when the turns are over.

It depends on what is free for what they ask, the same for all who ask it, and on what their project holds and has a
right to. Where neither has changed nobody is told anew. Cost: O(shapes), the projects there is news about, and
O(groups) of those that changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from gpuctl.model.decision import Reason
from gpuctl.model.ids import JobId
from gpuctl.model.units import WHOLE_GPU
from gpuctl.schedule import reasons
from gpuctl.schedule.books import Books
from gpuctl.schedule.jobs.lineup import Group, Line, Lineup, Needs, Terms
from gpuctl.schedule.jobs.ordering import Shape, Waiting
from gpuctl.schedule.news import News
from gpuctl.schedule.places.gang import Offer, Wish, has_place
from gpuctl.schedule.places.ledger import Ledger
from gpuctl.schedule.promises.starvation import Guards
from gpuctl.schedule.shares.accounts import project_owner
from gpuctl.schedule.shares.rights import forbidden


class Want(NamedTuple):
    """What a request wants for: whether GPUs are `enough`, whether only CPU or memory is short, and for whom what would
    do is `kept_for`."""

    enough: bool
    is_cpu: bool
    kept_for: JobId | None


class Shortages:
    """What those who wait want for, as they were told last."""

    __slots__ = ("_reader", "_wants")

    def __init__(self, news: News) -> None:
        self._reader = news.reader()
        self._wants: dict[Shape, tuple[Want, ...]] = {}

    def tell(self, lineup: Lineup, books: Books, guards: Guards) -> list[Group]:
        """Bring everybody's reason up to date; the groups whose reason is another now."""
        wants = _wants(lineup, books, guards)
        concerned = {
            group: None
            for shape, found in wants.items()
            if found != self._wants.get(shape)
            for group in lineup.shapes[shape]
        }
        self._wants = wants
        for line in self._changed(lineup, books):
            before, line.terms = line.terms, _terms(line, books)
            if before is None or _may_matter(before, line.terms, line.needs(books.capacity)):
                concerned.update(dict.fromkeys(line.groups.values()))
        told = []
        known: dict[object, Reason] = {}
        for group in concerned:
            found = wants[group.shape]
            gist = _gist(group, found)
            reason = known.get(gist)
            if reason is None:
                reason = known[gist] = _why(group.first, found, books)
            if reason != group.reason:
                group.reason = reason
                told.append(group)
        return told

    def _changed(self, lineup: Lineup, books: Books) -> Iterator[Line]:
        """The lines of projects there is news about, and of those that share a ceiling with one."""
        projects = self._reader.take()
        sharing = chain.from_iterable(map(books.accounts.tree.ceiled_with, projects))
        return chain.from_iterable(map(lineup.lines_of, dict.fromkeys(chain(projects, sharing))))


def _wants(lineup: Lineup, books: Books, guards: Guards) -> dict[Shape, tuple[Want, ...]]:
    """What each shape of request wants for."""
    wishes = {wish: offer.of(_fewest(wish)) for wish, offer in lineup.wishes().items()}
    kept: dict[Wish, JobId] = {}
    if guards:
        with guards.lifted():
            for wish, offer in wishes.items():
                guard = guards.in_pool(offer.pool.name)
                if guard is not None and _free_for(books.now, offer) and has_place(books.now, offer):
                    kept[wish] = guard.waiting.job.id
    found: dict[Wish, Want] = {}
    of_gpus: dict[tuple[object, ...], tuple[bool, bool]] = {}
    for wish, offer in wishes.items():
        pool, (gpu_milli, _, _, _, profile), _ = wish
        gpus = pool, gpu_milli, _fewest(wish), profile
        if gpus not in of_gpus:
            enough = _free_for(books.now, offer)
            of_gpus[gpus] = enough, enough and has_place(books.now, Offer(offer.pool, offer.request.without_cpu()))
        found[wish] = Want(*of_gpus[gpus], kept.get(wish))
    return {shape: tuple([found[wish] for wish in shape]) for shape in lineup.shapes}


def _fewest(wish: Wish) -> int:
    """With how few workers it could start: that is what it wants for."""
    _, request, least = wish
    return least or request.workers


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


def _gist(group: Group, wants: tuple[Want, ...]) -> object:
    """All that the reason of those in a group depends on: many differ in nothing but CPU and memory."""
    job = group.first.job
    asked = tuple([(wish[0], wish[1].gpu_milli, _fewest(wish)) for wish in group.shape])
    return group.line, asked, wants, job.preemptible, job.gpu_milli, job.min_workers, job.pools


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
