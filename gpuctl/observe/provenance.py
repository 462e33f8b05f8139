"""Decides which objects gpuctl made, by their place and their maker. A label proves nothing: a tenant with the right to
write an object can write its labels.

A Job or Deployment is a run's own object by one of three proofs, the first that applies:

1. The project's ledger has the uid of the run's object: only the object of that uid is it.
2. The ledger's inventory names the object, and no uid is on record yet: gpuctl was killed right after it created the
   object, or recreates it. It is the run's if gpuctl applied it, by its managed fields.
3. The project's ledger is lost: as 2, for objects in the namespace that Git gives the project.

Proofs 2 and 3 rest on the name of a field manager, which every client can claim. They hold only inside the namespace of
the run's own project, so a false claim gains a tenant no more than a run of its own, charged for what its pods hold.

A pod is a run's if its controller is the run's object, or a ReplicaSet of it, and, while it lives, if it asks for all
devices of the object's template (see `pods.read_pod`): a tenant can write any controller on its own pod. When the
object is gone, its uid on record still identifies its pods. A ReplicaSet that is gone is identified by its name:
Kubernetes removes pods whose owner is gone.

Commands that only show, for a person without the right to read a project's ledger, go by labels; they decide nothing.
For an object in a namespace that they have read, they believe only labels of the namespace's own project.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import flag, is_own_apply, items, labels_of, text, uid
from gpuctl.k8s.workloads import is_workload, own_run
from gpuctl.model.ids import ObjectRef, ProjectName, RunKey
from gpuctl.model.memo import Memo
from gpuctl.model.state import Body, Ledger, OwnObject, RunEntry
from gpuctl.model.tenancy import Tenancy

InNamespace: TypeAlias = tuple[str, str]
"""A namespace, and a name or uid in it."""


class Owner(NamedTuple):
    """The controller of an object, in the same namespace."""

    namespace: str
    uid: str
    kind: str
    name: str


NO_OWNER = Owner("", "", "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What a ledger says about an object's name: its project and, once the object was seen, its run and uid."""

    project: ProjectName
    run: RunKey | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Testimony:
    """What ledgers say about objects: one project's ledger, or all. Two values are never equal, so an unchanged one is
    the same object.

    `uids` are those of runs' objects, existing or gone; `names` the names of those objects.
    """

    witnesses: Mapping[ObjectRef, Witness] = field(default_factory=dict)
    uids: Mapping[InNamespace, RunKey] = field(default_factory=dict)
    names: Mapping[InNamespace, RunKey] = field(default_factory=dict)
    entries: Mapping[RunKey, RunEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Which objects to trust where no ledger names a run. `homes`: the namespaces of projects whose ledger is lost.

    `kept`: projects with a ledger that can be read whole. `cluster` "": for commands that only show; labels in other
    projects are trusted, but in the namespaces of `shown` only labels of the project that has the namespace.
    """

    cluster: str = ""
    homes: Mapping[str, ProjectName] = field(default_factory=dict)
    kept: frozenset[ProjectName] = frozenset()
    shown: Mapping[str, ProjectName] = field(default_factory=dict)

    def home(self, namespace: str) -> ProjectName | None:
        """The project of a namespace if its ledger is lost; None if a ledger has to prove objects there."""
        return self.homes.get(namespace)


def trust_of(
    tenancy: Tenancy | None, kept: frozenset[ProjectName], namespaces: Mapping[ObjectRef, Body] | None = None
) -> Trust:
    """The trust for an observation. `kept`: projects with a ledger that can be read whole. `namespaces`: those that
    were read. No tenant can label a namespace, so its label names its project; without a label it belongs to no
    project."""
    if tenancy is None:
        found = namespaces or {}
        shown = {ref.name: ProjectName(text(labels_of(body), names.PROJECT_LABEL)) for ref, body in found.items()}
        return Trust(kept=kept, shown=shown)
    homes = {space: project for space, project in tenancy.projects.items() if project not in kept}
    return Trust(cluster=tenancy.cluster, homes=homes, kept=kept)


class Testimonies:
    """What each ledger says, gathered again only for ledgers that have changed."""

    __slots__ = ("_all", "_by_project")

    def __init__(self) -> None:
        self._by_project: Memo[tuple[int, ProjectName], Testimony] = Memo()
        self._all: Memo[None, Testimony] = Memo()

    def turn(self) -> None:
        """Begin another observation."""
        self._by_project.turn()
        self._all.turn()

    def of(self, ledgers: Iterable[Ledger], tenancy: Tenancy | None) -> Testimony:
        """The testimony of all ledgers together. Cost: linear in the inventories of ledgers that have changed."""
        spaces: dict[ProjectName, tuple[str, ...]] = {}
        for space, project in tenancy.projects.items() if tenancy else ():
            spaces[project] = (*spaces.get(project, ()), space)
        found = []
        for number, ledger in enumerate(ledgers):
            here = spaces.get(ledger.project, ())
            key = number, ledger.project
            found.append(self._by_project.get(key, (ledger, here), partial(_of_ledger, ledger, here)))
        return self._all.get(None, tuple(found), lambda: _together(found))


def _of_ledger(ledger: Ledger, spaces: tuple[str, ...]) -> Testimony:
    witnesses: dict[ObjectRef, Witness] = {}
    by_name = {names.run_name(run[0].name, run[1]): (run, entry) for run, entry in ledger.runs.items()}
    here = {*spaces}
    for ref in ledger.inventory:
        if is_workload(ref):
            run, entry = by_name.get(ref.name, (None, None))
            witnesses[ref] = Witness(project=ledger.project, run=run, uid=entry.uid if entry else "")
            here.add(ref.namespace)
        elif (ref.api_version, ref.kind) == kinds.NAMESPACE:
            here.add(ref.name)
    places = [(space, name, *found) for space in here for name, found in by_name.items()]
    return Testimony(
        witnesses=witnesses,
        uids={(space, entry.uid): run for space, _, run, entry in places if entry.uid},
        names={(space, name): run for space, name, run, _ in places},
        entries=ledger.runs,
    )


def _together(found: Iterable[Testimony]) -> Testimony:
    witnesses: dict[ObjectRef, Witness] = {}
    uids: dict[InNamespace, RunKey] = {}
    named: dict[InNamespace, RunKey] = {}
    entries: dict[RunKey, RunEntry] = {}
    for each in found:
        witnesses.update(each.witnesses)
        uids.update(each.uids)
        named.update(each.names)
        entries.update(each.entries)
    return Testimony(witnesses=witnesses, uids=uids, names=named, entries=entries)


def own_of(ref: ObjectRef, body: Body, witness: Witness | None, trust: Trust) -> OwnObject | None:
    """The run whose own object this Job or Deployment is, by the proofs above; None for a foreign object."""
    if witness is not None and witness.run is not None and witness.uid:
        return OwnObject(witness.run, witness.uid) if uid(body) == witness.uid else None
    run = own_run(ref, body, trust.cluster)
    if run is None:
        return None
    project = run[0].project
    if witness is None and not trust.cluster:
        is_others = project in trust.kept or trust.shown.get(ref.namespace, project) != project
        return None if is_others else OwnObject(run, uid(body))
    named = witness.project if witness is not None else trust.home(ref.namespace)
    return OwnObject(run, uid(body)) if project == named and _is_applied(body) else None


def _is_applied(body: Body) -> bool:
    """Whether gpuctl applied the object. An object as `kubectl get` prints it has no managed fields, and is
    believed."""
    entries = list(items(body, "metadata", "managedFields"))
    return not entries or any(map(is_own_apply, entries))


def owner_of(ref: ObjectRef, body: Body) -> Owner:
    """The controller that an object names."""
    for owner in items(body, "metadata", "ownerReferences"):
        if flag(owner, "controller"):
            return Owner(ref.namespace, text(owner, "uid"), text(owner, "kind"), text(owner, "name"))
    return NO_OWNER
