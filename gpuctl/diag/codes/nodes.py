"""GPU705x: the cluster is otherwise than declared."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

_LIVE = "gpuctl uses the nodes that are there. Checks of commits, plans and simulations go by the declared ones."

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7050",
        title="a declared node is not in the cluster",
        message="pool {pool} declares nodes that are not in the cluster: {nodes}",
        why="They were removed, have another name, or have not joined yet. " + _LIVE,
        fix="Bring the nodes back, or take them out of the pool's nodes.",
    ),
    CodeEntry(
        code="GPU7051",
        title="a declared node is not in its pool",
        message="nodes that pool {pool} declares don't belong to it by their labels: {nodes}",
        why="A node belongs to the first pool whose selector matches its labels. " + _LIVE,
        fix="Label the nodes as the pool's selector says, or declare them in the pool they are in.",
    ),
    CodeEntry(
        code="GPU7052",
        title="a node of the pool is not declared",
        message="nodes belong to pool {pool} by their labels but are not declared: {nodes}",
        why="They are used all the same. " + _LIVE,
        fix="Add the nodes to the pool's nodes, or take the label off them.",
    ),
    CodeEntry(
        code="GPU7053",
        title="a node has another number of GPUs than declared",
        message="nodes of pool {pool} have other numbers of GPUs than declared: {nodes}",
        why="A GPU is missing, or the declaration is wrong. " + _LIVE,
        fix="Look after the node, or correct the pool's gpusPerNode or the node's gpus.",
    ),
    CodeEntry(
        code="GPU7054",
        title="a pool's selector matches no node",
        message="pool {pool} has no node: none has the labels {selector}",
        why="Nothing can run in the pool. The selector or the nodes' labels are wrong, or the nodes are not there yet.",
        fix="Label the nodes as the pool's selector says, or correct the selector.",
    ),
    CodeEntry(
        code="GPU7055",
        title="a node is in two pools",
        message="nodes of pool {pool} match the selector of pool {other} too: {nodes}",
        why="They belong to the first of the two, in the order of nodePools, and are not offered in the other.",
        fix="Make the selectors exclude each other.",
    ),
    CodeEntry(
        code="GPU7056",
        title="another cluster has the same namespace prefix",
        message="cluster {cluster} on this API server has the namespace prefix {prefix} too (namespace {namespace})",
        why="A project of the same name in both would claim one namespace; the second to come is refused: GPU6006.",
        fix="Give one of the clusters another `namespacePrefix`.",
    ),
    CodeEntry(
        code="GPU7057",
        title="an object that gpuctl did not make has a run's name",
        message="{object} was not made by gpuctl and has the name of the run of {job}, which waits",
        why="gpuctl takes an object for a run's own only if it made it: its ledger has the object's uid. It changes "
        "and removes nothing else, whatever labels it has.",
        fix="Delete the object, or give it another name.",
    ),
    CodeEntry(
        code="GPU7095",
        title="the cluster has nodes of its own",
        message="this cluster has nodes that are not the demonstration's: {nodes}",
        why="`gpuctl demo` and `gpuctl bench cluster` make nodes that KWOK plays, and fill them with jobs. They do "
        "that only where nothing else runs.",
        fix="Name a cluster without nodes: --kubeconfig FILE, --context NAME. `kwokctl create cluster` makes one.",
    ),
    CodeEntry(
        code="GPU7096",
        title="nothing plays the nodes",
        message="node {node} does not become ready",
        why="The nodes of a demonstration are played by KWOK, which has to run against that cluster, with stages for "
        "nodes and pods.",
        fix="Start KWOK for the cluster. `kwokctl create cluster` makes one where it runs.",
    ),
)
