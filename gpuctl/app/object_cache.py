"""The object cache: a local copy of the cluster, kept current by watches. An unchanged cluster is not read again.

Level-triggered: watch events only bring the cache up to date; decisions are made from all of it. When a watch can't be
continued, a new list replaces everything of its kind.

Of each object the cache has only the parts that a cycle reads (`gpuctl/app/kept.py`), however large the object is.

The object of a run that has succeeded stays in the cache after it is deleted, until a cycle has recorded the success. A
policy of the cluster may have Kubernetes delete a Job as soon as it has ended, before any cycle could see its end.

Writes go through the cache and are in it at once. So the next cycle never decides on a cluster as it was before the
writes of this one, however late the watch reports them. Of two bodies the one with the higher resource version is
newer: the API server gives versions out in ascending order (KEP-5504).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gpuctl.app.change_urgency import alters
from gpuctl.app.kept import Keep
from gpuctl.app.ports import Cluster, ClusterUnavailable, Forbidden, Gone, NotFound, R, RightDoubted, T
from gpuctl.diag.wording import message
from gpuctl.k8s import kinds
from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.kinds import CONFIG_MAP, OBSERVED, Kind
from gpuctl.k8s.objects import ref_of, resource_version, text
from gpuctl.k8s.workload_table import BUILT_IN, rows_of
from gpuctl.k8s.workloads import is_workload
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body, RawObjects
from gpuctl.model.workload_kind import WorkloadKind
from gpuctl.observe.shapes import has_succeeded

_MOST_GONE = 1_000
"""The most deleted objects that are kept until the success of their runs is recorded. Beyond it, the oldest of the
namespace with the most is dropped: people who may make Jobs there can have thousands succeed, and delete them."""


def unread_now(kind: Kind, fault: ClusterUnavailable) -> ClusterUnavailable:
    """The fault for a kind of another controller that the server can't read now. The other kinds are still read."""
    return ClusterUnavailable("GPU7025", message("GPU7025", {"kind": kinds.in_words(kind), "why": str(fault)}))


class ObjectCache:
    """A local copy of the cluster's objects; writes go through it. Bodies in it are replaced, never changed."""

    def __init__(
        self, cluster: Cluster, read: Iterable[Kind] = OBSERVED, keep: Callable[[Body], Body] | None = None
    ) -> None:
        """`read`: the kinds, besides those that a Cluster declares. `keep` cuts a body down to the parts to cache; the
        default is a `Keep`."""
        self._cluster = cluster
        self._keep = keep or Keep()
        self._objects: dict[Kind, dict[ObjectRef, Body]] = {kind: {} for kind in read}
        self._versions: dict[Kind, str] = {}
        self._faults: dict[Kind, Forbidden | ClusterUnavailable] = {}
        self._absent: set[Kind] = set()
        self._altered = False
        self._copy: RawObjects | None = None
        self._rows = BUILT_IN
        self._gone: dict[ObjectRef, None] = {}
        """The cached objects that are deleted, in the order of their deletion."""

    @property
    def altered(self) -> bool:
        """Whether the last refresh brought a change that needs a cycle, whatever is observed of it."""
        return self._altered

    @property
    def synced(self) -> bool:
        """Whether each kind was read at least once since its watch was last lost, except kinds that can't be read or
        are absent."""
        return self._objects.keys() == self._versions.keys() | self._faults.keys() | self._absent

    @property
    def faults(self) -> Mapping[Kind, Forbidden | ClusterUnavailable]:
        """Why kinds could not be read at the last refresh: Forbidden where gpuctl has no right to, else GPU7025."""
        return {**self.refused, **self.unread}

    @property
    def refused(self) -> Mapping[Kind, Forbidden]:
        """Kinds that gpuctl has no right to read, none of them decisive. The cache has their objects as last read, if
        ever."""
        return {kind: fault for kind, fault in self._faults.items() if isinstance(fault, Forbidden)}

    @property
    def missed(self) -> Mapping[Kind, Forbidden | ClusterUnavailable]:
        """The faults that may hide objects: gpuctl lost the right to a kind that has objects, or may have some; or the
        server can't read a kind now."""
        refused = {k: fault for k, fault in self.refused.items() if self._objects[k] or self._is_in_a_ledger(k)}
        return {**self.unread, **refused}

    @property
    def absent(self) -> frozenset[Kind]:
        """Kinds that the server does not serve."""
        return frozenset(self._absent)

    @property
    def unread(self) -> Mapping[Kind, ClusterUnavailable]:
        """Kinds of other controllers that the server can't read now, for example as a conversion webhook is away. The
        cache has their objects as last read."""
        return {k: unread_now(k, fault) for k, fault in self._faults.items() if isinstance(fault, ClusterUnavailable)}

    @property
    def lacking(self) -> frozenset[Kind]:
        """Kinds that are not read now, for whatever reason."""
        return frozenset({*self._absent, *self._faults})

    def read_also(self, declared: Sequence[WorkloadKind]) -> None:
        """From the next refresh on, read the kinds that a Cluster declares. Kinds that are no longer declared are
        dropped."""
        rows = rows_of(declared)
        if rows == self._rows:
            return
        for kind in self._rows.keys() - rows.keys():
            del self._objects[kind]
            self._versions.pop(kind, None)
            self._faults.pop(kind, None)
            self._absent.discard(kind)
        self._objects |= {row.kind: {} for row in declared if row.kind not in self._objects}
        self._rows, self._copy = rows, None

    def refresh(self) -> int:
        """Take in the changes since the last call. Returns how many objects changed, without gpuctl's own writes.

        Raises ClusterUnavailable, Forbidden; changes taken in before that stay. Raises GPU7026 where there are runs of
        a kind that can't be read, and no object of it is known.

        Cost: a list a kind at first and after a 410; else a request a kind and the changes.
        """
        changes = self.take_in()
        for kind, fault in self._faults.items():
            if kinds.is_of_others(kind) and not self._objects[kind] and self._is_in_a_ledger(kind):
                told = message("GPU7026", {"kind": kinds.in_words(kind), "why": str(fault)})
                fault_type = Forbidden if isinstance(fault, Forbidden) else ClusterUnavailable
                raise fault_type("GPU7026", told)
        return changes

    def require(self, needed: Collection[Kind]) -> None:
        """Raise Forbidden where gpuctl has no right to read one of these kinds."""
        for kind, fault in self.refused.items():
            if kind in needed:
                raise fault.with_traceback(None)

    def take_in(self) -> int:
        """Refresh, for callers that only show what can be read; `faults` tells the rest."""
        self._altered = False
        return sum(self._refresh_if_it_can(kind) for kind in self._objects)

    def _refresh_if_it_can(self, kind: Kind) -> int:
        """Refresh a kind. If a kind that is not decisive can't be read now, the other kinds are still read.

        Of its own kinds the server answers for all, or it is away.
        """
        before = self._faults.pop(kind, None)
        try:
            return self._refresh_kind(kind)
        except RightDoubted:
            raise  # the server has just started: without any of its objects for a moment, jobs would lose their places
        except (Forbidden, ClusterUnavailable) as fault:
            can_do_without = not kinds.is_decisive(kind) if isinstance(fault, Forbidden) else kinds.is_of_others(kind)
            if not can_do_without:
                raise
            self._faults[kind] = fault
            return 0
        finally:
            if (kind in self._faults) != (before is not None):
                self._copy = None

    def _is_in_a_ledger(self, kind: Kind) -> bool:
        """Whether gpuctl may have made objects of the kind, of any version: if it could not see them, it would take
        their runs for gone.

        Security: only the inventories are searched, where no name of an object looks like a kind. Other parts hold
        words of tenants, such as the name of an image that can't be pulled.
        """
        ledgers = self._objects.get(CONFIG_MAP, {}).values()
        return any(f' {kind[1]}"' in text(body, "data", "inventory") for body in ledgers)

    def objects(self) -> RawObjects:
        """The objects as they are now: the same value until one changes. A returned value never changes."""
        if self._copy is None:
            by_kind = {kind: dict(of_kind) for kind, of_kind in self._objects.items()}
            bodies: dict[ObjectRef, Body] = {}
            for of_kind in by_kind.values():
                bodies.update(of_kind)
            self._copy = RawObjects(objects=bodies, by_kind=by_kind, unseen=frozenset(self._faults))
        return self._copy

    def get(self, ref: ObjectRef) -> Body | None:
        """One object as it is now; None if it is not there."""
        return self._of_kind(ref).get(ref)

    def of_kind(self, kind: Kind) -> Iterable[Body]:
        """All objects of a kind as they are now."""
        return self._objects.get(kind, {}).values()

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        """Apply, as the port does. The stored object is in the cache at once."""
        stored = self._cluster.apply(body, is_new=is_new)
        self._take(ref_of(stored), stored)
        return stored

    def check(self, body: Body) -> None:
        """Check a write without changing anything, as the port does."""
        self._cluster.check(body)

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        """Delete, as the port does. The cache drops the object, or keeps its state while it ends."""
        ending = self._cluster.delete(ref, uid, resource_version)
        if ending is not None:
            self._take(ref, ending)
        else:
            self._forget(ref)
        return ending

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        """Do the work for every item, as the port does."""
        return self._cluster.each(work, items)

    def drop_gone(self, is_on_record: Callable[[ObjectRef], bool]) -> None:
        """Drop the deleted objects whose end is on record."""
        for ref in [ref for ref in self._gone if is_on_record(ref)]:
            self._forget(ref)

    def _forget(self, ref: ObjectRef) -> None:
        self._gone.pop(ref, None)
        self._of_kind(ref).pop(ref, None)
        self._copy = None

    def _of_kind(self, ref: ObjectRef) -> dict[ObjectRef, Body]:
        """The cached objects of the kind of `ref`; a new mapping, which is not kept, for a kind that is not watched."""
        return self._objects.get((ref.api_version, ref.kind), {})

    def _take(self, ref: ObjectRef, body: Body) -> bool:
        """Cache a body, unless the cached one is as new or newer. Returns whether it was cached."""
        objects = self._of_kind(ref)
        if ref in objects and _age(objects[ref]) >= _age(body):
            return False
        objects[ref] = self._keep(body)
        self._gone.pop(ref, None)
        self._copy = None
        return True

    def _refresh_kind(self, kind: Kind) -> int:
        version = self._versions.get(kind)
        if version is not None:
            try:
                return self._follow(kind, version)
            except Gone:
                del self._versions[kind]
        return self._relist(kind)

    def _follow(self, kind: Kind, version: str) -> int:
        changes = 0
        for event in self._cluster.watch(kind, version, 0):
            version = resource_version(event.body) or version
            if event.type == "BOOKMARK":
                continue
            ref = ref_of(event.body)
            old, gone = self._objects[kind].get(ref), event.type == "DELETED"
            if self._drop(event.body) if gone else self._take(ref, event.body):
                changes += 1
                self._altered = self._altered or alters(ref, old, self._objects[kind].get(ref), self._rows)
        self._versions[kind] = version
        return changes

    def _drop(self, body: Body) -> bool:
        """Drop a deleted object, unless it was made again since. If its run has succeeded, `drop_gone` drops it later.
        Returns whether it was there."""
        ref = ref_of(body)
        objects = self._of_kind(ref)
        if ref not in objects or _age(objects[ref]) > _age(body):
            return False
        if is_workload(ref) and has_succeeded(body, self._rows):
            self._take(ref, body)
            self._gone[ref] = None
            if len(self._gone) > _MOST_GONE:  # a replica that stands by records nothing
                ((most, _),) = Counter(ref.namespace for ref in self._gone).most_common(1)
                self._forget(next(ref for ref in self._gone if ref.namespace == most))
        else:
            self._forget(ref)
        return True

    def _relist(self, kind: Kind) -> int:
        """Read a kind anew. An object that is not in the list is gone, however new it was: the server may have gone
        back."""
        try:
            listed = self._cluster.list(kind)
        except NotFound:
            self._absent.add(kind)
            return 0
        self._absent.discard(kind)
        old = self._objects[kind]
        fresh = {ref_of(body): self._keep(body) for body in listed.items}
        changes = sum(old.get(ref) != body for ref, body in fresh.items()) + len(old.keys() - fresh.keys())
        self._altered = self._altered or changes > 0
        self._objects[kind] = fresh
        self._gone = {ref: None for ref in self._gone if (ref.api_version, ref.kind) != kind}
        self._copy = None
        self._versions[kind] = listed.resource_version
        return changes


def _age(body: Body) -> int:
    """The resource version as a number; an object without one is older than all others."""
    version = resource_version(body)
    number = whole_number(version)
    return -1 if number is None else number
