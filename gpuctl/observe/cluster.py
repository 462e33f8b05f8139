"""The stage: everything read from the API server, in the engine's words.

Cost: linear in the number of objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from gpuctl.k8s import names
from gpuctl.k8s.ledger import decode_ledger
from gpuctl.k8s.objects import is_deleting, labels_of, text
from gpuctl.k8s.workloads import run_of
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.state import Body, ClusterState, Ledger, RawObjects
from gpuctl.observe.devices import claimed_devices, device_inventory
from gpuctl.observe.nodes import observe_nodes
from gpuctl.observe.pods import read_pod
from gpuctl.observe.workloads import observe_runs


def observe(raw: RawObjects) -> ClusterState:
    """What the cluster holds now: nodes, runs, ledgers. Never raises: what can't be read is absent or `damaged`."""
    kinds: dict[tuple[str, str], dict[ObjectRef, Body]] = defaultdict(dict)
    for ref, body in raw.objects.items():
        kinds[ref.api_version, ref.kind][ref] = body
    inventory = device_inventory(kinds[names.RESOURCE_SLICE].values())
    our_pods = frozenset((ref.namespace, ref.name) for ref, body in kinds[names.POD].items() if run_of(body))
    claims = claimed_devices(kinds[names.RESOURCE_CLAIM].values(), inventory, our_pods)
    pods = [
        read_pod(ref, body, claims.of_pods.get((ref.namespace, ref.name), ()))
        for ref, body in sorted(kinds[names.POD].items())
    ]
    leaving = frozenset(ref.name for ref, body in kinds[names.NAMESPACE].items() if _terminates(body))
    workloads = {**kinds[names.JOB], **kinds[names.DEPLOYMENT]}
    runs = observe_runs(workloads, pods, leaving)
    foreign = [pod for pod in pods if pod.run is None and pod.live]
    nodes, runs = observe_nodes(kinds[names.NODE].values(), inventory, foreign, claims.foreign, runs)
    ledgers, damaged = _ledgers(kinds[names.CONFIG_MAP])
    return ClusterState(nodes=nodes, runs=runs, ledgers=ledgers, live=raw.objects, damaged=damaged)


def _terminates(namespace: Body) -> bool:
    return is_deleting(namespace) or text(namespace, "status", "phase") == "Terminating"


def _ledgers(
    config_maps: Mapping[ObjectRef, Body],
) -> tuple[Mapping[ProjectName, Ledger], tuple[tuple[ObjectRef, str], ...]]:
    ledgers: dict[ProjectName, Ledger] = {}
    damaged: list[tuple[ObjectRef, str]] = []
    for ref, body in sorted(config_maps.items()):
        if ref.namespace != names.SYSTEM_NAMESPACE or names.LEDGER_LABEL not in labels_of(body):
            continue
        reading = decode_ledger(body)
        if reading is None:
            damaged.append((ref, "metadata"))
            continue
        ledgers[reading.ledger.project] = reading.ledger
        damaged.extend((ref, part) for part in reading.damaged)
    return ledgers, tuple(damaged)
