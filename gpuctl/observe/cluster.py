"""The stage `observe`: turns everything read from the API server into the engine's values.

Cost: linear in the number of objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import is_deleting, text
from gpuctl.k8s.workload_table import rows_of
from gpuctl.k8s.workloads import workloads
from gpuctl.model.ids import NodeName, ObjectRef, ProjectName
from gpuctl.model.state import Body, ClusterState, RawObjects
from gpuctl.model.tenancy import Tenancy
from gpuctl.model.workload_kind import WorkloadKind
from gpuctl.observe.autoscalers import asked_workers
from gpuctl.observe.cache import ObserveCache
from gpuctl.observe.charges import Excess
from gpuctl.observe.devices import HeldDevice
from gpuctl.observe.freezes import read_frozen
from gpuctl.observe.hami import HamiNode, hami_devices, hami_node, unreadable_hami_node
from gpuctl.observe.ledgers import Records, read_ledgers
from gpuctl.observe.nodes import Use, observe_nodes
from gpuctl.observe.pods import Pod, without_helpers
from gpuctl.observe.roster import Workloads
from gpuctl.observe.unreadable import Faults, read
from gpuctl.observe.workloads import observe_runs


def observe(
    raw: RawObjects,
    tenancy: Tenancy | None = None,
    cache: ObserveCache | None = None,
    declared_kinds: Sequence[WorkloadKind] = (),
) -> ClusterState:
    """Observe what the cluster holds now: nodes, runs, ledgers. Never raises: unreadable things are absent, or named.

    `tenancy` is the cluster that gpuctl acts for: all objects that it did not make for projects of that cluster are
    foreign. Without one (for commands that only show), all clusters on the API server are taken together, and the
    labels and annotations of projects whose ledger may not be read are trusted. `declared_kinds` are then those of
    their Clusters. `cache` (of the cycle before) saves work and changes no result.
    """
    cache, rows = cache or ObserveCache(), rows_of(tenancy.workload_kinds if tenancy else declared_kinds)
    cache.turn(rows)
    bodies, cluster = _by_kind(raw), tenancy.cluster if tenancy else ""
    records = read_ledgers(bodies[kinds.CONFIG_MAP], cache.ledgers)
    ours, trust = records.of(cluster), cache.trust(tenancy, _kept(records, cluster), bodies[kinds.NAMESPACE])
    told = cache.told(records.ledgers_of(cluster), tenancy)
    own = cache.workloads(_of_kinds(bodies, workloads(rows)), told, trust, rows)
    runs_of_pods = cache.pod_runs(bodies[kinds.POD], _between(bodies, own), told)
    inventory = cache.inventory(bodies[kinds.RESOURCE_SLICE].values(), bodies[kinds.DEVICE_CLASS].values())
    registered = _registered(bodies[kinds.NODE], cache.faults)
    our_pods = {pod: run for pod, run in zip(bodies[kinds.POD], runs_of_pods, strict=True) if run is not None}
    claims = cache.claimed(bodies[kinds.RESOURCE_CLAIM], inventory, our_pods, bodies[kinds.POD])
    given = _given_by_hami(bodies[kinds.POD], registered, cache.faults)
    pods = cache.pods(bodies[kinds.POD], runs_of_pods, {**given, **claims.of_pods} if given else claims.of_pods, own)
    pods = without_helpers(pods, set(our_pods.values()) - own.places.keys(), told.entries)
    leaving = frozenset(ref.name for ref, body in bodies[kinds.NAMESPACE].items() if _terminates(body))
    asked = asked_workers(bodies[kinds.AUTOSCALER], own.refs, own.bodies)
    memories = cache.memories(own, told, trust, ours.ledgers)
    runs = observe_runs(own, memories, asked, told.entries, pods, leaving, cache.runs, cache.faults)
    foreign, excess = [pod for pod in pods if pod.run is None and pod.live], cache.excess(pods, runs, registered)
    nodes, runs = observe_nodes(
        bodies[kinds.NODE],
        {**inventory.nodes, **{name: node.devices for name, node in registered.items()}},
        _foreign_use(foreign, excess),
        [*claims.foreign, *_foreign_devices(foreign, excess)],
        runs, own_pods=pods, workloads=own,
        tenancy=tenancy,
        known=cache.nodes,
        faults=cache.faults,
    )  # fmt: skip
    return ClusterState(
        nodes=nodes,
        runs=runs,
        ledgers=ours.ledgers,
        live=raw.objects,
        damaged=ours.damaged,
        cluster=cluster,
        shards=ours.shards,
        claimed=records.claimed_besides(cluster),
        own=own.by_ref,
        foreign=own.foreign,
        pods=our_pods,
        occupied=frozenset(pod.ref.namespace for pod in foreign),
        unreadable=tuple(sorted({*cache.faults.found, *inventory.unreadable})),
        frozen=read_frozen(bodies[kinds.CONFIG_MAP]),
        unseen=raw.unseen,
    )


_BETWEEN = (kinds.REPLICA_SET, kinds.STATEFUL_SET, kinds.JOB, kinds.RAY_CLUSTER)
"""Kinds of objects that may stand between a run's object and its pods."""


def _between(bodies: Mapping[kinds.Kind, Mapping[ObjectRef, Body]], own: Workloads) -> Mapping[ObjectRef, Body]:
    """The objects that may stand between a run's object and its pods: only ReplicaSets if no run is another
    controller's."""
    return _of_kinds(bodies, _BETWEEN) if own.others else bodies[kinds.REPLICA_SET]


def _of_kinds(
    bodies: Mapping[kinds.Kind, Mapping[ObjectRef, Body]], some: Iterable[kinds.Kind]
) -> Mapping[ObjectRef, Body]:
    return {ref: body for kind in some for ref, body in bodies[kind].items()}


def _kept(records: Records, cluster: str) -> frozenset[ProjectName]:
    """The projects whose ledger is whole, except for parts that prove nothing."""
    ours = records.of(cluster)
    owners = (names.ledger_owner(ref.name) for ref, part in ours.damaged if part not in _PROVES_NOTHING)
    return frozenset(ours.ledgers) - {ProjectName(owner[1]) for owner in owners if owner is not None}


_PROVES_NOTHING = frozenset({"revision"})


def _by_kind(raw: RawObjects) -> Mapping[tuple[str, str], Mapping[ObjectRef, Body]]:
    """The objects of each kind; none for a kind without objects."""
    if raw.by_kind:
        return defaultdict(dict, raw.by_kind)
    found: dict[tuple[str, str], dict[ObjectRef, Body]] = defaultdict(dict)
    for ref, body in raw.objects.items():
        found[ref.api_version, ref.kind][ref] = body
    return found


def _terminates(namespace: Body) -> bool:
    return is_deleting(namespace) or text(namespace, "status", "phase") == "Terminating"


def _registered(nodes: Mapping[ObjectRef, Body], faults: Faults) -> dict[NodeName, HamiNode]:
    """The nodes whose GPUs HAMi's device plugin has registered."""
    refs = list(nodes)
    found = faults.sift(refs, [read(partial(hami_node, body), unreadable_hami_node) for body in nodes.values()])
    return {NodeName(ref.name): node for ref, node in zip(refs, found, strict=True) if node is not None}


def _given_by_hami(
    pods: Mapping[ObjectRef, Body], registered: Mapping[NodeName, HamiNode], faults: Faults
) -> dict[ObjectRef, tuple[HeldDevice, ...]]:
    """The devices that HAMi's scheduler gave to pods."""
    if not registered:
        return {}
    refs = list(pods)
    readings = [read(partial(hami_devices, body, registered), tuple[HeldDevice, ...]) for body in pods.values()]
    return dict(zip(refs, faults.sift(refs, readings), strict=True))


def _foreign_use(foreign: Iterable[Pod], excess: Iterable[Excess]) -> Iterator[Use]:
    """What foreign pods, and runs' pods beyond their charge, request on nodes, without the GPUs that are known by
    name."""
    for pod in foreign:
        if pod.node is not None:
            yield pod.node, replace(pod.requests, gpus=max(0, pod.requests.gpus - len(pod.devices)))
    for beyond in excess:
        yield beyond.node, beyond.requests


def _foreign_devices(foreign: Iterable[Pod], excess: Iterable[Excess]) -> Iterator[HeldDevice]:
    """The GPUs known by name that foreign pods hold, or runs' pods beyond their charge."""
    for pod in foreign:
        yield from pod.devices
    for beyond in excess:
        yield from beyond.devices
