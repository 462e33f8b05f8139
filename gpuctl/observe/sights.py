"""What was seen in one cycle, for the next: an object that is the same still says the same.

Whatever is there for each object is read in columns, so that a cycle in which nearly all is as it was costs Python
hardly a step for one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat

from gpuctl.k8s.ledger import LedgerReading
from gpuctl.k8s.workloads import own_run, run_of
from gpuctl.model.ids import ObjectRef, RunKey
from gpuctl.model.memo import Memo, Sweep
from gpuctl.model.state import Body, Run
from gpuctl.observe.devices import (
    Claim,
    ClaimedDevices,
    DeviceInventory,
    HeldDevice,
    claimed_devices,
    device_inventory,
    read_claim,
)
from gpuctl.observe.nodes import NodeSights
from gpuctl.observe.pods import Pod, read_pod
from gpuctl.observe.roster import Roster, Workloads


class Sights:
    """Readings of pods, workloads and ledgers, each with the bodies it was made of: those are never changed in place.

    Holds what the last two observations were made of, and no more.
    """

    __slots__ = ("_claims", "_crews", "_inventories", "_owners", "_pods", "_roster", "ledgers", "nodes", "runs")

    def __init__(self) -> None:
        self._inventories: Memo[None, DeviceInventory] = Memo()
        self._claims: Sweep[ObjectRef, Claim] = Sweep()
        self._crews: Sweep[ObjectRef, RunKey | None] = Sweep()
        self._owners: Sweep[ObjectRef, RunKey | None] = Sweep()
        self._roster = Roster([], [])
        self._pods: Sweep[ObjectRef, Pod] = Sweep()
        self.nodes = NodeSights()
        self.runs: Sweep[RunKey, Run] = Sweep()
        self.ledgers: Memo[ObjectRef, LedgerReading | None] = Memo()

    def turn(self) -> None:
        """Another observation begins."""
        self._inventories.turn()
        self.ledgers.turn()

    def inventory(self, slices: Iterable[Body], classes: Iterable[Body]) -> DeviceInventory:
        """All published devices."""
        published, served = tuple(slices), tuple(classes)
        return self._inventories.get(None, (published, served), lambda: device_inventory(published, served))

    def claimed(
        self,
        claims: Mapping[ObjectRef, Body],
        inventory: DeviceInventory,
        our_pods: Mapping[ObjectRef, RunKey],
        cluster: str,
    ) -> ClaimedDevices:
        """Who holds which of them."""
        bodies, size = list(claims.values()), len(claims)
        columns = [bodies, repeat(inventory, size), repeat(cluster, size)]
        read = self._claims.over(claims, columns, lambda place: read_claim(bodies[place], inventory, cluster))
        return claimed_devices(read, our_pods)

    def pod_runs(self, pods: Mapping[ObjectRef, Body], cluster: str) -> dict[ObjectRef, RunKey]:
        """The runs pods are of, by their labels."""
        refs, bodies = list(pods), list(pods.values())
        labelled = [bodies, repeat(cluster, len(refs))]
        found = self._crews.over(refs, labelled, lambda place: run_of(bodies[place], cluster))
        return {ref: run for ref, run in zip(refs, found, strict=True) if run is not None}

    def workloads(self, bodies: Mapping[ObjectRef, Body], cluster: str) -> Workloads:
        """The Jobs and Deployments that are runs' own objects; the last by reference, where several would be."""
        refs, lives = list(bodies), list(bodies.values())
        labelled = [lives, repeat(cluster, len(refs))]
        found = self._owners.over(refs, labelled, lambda place: own_run(refs[place], lives[place], cluster))
        if not self._roster.is_of(refs, found):
            self._roster = Roster(refs, found)
        return self._roster.with_bodies(lives)

    def pods(
        self,
        bodies: Mapping[ObjectRef, Body],
        runs: Mapping[ObjectRef, RunKey],
        devices: Mapping[ObjectRef, tuple[HeldDevice, ...]],
    ) -> list[Pod]:
        """All pods' facts."""
        refs, lives = list(bodies), list(bodies.values())
        whose = list(map(runs.get, refs))
        given = list(map(devices.get, refs, repeat(())))
        return self._pods.over(
            refs, [lives, whose, given], lambda place: read_pod(refs[place], lives[place], whose[place], given[place])
        )
