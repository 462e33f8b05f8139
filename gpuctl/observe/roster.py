"""Which objects are the runs' own, in the order of the runs, and which pods are theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuctl.k8s import kinds
from gpuctl.k8s.workload_table import BUILT_IN, Rows
from gpuctl.k8s.workloads import is_of_manifest
from gpuctl.model.ids import ObjectRef, RunKey
from gpuctl.model.state import Body, OwnObject
from gpuctl.observe.provenance import NO_OWNER, InNamespace, Owner, Testimony


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """The runs' own objects in columns, by job and digest. `places`: each run's place in the columns. `by_ref`: each
    object's run. `foreign`: objects that belong to no run. `others`: there are objects of other controllers' kinds;
    `rows` describes those kinds."""

    runs: Sequence[RunKey]
    refs: Sequence[ObjectRef]
    bodies: Sequence[Body]
    places: Mapping[RunKey, int]
    by_ref: Mapping[ObjectRef, OwnObject]
    foreign: frozenset[ObjectRef]
    others: bool = False
    rows: Rows = field(default_factory=lambda: BUILT_IN)


class Roster:
    """Finds the runs' own objects among all. The result is kept as long as the same objects belong to the same runs."""

    __slots__ = ("_by_ref", "_foreign", "_found", "_order", "_others", "_own", "_places", "_refs", "_runs", "uids")

    def __init__(self, refs: Sequence[ObjectRef], found: Sequence[OwnObject | None]) -> None:
        self._refs, self._found = refs, found
        by_ref = sorted(range(len(refs)), key=refs.__getitem__)
        at = {own.run: place for place in by_ref if (own := found[place]) is not None}
        self._runs = sorted(at)
        self._order = [at[run] for run in self._runs]
        self._own = [refs[place] for place in self._order]
        self._places = {run: place for place, run in enumerate(self._runs)}
        self._by_ref = {refs[place]: own for run in self._runs if (own := found[place := at[run]]) is not None}
        self._others = any(map(is_of_manifest, refs))
        self._foreign = frozenset(ref for ref, own in zip(refs, found, strict=True) if own is None)
        self.uids: Mapping[InNamespace, RunKey] = {
            (ref.namespace, own.uid): own.run for ref, own in zip(refs, found, strict=True) if own is not None
        }
        """The runs of live objects, by uid."""

    def is_of(self, refs: Sequence[ObjectRef], found: Sequence[OwnObject | None]) -> bool:
        """Whether these are the same objects, of the same runs."""
        return refs == self._refs and found == self._found

    def with_bodies(self, bodies: Sequence[Body], rows: Rows) -> Workloads:
        """The runs with their objects as they are now."""
        lives = list(map(bodies.__getitem__, self._order))
        return Workloads(
            runs=self._runs,
            refs=self._own,
            bodies=lives,
            places=self._places,
            by_ref=self._by_ref,
            foreign=self._foreign,
            others=self._others,
            rows=rows,
        )


_MOST_BETWEEN = 4
"""The most objects between a run's object and a pod: a StatefulSet, its leader pod, that pod's StatefulSet, and one to
spare."""


class Lineage:
    """Finds the run of a pod by its controller: the run's object, live or on record, or a ReplicaSet of it."""

    __slots__ = ("_by_uid", "_names", "_sets")

    def __init__(
        self, roster: Roster, told: Testimony, sets: Mapping[ObjectRef, Owner], set_uids: Iterable[str]
    ) -> None:
        """`sets`: the objects between, mostly live ReplicaSets, with their controllers; `set_uids`: their own uids, in
        the same order."""
        self._by_uid: dict[InNamespace, RunKey] = {**told.uids, **roster.uids}
        self._names, self._sets = told.names, sets
        left = [((ref.namespace, own), owner[:2]) for (ref, owner), own in zip(sets.items(), set_uids, strict=True)]
        for _ in range(_MOST_BETWEEN):
            found = {own: run for own, owner in left if (run := self._by_uid.get(owner)) is not None}
            if not found:
                break
            self._by_uid |= found
            left = [each for each in left if each[0] not in found]

    def runs_of(self, owners: Sequence[Owner]) -> list[RunKey | None]:
        """The runs of pods with these controllers. Cost: a look-up for each."""
        found = list(map(self._by_uid.get, (owner[:2] for owner in owners)))
        for place, run in enumerate(found):
            if run is None and owners[place] is not NO_OWNER:
                found[place] = self._of_gone_set(owners[place])
        return found

    def _of_gone_set(self, owner: Owner) -> RunKey | None:
        """The run of a ReplicaSet that is gone. ReplicaSets are named after their Deployment; Kubernetes soon removes
        pods whose ReplicaSet does not exist."""
        kind = kinds.REPLICA_SET
        if owner.kind != kind[1] or ObjectRef(*kind, owner.namespace, owner.name) in self._sets:
            return None
        return self._names.get((owner.namespace, owner.name.rpartition("-")[0]))
