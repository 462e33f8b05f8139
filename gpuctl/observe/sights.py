"""What was seen in one cycle, for the next: an object that is the same still says the same."""

from __future__ import annotations

from gpuctl.k8s.ledger import LedgerReading
from gpuctl.k8s.workloads import own_run, run_of
from gpuctl.model.ids import ObjectRef, RunKey
from gpuctl.model.memo import Memo
from gpuctl.model.state import Body, Run
from gpuctl.observe.devices import HeldDevice
from gpuctl.observe.nodes import NodeSights
from gpuctl.observe.pods import Pod, read_pod


class Sights:
    """Readings of pods, workloads and ledgers, each with the bodies it was made of: those are never changed in place.

    Holds what the last two observations were made of, and no more.
    """

    __slots__ = ("_owners", "_pods", "ledgers", "nodes", "runs")

    def __init__(self) -> None:
        self._owners: Memo[ObjectRef, RunKey | None] = Memo()
        self._pods: Memo[ObjectRef, Pod] = Memo()
        self.nodes = NodeSights()
        self.runs: Memo[RunKey, Run] = Memo()
        self.ledgers: Memo[ObjectRef, LedgerReading | None] = Memo()

    def turn(self) -> None:
        """Another observation begins."""
        for memo in (self._owners, self._pods, self.runs, self.ledgers):
            memo.turn()
        self.nodes.turn()

    def pod_run(self, ref: ObjectRef, body: Body, cluster: str) -> RunKey | None:
        """The run a pod is of, by its labels."""
        return self._owners.get(ref, (body, cluster), lambda: run_of(body, cluster))

    def workload_run(self, ref: ObjectRef, body: Body, cluster: str) -> RunKey | None:
        """The run a Job or Deployment is the object of."""
        return self._owners.get(ref, (body, cluster), lambda: own_run(ref, body, cluster))

    def pod(self, ref: ObjectRef, body: Body, run: RunKey | None, devices: tuple[HeldDevice, ...]) -> Pod:
        """A pod's facts."""
        return self._pods.get(ref, (body, run, devices), lambda: read_pod(ref, body, run, devices))
