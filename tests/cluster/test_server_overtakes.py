"""A server whose data was restored, and that is past gpuctl's versions again before gpuctl hears of it.

No version that gpuctl asks for is missing there, so a watch goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from controlplane.server import ADMIN, ControlPlane
from faultproxy import FaultProxy
from unattended import at_last, install

from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.election import Timing
from gpuctl.adapters.kubernetes.lease import LeaseLeadership
from gpuctl.app.object_cache import ObjectCache
from gpuctl.app.ports import WorldFault
from gpuctl.k8s.kinds import CONFIG_MAP

NAMES = {"before", "since", "last"}
SPACE = "/api/v1/namespaces/gpuctl-system/configmaps"
STEADY = Timing(retry_ms=100)


def made(plane: ControlPlane, name: str) -> int:
    """An object, and its version."""
    found = plane.call("POST", SPACE, {"metadata": {"name": name}})
    return int(found["metadata"]["resourceVersion"])


def names(cache: ObjectCache) -> set[str]:
    """What the copy has."""
    try:
        cache.refresh()
    except WorldFault:
        return set()
    return {body["metadata"]["name"] for body in cache.of_kind(CONFIG_MAP)} & NAMES


def test_what_was_restored_is_read_anew(new_control_plane: Callable[..., ControlPlane], tmp_path: Path) -> None:
    plane = new_control_plane()
    install(plane)
    with closing(FaultProxy(plane)) as proxy:
        kubeconfig = plane.write_kubeconfig(tmp_path / "kubeconfig", ADMIN, url=proxy.url)
        connection = connect(str(kubeconfig))
        with closing(connection), closing(KubernetesCluster(connection)) as cluster:
            leadership = LeaseLeadership(connection, identity="a", on_restore=cluster.read_anew, timing=STEADY)
            with closing(leadership):
                cache = ObjectCache(cluster, [CONFIG_MAP])
                made(plane, "before")
                at_last(leadership.held)
                at_last(lambda: names(cache) == {"before"}, lambda: names(cache))
                plane.snapshot(tmp_path / "snapshot")
                version = made(plane, "since")
                at_last(lambda: names(cache) == {"before", "since"}, lambda: names(cache))
                at_last(leadership.held)
                proxy.leave()
                plane.restore(tmp_path / "snapshot")
                while made(plane, "last") <= version + 500:
                    plane.call("DELETE", f"{SPACE}/last")
                proxy.come_back()
                at_last(lambda: names(cache) == {"before", "last"}, lambda: names(cache))
