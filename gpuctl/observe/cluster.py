"""The stage: everything read from the API server, in the engine's words.

Cost: linear in the number of objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from gpuctl.k8s import names
from gpuctl.k8s.objects import is_deleting, text
from gpuctl.model.ids import NodeName, ObjectRef
from gpuctl.model.state import Body, ClusterState, RawObjects
from gpuctl.observe.hami import hami_devices, hami_node
from gpuctl.observe.ledgers import read_ledgers
from gpuctl.observe.nodes import observe_nodes
from gpuctl.observe.sights import Sights
from gpuctl.observe.workloads import observe_runs


def observe(raw: RawObjects, cluster: str = "", sights: Sights | None = None) -> ClusterState:
    """What the cluster holds now: nodes, runs, ledgers. Never raises: what can't be read is absent or `damaged`.

    `cluster` is the name that gpuctl acts under: runs and ledgers of another name on the same API server are not its
    own, and their pods are foreign. Without one, all are taken as one cluster's: for people who look.
    `sights` are those of the cycle before, where there was one: they save work and change no result.
    """
    sights = sights or Sights()
    sights.turn()
    kinds = defaultdict[tuple[str, str], Mapping[ObjectRef, Body]](dict, raw.by_kind or _by_kind(raw.objects))
    inventory = sights.inventory(kinds[names.RESOURCE_SLICE].values(), kinds[names.DEVICE_CLASS].values())
    registered = {
        NodeName(ref.name): node for ref, body in kinds[names.NODE].items() if (node := hami_node(body)) is not None
    }
    pods_of_runs = sights.pod_runs(kinds[names.POD], cluster)
    claims = sights.claimed(kinds[names.RESOURCE_CLAIM], inventory, pods_of_runs, cluster)
    devices_of = claims.of_pods
    if registered:
        given = {ref: hami_devices(body, registered) for ref, body in kinds[names.POD].items()}
        devices_of = {**given, **claims.of_pods}
    pods = sights.pods(kinds[names.POD], pods_of_runs, devices_of)
    leaving = frozenset(ref.name for ref, body in kinds[names.NAMESPACE].items() if _terminates(body))
    own = sights.workloads({**kinds[names.JOB], **kinds[names.DEPLOYMENT]}, cluster)
    runs = observe_runs(own, pods, leaving, sights.runs)
    foreign = [pod for pod in pods if pod.run is None and pod.live]
    others = [*claims.foreign, *(device for pod in foreign for device in pod.devices)]
    devices = {**inventory.nodes, **{name: node.devices for name, node in registered.items()}}
    nodes, runs = observe_nodes(
        kinds[names.NODE].values(), devices, foreign, others, runs, own_pods=pods, workloads=own, known=sights.nodes
    )
    records = read_ledgers(kinds[names.CONFIG_MAP], sights.ledgers)
    ours = records.of(cluster)
    return ClusterState(
        nodes=nodes,
        runs=runs,
        ledgers=ours.ledgers,
        live=raw.objects,
        damaged=ours.damaged,
        cluster=cluster,
        shards=ours.shards,
        claimed=records.claimed_besides(cluster),
    )


def _by_kind(objects: Mapping[ObjectRef, Body]) -> dict[tuple[str, str], dict[ObjectRef, Body]]:
    kinds: dict[tuple[str, str], dict[ObjectRef, Body]] = defaultdict(dict)
    for ref, body in objects.items():
        kinds[ref.api_version, ref.kind][ref] = body
    return kinds


def _terminates(namespace: Body) -> bool:
    return is_deleting(namespace) or text(namespace, "status", "phase") == "Terminating"
