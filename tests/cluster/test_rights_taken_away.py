"""On a real API server: a right is taken from gpuctl while it watches, and given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from controlplane.server import ControlPlane
from town import Account, Town, town_on
from unattended import account_token, at_last, install

from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.timings import Timings
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.ports import Forbidden, RightDoubted, WorldFault
from gpuctl.k8s import kinds

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpuctl"
BRIEF = Timings(shortest_watch_ms=1_000, longest_watch_ms=2_000, longest_reconnect_ms=1_000, doubt_ms=1_000)
"""The server looks at rights when a watch begins, and never ends one for them."""
WRITTEN = (kinds.SERVICE, kinds.INGRESS, kinds.NETWORK_POLICY, kinds.CLAIM, kinds.RESOURCE_QUOTA, kinds.ROLE_BINDING)


@pytest.fixture
def town(new_control_plane: Callable[..., ControlPlane], request: pytest.FixtureRequest) -> Iterator[Town]:
    plane = new_control_plane()
    install(plane)
    token = account_token(plane)
    connection = connect(str(plane.write_kubeconfig(plane.folder / "brief.kubeconfig", token)))
    with closing(connection), closing(KubernetesCluster(connection, timings=BRIEF)) as cluster:
        account = Account(token, cluster, ObjectCache(cluster))
        with town_on(plane, request.node.name, account) as made:
            yield made


def withdraw(plane: ControlPlane, *withdrawn: kinds.Kind) -> Callable[[], object]:
    """Take all rights on kinds. Returns how they are given back."""
    role = plane.call("GET", ROLE)
    plurals = {kinds.KINDS[kind].plural for kind in withdrawn}
    rules = [{**rule, "resources": left} for rule in role["rules"] if (left := [*{*rule["resources"]} - plurals])]
    assert rules != role["rules"]
    plane.call("PATCH", ROLE, {"rules": rules}, media="application/merge-patch+json")
    return lambda: plane.call("PATCH", ROLE, {"rules": role["rules"]}, media="application/merge-patch+json")


def test_what_no_decision_needs_stops_none_and_without_the_rest_gpuctl_says_so_and_waits(town: Town) -> None:
    cache = town.context.object_cache
    town.jobs["first"] = ", type: interactive, gpus: 1, expose: [{port: 80, via: ingress}]"
    town.comes_to(first="Running")
    give_back = withdraw(town.plane, *WRITTEN)
    at_last(lambda: fault_of(town) is None and cache.refused.keys() >= {*WRITTEN})
    assert {fault.code for fault in cache.refused.values()} == {"GPU7015"}
    assert "services" in str(cache.missed[kinds.SERVICE])
    town.jobs["second"] = ", gpus: 1"
    del town.jobs["first"]
    town.comes_to(second="Running")
    give_back()
    town.until(lambda: not cache.refused)
    town.until(lambda: not [ref for ref in town.state().live if "first" in ref.name])
    for kind in (kinds.POD, kinds.NODE, kinds.JOB):
        give_back = withdraw(town.plane, kind)
        doubted = at_last(lambda: fault_of(town))
        assert isinstance(doubted, RightDoubted)
        town.jobs["third"] = ", gpus: 1"
        at_last(lambda: isinstance(fault_of(town), Forbidden))
        assert f"may not list {kinds.KINDS[kind].plural}" in str(fault_of(town))
        give_back()
        at_last(lambda: fault_of(town) is None)
        town.comes_to(second="Running", third="Running")
        del town.jobs["third"]
        town.comes_to(second="Running")


def fault_of(town: Town) -> WorldFault | None:
    """Why a cycle can decide nothing, if it can't."""
    try:
        town.cycle()
    except (Forbidden, RightDoubted) as fault:
        return fault
    return None
