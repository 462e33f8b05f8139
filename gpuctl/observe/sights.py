"""What was seen in one cycle, for the next: an object that is the same still says the same."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

from gpuctl.k8s.ledger import LedgerReading
from gpuctl.k8s.workloads import own_run, run_of
from gpuctl.model.ids import ObjectRef, RunKey
from gpuctl.model.memo import Memo, Sweep
from gpuctl.model.state import Body, Run
from gpuctl.observe.devices import HeldDevice
from gpuctl.observe.nodes import NodeSights
from gpuctl.observe.pods import Pod, read_pod


class Sights:
    """Readings of pods, workloads and ledgers, each with the bodies it was made of: those are never changed in place.

    Holds what the last two observations were made of, and no more.
    """

    __slots__ = ("_crews", "_owners", "_pods", "ledgers", "nodes", "runs")

    def __init__(self) -> None:
        self._crews: Sweep[ObjectRef, RunKey | None] = Sweep()
        self._owners: Sweep[ObjectRef, RunKey | None] = Sweep()
        self._pods: Sweep[ObjectRef, Pod] = Sweep()
        self.nodes = NodeSights()
        self.runs: Sweep[RunKey, Run] = Sweep()
        self.ledgers: Memo[ObjectRef, LedgerReading | None] = Memo()

    def turn(self) -> None:
        """Another observation begins."""
        self.ledgers.turn()

    def pod_runs(self, pods: Mapping[ObjectRef, Body], cluster: str) -> dict[ObjectRef, RunKey]:
        """The runs pods are of, by their labels."""
        refs, bodies = list(pods), list(pods.values())
        labelled = [bodies, repeat(cluster, len(refs))]
        found = self._crews.over(refs, labelled, lambda place: run_of(bodies[place], cluster))
        return {ref: run for ref, run in zip(refs, found, strict=True) if run is not None}

    def workloads(self, bodies: Mapping[ObjectRef, Body], cluster: str) -> dict[RunKey, tuple[ObjectRef, Body]]:
        """The Jobs and Deployments that are runs' own objects; the last by reference, where several would be."""
        refs, lives = list(bodies), list(bodies.values())
        labelled = [lives, repeat(cluster, len(refs))]
        found = self._owners.over(refs, labelled, lambda place: own_run(refs[place], lives[place], cluster))
        own = {run: pair for run, pair in zip(found, bodies.items(), strict=True) if run is not None}
        if len(own) < len(found) - found.count(None):
            return {run: pair for pair, run in sorted(zip(bodies.items(), found, strict=True)) if run is not None}
        return own

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
