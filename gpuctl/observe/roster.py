"""Which objects are the runs' own, in the order of the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuctl.model.ids import ObjectRef, RunKey
from gpuctl.model.state import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """The runs' own objects in columns, by job and digest; `places` has the run's place in each of them."""

    runs: Sequence[RunKey]
    refs: Sequence[ObjectRef]
    bodies: Sequence[Body]
    places: Mapping[RunKey, int]


class Roster:
    """Who is whose among some objects: as long as nobody comes or goes, that is not sorted again."""

    __slots__ = ("_found", "_order", "_own", "_places", "_refs", "_runs")

    def __init__(self, refs: Sequence[ObjectRef], found: Sequence[RunKey | None]) -> None:
        self._refs, self._found = refs, found
        by_ref = sorted(range(len(refs)), key=refs.__getitem__)
        at = {run: place for place in by_ref if (run := found[place]) is not None}
        self._runs = sorted(at)
        self._order = [at[run] for run in self._runs]
        self._own = [refs[place] for place in self._order]
        self._places = {run: place for place, run in enumerate(self._runs)}

    def is_of(self, refs: Sequence[ObjectRef], found: Sequence[RunKey | None]) -> bool:
        """Whether these are the same objects, of the same runs."""
        return refs == self._refs and found == self._found

    def with_bodies(self, bodies: Sequence[Body]) -> Workloads:
        """The runs with their objects as they are now."""
        lives = list(map(bodies.__getitem__, self._order))
        return Workloads(runs=self._runs, refs=self._own, bodies=lives, places=self._places)
