"""Nodes and pools that don't fit together, by their labels."""

from __future__ import annotations

from dataclasses import replace

from workbench import Workbench, example

from gpuctl.model.declared import Declared
from gpuctl.model.ids import PoolName
from gpuctl.plan.inventory_mismatch import inventory_mismatches

DECLARED = example()


def codes(declared: Declared) -> list[tuple[str, str]]:
    bench = Workbench(DECLARED)
    state = bench.state()
    spaces = {ref: live for ref, live in state.live.items() if ref.kind == "Namespace"}
    return [(found.code, found.message) for found in inventory_mismatches(declared, state, spaces)]


def with_pool(**labels: str) -> Declared:
    """The example, and a pool without nodes of its own for these labels."""
    first = DECLARED.cluster.pools[0]
    pool = replace(first, name=PoolName("more"), nodes=(), match_labels=labels)
    return replace(DECLARED, cluster=replace(DECLARED.cluster, pools=(*DECLARED.cluster.pools, pool)))


def test_what_is_as_declared_is_not_told() -> None:
    assert codes(DECLARED) == []


def test_a_node_of_two_pools_is_told() -> None:
    told = dict(codes(with_pool(**DECLARED.cluster.pools[0].match_labels)))
    assert told.keys() == {"GPU7054", "GPU7055"}
    assert "dgx1-1, dgx1-2" in told["GPU7055"]


def test_a_declared_node_under_other_labels_is_told() -> None:
    first = DECLARED.cluster.pools[0]
    moved = replace(first, match_labels={"kubernetes.io/hostname": "dgx1-1"})
    declared = replace(DECLARED, cluster=replace(DECLARED.cluster, pools=(moved,)))
    assert [code for code, _ in codes(declared)] in (["GPU7051"], ["GPU7054", "GPU7051"])


def test_a_pool_that_declares_no_nodes_takes_all_that_match() -> None:
    first = DECLARED.cluster.pools[0]
    declared = replace(DECLARED, cluster=replace(DECLARED.cluster, pools=(replace(first, nodes=()),)))
    assert codes(declared) == []


def test_a_node_whose_pods_hold_more_gpus_than_it_has_is_told() -> None:
    state = Workbench(DECLARED).state()
    full = replace(state, nodes=tuple(replace(node, excess_gpus=int(node.name == "dgx1-2")) for node in state.nodes))
    (told,) = inventory_mismatches(DECLARED, full, {})
    assert told.code == "GPU7058"
    assert "dgx1-2 has 8, and 1 more are held" in told.message
