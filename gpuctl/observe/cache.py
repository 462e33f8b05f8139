"""The cache of `observe`: what was read from an object is used again in the next cycle while the object is the same.

The inputs are compared in columns, one entry an object, so that an unchanged object costs hardly a Python step.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat

from gpuctl.k8s import kinds
from gpuctl.k8s.ledger import LedgerReading
from gpuctl.k8s.objects import uid
from gpuctl.k8s.requests import Requests
from gpuctl.k8s.workload_table import BUILT_IN, Rows
from gpuctl.model.ids import NodeName, ObjectRef, ProjectName, RunKey
from gpuctl.model.memo import Memo, Sweep
from gpuctl.model.state import Body, Charge, Ledger, OwnObject, Run, RunPhase
from gpuctl.model.tenancy import Tenancy
from gpuctl.observe.charges import Excess, excess_of
from gpuctl.observe.devices import (
    Claim,
    ClaimedDevices,
    DeviceInventory,
    HeldDevice,
    claimed_devices,
    device_inventory,
    read_claim,
)
from gpuctl.observe.memories import Memory, memories_of
from gpuctl.observe.nodes import NodeCache
from gpuctl.observe.pods import Devices, Pod, read_pod, template_devices, unreadable_pod, without_strangers
from gpuctl.observe.provenance import (
    NO_OWNER,
    Owner,
    Testimonies,
    Testimony,
    Trust,
    Witness,
    own_of,
    owner_of,
    trust_of,
)
from gpuctl.observe.roster import Lineage, Roster, Workloads
from gpuctl.observe.unreadable import Faults, Unreadable, read

_NO_CLAIM = Claim(pods=frozenset(), held=())


class ObserveCache:
    """Caches what was read from pods, workloads, ledgers and nodes, each value with the bodies it was read from.

    Bodies are never changed in place. The cache holds the values of the last two observations at most. `faults` are
    those of the current observation.
    """

    __slots__ = (
        "_asked", "_claims", "_excess", "_inventories", "_lineages", "_memories", "_own", "_owners", "_pods",
        "_roster", "_rows", "_sets", "_testimonies", "_trusts", "_witnesses", "faults", "ledgers", "nodes", "runs",
    )  # fmt: skip

    def __init__(self) -> None:
        self._begin(BUILT_IN)

    def _begin(self, rows: Rows) -> None:
        self._rows = rows
        self._inventories: Memo[None, DeviceInventory] = Memo()
        self._claims: Sweep[ObjectRef, Claim | Unreadable[Claim]] = Sweep()
        self._own: Sweep[ObjectRef, OwnObject | Unreadable[OwnObject | None] | None] = Sweep()
        self._owners: Sweep[ObjectRef, Owner | Unreadable[Owner]] = Sweep()
        self._sets: Sweep[ObjectRef, Owner | Unreadable[Owner]] = Sweep()
        self._lineages: Memo[None, Lineage] = Memo()
        self._witnesses: Memo[None, list[Witness | None]] = Memo()
        self._memories: Memo[None, list[Memory]] = Memo()
        self._trusts: Memo[None, Trust] = Memo()
        self._testimonies = Testimonies()
        self._roster = Roster([], [])
        self._asked: Sweep[RunKey, Devices | Unreadable[Devices]] = Sweep()
        self._pods: Sweep[ObjectRef, Pod | Unreadable[Pod]] = Sweep()
        self._excess: Sweep[ObjectRef, Excess | None] = Sweep()
        self.nodes = NodeCache()
        self.runs: Sweep[RunKey, Run | Unreadable[Run]] = Sweep()
        self.ledgers: Memo[ObjectRef, LedgerReading | None] = Memo()
        self.faults = Faults()

    def turn(self, rows: Rows) -> None:
        """Begin another observation. Values that it does not use are dropped by the next turn; other rows of kinds drop
        all."""
        if rows != self._rows:
            self._begin(rows)
        memos = (self._inventories, self._lineages, self._witnesses, self._memories, self._trusts, self.ledgers)
        for memo in memos:
            memo.turn()
        self._testimonies.turn()
        self.faults = Faults()

    def inventory(self, slices: Iterable[Body], classes: Iterable[Body]) -> DeviceInventory:
        """All published devices."""
        published, served = tuple(slices), tuple(classes)
        return self._inventories.get(None, (published, served), lambda: device_inventory(published, served))

    def trust(
        self, tenancy: Tenancy | None, kept: frozenset[ProjectName], namespaces: Mapping[ObjectRef, Body]
    ) -> Trust:
        """Which objects to trust where no ledger names a run."""
        shown = None if tenancy else namespaces
        return self._trusts.get(None, (tenancy, kept, shown), lambda: trust_of(tenancy, kept, shown))

    def told(self, ledgers: Iterable[Ledger], tenancy: Tenancy | None) -> Testimony:
        """The testimony of the ledgers about objects."""
        return self._testimonies.of(ledgers, tenancy)

    def workloads(self, bodies: Mapping[ObjectRef, Body], told: Testimony, trust: Trust, rows: Rows) -> Workloads:
        """The Jobs and Deployments that are a run's own object; if several could be one run's, the last by
        reference."""
        refs, lives = list(bodies), list(bodies.values())
        said = self._witnesses.get(None, (told, refs), lambda: list(map(told.witnesses.get, refs)))
        found = self._own.over(
            refs,
            [lives, said, repeat(trust, len(refs))],
            lambda at: read(partial(own_of, refs[at], lives[at], said[at], trust), _nothing),
        )
        own = self.faults.sift(refs, found)
        if not self._roster.is_of(refs, own):
            self._roster = Roster(refs, own)
        return self._roster.with_bodies(lives, rows)

    def memories(
        self, workloads: Workloads, told: Testimony, trust: Trust, ledgers: Mapping[ProjectName, Ledger]
    ) -> list[Memory]:
        """The memory of each of the workloads' runs."""
        inputs = (told, trust, workloads.runs, workloads.bodies)
        return self._memories.get(None, inputs, lambda: memories_of(workloads, told.entries, trust, ledgers))

    def pod_runs(
        self, pods: Mapping[ObjectRef, Body], sets: Mapping[ObjectRef, Body], told: Testimony
    ) -> list[RunKey | None]:
        """The run of each pod, by its controller. `sets`: objects that may stand between run and pod, mostly
        ReplicaSets.

        A pod may stand between too: the leader of a LeaderWorkerSet's group owns the StatefulSet of its workers.
        """
        owners = self._owners_of(self._owners, pods)
        refs, of_sets, uids = list(sets), self._owners_of(self._sets, sets), list(map(uid, sets.values()))
        leaders = {owner.uid for owner in of_sets if owner.kind == kinds.POD[1]}
        if leaders:
            found = [(at, own) for at, own in enumerate(map(uid, pods.values())) if own in leaders]
            every = list(pods)
            refs += [every[at] for at, _ in found]
            of_sets, uids = [*of_sets, *(owners[at] for at, _ in found)], [*uids, *(own for _, own in found)]
        inputs = (self._roster, told, refs, of_sets, uids)
        make = partial(Lineage, self._roster, told, dict(zip(refs, of_sets, strict=True)), uids)
        return self._lineages.get(None, inputs, make).runs_of(owners)

    def claimed(
        self,
        claims: Mapping[ObjectRef, Body],
        inventory: DeviceInventory,
        our_pods: Mapping[ObjectRef, RunKey],
        pods: Mapping[ObjectRef, Body],
    ) -> ClaimedDevices:
        """The devices that claims hold, and the pods that they are held for."""
        refs, bodies = list(claims), list(claims.values())
        found = self._claims.over(
            refs,
            [bodies, repeat(inventory, len(refs))],
            lambda at: read(partial(read_claim, bodies[at], inventory), lambda: _NO_CLAIM),
        )
        return claimed_devices(self.faults.sift(refs, found), our_pods, pods)

    def pods(
        self,
        bodies: Mapping[ObjectRef, Body],
        runs: Sequence[RunKey | None],
        devices: Mapping[ObjectRef, tuple[HeldDevice, ...]],
        workloads: Workloads,
    ) -> list[Pod]:
        """The facts of all pods. `runs` are the pods' runs by their controllers, in the same order."""
        refs, lives = list(bodies), list(bodies.values())
        given = list(map(devices.get, refs, repeat(())))
        by_run: dict[RunKey | None, Devices] = dict(self._asked_by(workloads).items())
        asked: list[Devices | None] = list(map(by_run.get, runs))
        found = self._pods.over(
            refs,
            [lives, runs, given, asked],
            lambda at: read(
                partial(read_pod, refs[at], lives[at], runs[at], given[at], asked[at]),
                partial(unreadable_pod, refs[at], lives[at]),
            ),
        )
        read_pods = self.faults.sift(refs, found)
        has_helpers = any(devices.beside != _NO_REQUESTS for devices in by_run.values())
        return without_strangers(read_pods, by_run) if has_helpers else read_pods

    def _asked_by(self, workloads: Workloads) -> dict[RunKey, Devices]:
        """The devices that the templates of the runs' objects ask for; none for an unreadable template."""
        bodies, rows = workloads.bodies, workloads.rows
        found = self._asked.over(
            workloads.runs, [bodies], lambda at: read(partial(template_devices, bodies[at], rows), Devices)
        )
        return dict(zip(workloads.runs, self.faults.sift(workloads.refs, found), strict=True))

    def excess(self, pods: Sequence[Pod], runs: Sequence[Run], named: Container[NodeName | None]) -> list[Excess]:
        """What pods of runs have beyond the runs' charges. `named`: nodes where HAMi gives GPUs by name."""
        of_run = {
            (run.job, run.digest): Charge(gpu_milli=run.gpu_milli, cpu_milli=run.cpu_milli, mem_bytes=run.mem_bytes)
            for run in runs
            if run.phase is not RunPhase.QUEUED
        }
        own = [pod for pod in pods if pod.run is not None]
        charged = [of_run.get(pod.run, _NO_CHARGE) for pod in own]  # type: ignore[arg-type]
        by_name = [pod.node in named for pod in own]
        found = self._excess.over(
            [pod.ref for pod in own],
            [own, charged, by_name],
            lambda at: excess_of(own[at], charged[at], named=by_name[at]),
        )
        return [excess for excess in found if excess is not None]

    def _owners_of(
        self, known: Sweep[ObjectRef, Owner | Unreadable[Owner]], bodies: Mapping[ObjectRef, Body]
    ) -> list[Owner]:
        refs, lives = list(bodies), list(bodies.values())
        found = known.over(refs, [lives], lambda at: read(partial(owner_of, refs[at], lives[at]), lambda: NO_OWNER))
        return self.faults.sift(refs, found)


_NO_CHARGE = Charge()
_NO_REQUESTS = Requests()


def _nothing() -> None:
    return None
