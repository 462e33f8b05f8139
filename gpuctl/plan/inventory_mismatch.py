"""Differences between the declared inventory and the cluster that no write corrects: they are reported, and block
nothing.

The engine uses the live nodes; commits are checked against the declared inventory before they are merged. A mismatch
means that one of the two is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from gpuctl.diag.diagnostic import Diagnostic, Severity
from gpuctl.diag.wording import message
from gpuctl.k8s import names
from gpuctl.k8s.objects import labels_of, text
from gpuctl.model.declared import Declared, NodePool
from gpuctl.model.ids import JobId, NodeName, ObjectRef
from gpuctl.model.state import Body, ClusterState, Node

_SHOWN_NODES = 5


def inventory_mismatches(
    declared: Declared, state: ClusterState, spaces: Mapping[ObjectRef, Body]
) -> Iterator[Diagnostic]:
    """A notice for each kind of mismatch of a pool, with its nodes. `spaces`: the live namespaces.

    Cost: linear in nodes times pools, and in namespaces.
    """
    members: dict[str, list[Node]] = defaultdict(list)
    twice: dict[tuple[str, str], list[Node]] = defaultdict(list)
    pools = declared.cluster.pools
    for node in state.nodes:
        mine = [pool for pool in pools if pool.selects(node.labels)]
        for pool in mine[:1]:
            members[pool.name].append(node)
        for pool in mine[1:]:
            twice[mine[0].name, pool.name].append(node)
    live = {node.name: node for node in state.nodes}
    for pool in pools:
        yield from _of_pool(pool, members[pool.name], live)
        for other in pools:
            yield from _told("GPU7055", pool, (node.name for node in twice[pool.name, other.name]), other=other.name)
    yield from _shared_prefix(declared, spaces)


def names_in_the_way(declared: Declared, taken: Mapping[JobId, ObjectRef]) -> Iterator[Diagnostic]:
    """A notice for each foreign object that has the name of a run's object: the job of the run waits."""
    if not taken:
        return
    spans = {job.id: job.span for job in declared.jobs}
    for job, ref in sorted(taken.items()):
        text = message("GPU7057", {"object": str(ref), "job": str(job)})
        yield Diagnostic(code="GPU7057", message=text, span=spans[job], severity=Severity.WARNING)


def _of_pool(pool: NodePool, members: list[Node], live: Mapping[NodeName, Node]) -> Iterator[Diagnostic]:
    declared = {node.name: node for node in pool.nodes}
    if not members:
        selector = ", ".join(f"{key}={value}" for key, value in sorted(pool.match_labels.items()))
        yield _notice("GPU7054", pool, {"pool": pool.name, "selector": selector})
    else:
        yield from _told("GPU7050", pool, (name for name in declared if name not in live))
    here = {node.name for node in members}
    yield from _told("GPU7051", pool, (name for name in declared if name in live and name not in here))
    if declared:
        yield from _told("GPU7052", pool, (node.name for node in members if node.name not in declared))
    yield from _told(
        "GPU7053",
        pool,
        (
            f"{node.name} has {node.gpus}, not {declared[node.name].gpus}"
            for node in members
            if node.name in declared and node.gpus != declared[node.name].gpus
        ),
    )
    more = (
        f"{node.name} has {node.gpus}, and {node.excess_gpus} more are held" for node in members if node.excess_gpus
    )
    yield from _told("GPU7058", pool, more)


def _told(code: str, pool: NodePool, nodes: Iterable[str], **more: str) -> Iterator[Diagnostic]:
    """One notice for all the nodes; none if there are no nodes."""
    listed = sorted(nodes)
    if listed:
        rest = len(listed) - _SHOWN_NODES
        shown = ", ".join(listed[:_SHOWN_NODES]) + (f" and {rest} more" if rest > 0 else "")
        yield _notice(code, pool, {"pool": pool.name, "nodes": shown, **more})


def _notice(code: str, pool: NodePool, params: Mapping[str, str | int]) -> Diagnostic:
    return Diagnostic(code=code, message=message(code, params), span=pool.span, severity=Severity.WARNING)


def _shared_prefix(declared: Declared, spaces: Mapping[ObjectRef, Body]) -> Iterator[Diagnostic]:
    """A notice for each other cluster with the same prefix: projects with equal names would need the same namespace."""
    prefix = declared.cluster.namespace_prefix
    others: dict[str, list[str]] = defaultdict(list)
    for ref, body in spaces.items():
        labels = labels_of(body)
        other, project = text(labels, names.CLUSTER_LABEL), text(labels, names.PROJECT_LABEL)
        if other and project and other != declared.cluster.name and ref.name == f"{prefix}{project}":
            others[other].append(ref.name)
    for other, namespaces in sorted(others.items()):
        params = {"cluster": other, "prefix": prefix, "namespace": min(namespaces)}
        yield Diagnostic(
            code="GPU7056",
            message=message("GPU7056", params),
            span=declared.cluster.span,
            severity=Severity.WARNING,
        )
