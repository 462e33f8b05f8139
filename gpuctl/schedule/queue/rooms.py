"""Where there is room for what those who wait ask for, as far as nobody has to make any.

It is looked for by sorts of wishes when the turns begin. From then on idle room only shrinks: who is to start is looked
for once more, and then all of its sort where it has none any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from functools import partial

from gpuctl.schedule.books import Books
from gpuctl.schedule.jobs.line import Group
from gpuctl.schedule.jobs.wishes import Wishes
from gpuctl.schedule.places.gang import Offer, Sort, Wish, has_place, room_for, sort_of
from gpuctl.schedule.places.sized import Fits
from gpuctl.schedule.promises.layout import Layout
from gpuctl.schedule.promises.starvation import Guards


class Room(Enum):
    """Where a request had a place when the turns began."""

    IDLE = 1
    KEPT = 2
    """Only where a place is kept for another."""


class Rooms:
    """The wishes that have room, and where."""

    __slots__ = ("_books", "_guards", "_idle", "_layout", "_rooms", "_wishes")

    def __init__(self, books: Books, guards: Guards, layout: Layout, wishes: Wishes) -> None:
        self._books = books
        self._guards = guards
        self._layout = layout
        self._wishes = wishes
        self._rooms: dict[Wish, Room] = {}
        self._idle: dict[Sort, list[Wish]] = {}
        if guards:
            with guards.lifted():
                for sort in wishes.sorts():
                    self._rooms.update(dict.fromkeys(wishes.fitting(self._room_for, sort), Room.KEPT))
        for sort in wishes.sorts():
            self._idle[sort] = list(wishes.fitting(self._room_for, sort))
            self._rooms.update(dict.fromkeys(self._idle[sort], Room.IDLE))

    def wishes(self) -> Collection[Wish]:
        """Those that have any."""
        return self._rooms

    def of(self, wish: Wish) -> Room | None:
        """Where there was room when it was looked for last."""
        return self._rooms.get(wish)

    def has_some(self, group: Group) -> bool:
        """Whether there was any for a group then."""
        return not self._rooms.keys().isdisjoint(group.shape)

    def look(self, wish: Wish, offer: Offer) -> Room | None:
        """Where there is room for an offer still."""
        if self._rooms.get(wish) is Room.IDLE and not self.has_room(offer):
            self._look_again(sort_of(wish))
        return self._rooms.get(wish)

    def close(self, offers: Iterable[Offer]) -> None:
        """There is no idle room for these any more; with fewer workers there may be."""
        for offer in offers:
            if not offer.least and self._rooms.get(offer.wish) is Room.IDLE:
                kept = [offer.wish] if self._guards and self._is_kept(offer) else []
                self._close([offer.wish], kept)

    def has_room(self, offer: Offer) -> bool:
        """With as few workers as it may start with; or enough is there, and those that start may move together."""
        least = _least(offer)
        return self._layout.may_lay_out(least) or has_place(self._books.now, least)

    def _is_kept(self, offer: Offer) -> bool:
        """Whether there is room for an offer where places are kept."""
        with self._guards.lifted():
            return has_place(self._books.now, offer)

    def _room_for(self, offer: Offer) -> Fits:
        """The same, of all like an offer."""
        if not self._layout.seats:
            return room_for(self._books.now, _least(offer))
        return lambda cpu_milli, mem_bytes: self.has_room(offer.of_size(cpu_milli, mem_bytes))

    def _look_again(self, sort: Sort) -> None:
        """Room is gone for some wishes of a sort that had some."""
        kept = frozenset[Wish]()
        idle = frozenset(self._wishes.fitting(self._room_for, sort))
        if self._guards:
            with self._guards.lifted():
                kept = frozenset(self._wishes.fitting(partial(room_for, self._books.now), sort))
        self._close([wish for wish in self._idle[sort] if wish not in idle], kept)
        self._idle[sort] = list(idle)

    def _close(self, wishes: Iterable[Wish], kept: Collection[Wish]) -> None:
        """What there was of idle room for some wishes is kept for others, or there is none."""
        for wish in wishes:
            if self._rooms.get(wish) is Room.IDLE:
                if wish in kept:
                    self._rooms[wish] = Room.KEPT
                else:
                    del self._rooms[wish]


def _least(offer: Offer) -> Offer:
    """The offer with as few workers as it may start with."""
    return offer.sized(offer.least or offer.request.workers) or offer
