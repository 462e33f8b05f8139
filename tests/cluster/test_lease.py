"""Leadership on a real API server: processes that end, are stopped and woken, or lose the server."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pytest
from controlplane.server import ControlPlane

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.election import Timing
from gpuctl.adapters.kubernetes.lease import LeaseLeadership
from gpuctl.app.ports import WorldFault
from gpuctl.k8s.timestamps import parse_timestamp
from gpuctl.model.units import Instant

FAST = Timing(duration_ms=2_000, deadline_ms=1_200, retry_ms=100, request_ms=500)
"""Of terms that are to run out."""
FIRM = Timing(duration_ms=8_000, deadline_ms=7_000, retry_ms=100, request_ms=3_000)
"""Of one that is to be held also on a machine on which a request takes seconds, and begins soon enough."""
STEADY = Timing(retry_ms=100)
PATIENCE_S = 180
A_LITTLE_MS = 10
"""By so much a test may take the time later than the process does that it watches."""
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gpuctl-system/leases/gpuctl"
EMPTY = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "gpuctl"}}
TELLS = """
import sys, time
from gpuctl.adapters.kubernetes.connection import connect
from gpuctl.adapters.kubernetes.election import Timing
from gpuctl.adapters.kubernetes.lease import LeaseLeadership
timing = Timing(duration_ms=2_000, deadline_ms=1_200, retry_ms=100, request_ms=500)
leadership = LeaseLeadership(connect(sys.argv[1]), identity="child", timing=timing)
while True:
    print(time.clock_gettime_ns(time.CLOCK_BOOTTIME), leadership.held(), flush=True)
    time.sleep(0.02)
"""


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """With gpuctl's namespace, and an empty Lease in it as `gpuctl install` makes it."""
    control_plane.call("PATCH", "/api/v1/namespaces/gpuctl-system?fieldManager=test", {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpuctl-system"},
    })  # fmt: skip
    with suppress(HTTPError):
        control_plane.call("DELETE", LEASE)
    control_plane.call("POST", LEASE.removesuffix("/gpuctl"), EMPTY)
    yield control_plane
    with suppress(HTTPError):
        control_plane.call("DELETE", LEASE)


def seek(plane: ControlPlane, identity: str, told: list[str] | None = None, timing: Timing = FAST) -> LeaseLeadership:
    def on_change() -> None:
        if told is not None:
            told.append(identity)

    return LeaseLeadership(connect(str(plane.kubeconfig)), identity=identity, on_change=on_change, timing=timing)


def renewed_ms(plane: ControlPlane) -> Instant:
    """When the Lease was renewed last, by the time in it."""
    return parse_timestamp(plane.call("GET", LEASE)["spec"]["renewTime"])


def test_one_leads_the_other_waits_and_follows_at_once_when_it_is_let(plane: ControlPlane) -> None:
    told: list[str] = []
    with closing(seek(plane, "a", told, STEADY)) as one:
        assert within(PATIENCE_S, one.held)
        with closing(seek(plane, "b", timing=STEADY)) as other:
            assert within(PATIENCE_S, lambda: other.holder() == "a")
            time.sleep(1.5)
            assert (one.held(), other.held(), one.fault(), other.fault()) == (True, False, None, None)
            assert told == ["a"]
            one.close()
            assert not one.held()
            assert within(12, other.held)  # sooner than the term of fifteen seconds runs out
            assert other.term() == one.term() + 1
            spec = plane.call("GET", LEASE)["spec"]
            assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("b", 15)


def test_stopped_past_its_term_and_woken_it_does_not_hold(plane: ControlPlane) -> None:
    command = [sys.executable, "-c", TELLS, str(plane.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = iter(child.stdout.readline, "")
        assert any(line.endswith("True\n") for line in lines)
        child.send_signal(signal.SIGSTOP)
        stopped_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        with closing(seek(plane, "b", timing=FIRM)) as other:
            assert within(PATIENCE_S, other.held)
            child.send_signal(signal.SIGCONT)
            after = ((int(at), held) for at, held in map(str.split, lines))
            woken = (held for at, held in after if at > stopped_ns + FAST.deadline_ms * 1_000_000)
            assert {next(woken) for _ in range(60)} == {"False"}
            assert other.held()
        child.kill()


def test_cut_off_it_holds_to_the_deadline_and_says_why(plane: ControlPlane) -> None:
    connection = connect(str(plane.kubeconfig))
    with closing(LeaseLeadership(connection, identity="a", timing=replace(FIRM, request_ms=10_000))) as one:
        assert within(PATIENCE_S, one.held)
        connection.configuration.host = "https://127.0.0.1:9"
        clock = SystemClock()
        cut_ms, looked_ms = clock.now_ms(), 0
        while one.held():
            assert looked_ms < cut_ms + FIRM.deadline_ms + A_LITTLE_MS
            time.sleep(0.02)
            looked_ms = clock.now_ms()
        assert clock.now_ms() > renewed_ms(plane) + FIRM.deadline_ms - A_LITTLE_MS
        assert within(PATIENCE_S, lambda: one.fault() is not None)
        fault = one.fault()
        assert fault is not None
        assert fault.code == "GPU7001"


def test_a_lease_that_somebody_edits_is_kept_and_a_deleted_one_made_again(plane: ControlPlane) -> None:
    with closing(seek(plane, "a", timing=FIRM)) as one:
        assert within(PATIENCE_S, one.held)
        note = {"metadata": {"annotations": {"note": "mine"}}}
        plane.call("PATCH", LEASE, note, media="application/merge-patch+json")
        edited_ms = renewed_ms(plane)
        assert within(PATIENCE_S, lambda: renewed_ms(plane) > edited_ms)
        assert one.held()
        lease = plane.call("GET", LEASE)
        assert lease["metadata"]["annotations"] == {"note": "mine"}
        plane.call("DELETE", LEASE)
        assert within(PATIENCE_S, lambda: not one.held())
        assert within(PATIENCE_S, one.held)
        assert one.term() == 2


def test_one_that_is_missing_is_made_at_once_and_held_after_a_whole_term(plane: ControlPlane) -> None:
    plane.call("DELETE", LEASE)
    began = time.monotonic()
    with closing(seek(plane, "a")) as one, closing(seek(plane, "b")) as other:
        assert within(PATIENCE_S, lambda: holder_on(plane) in {"a", "b"})
        assert not (one.held() or other.held()) or time.monotonic() - began >= FAST.duration_ms / 1000
        assert within(PATIENCE_S, lambda: one.held() or other.held())
        assert time.monotonic() - began >= FAST.duration_ms / 1000
        # On a busy machine it may be lost and had again between the two looks.
        assert within(PATIENCE_S, lambda: (one.held(), other.held(), holder_on(plane)) in {
            (True, False, "a"), (False, True, "b"),
        })  # fmt: skip


def test_deleted_again_and_again_it_is_never_held_by_two(plane: ControlPlane) -> None:
    """Each deletion comes as soon as somebody has made it anew, or a little later, when the other has taken it up."""
    with closing(seek(plane, "a")) as one, closing(seek(plane, "b")) as other:

        def both() -> bool:
            """At the moment of the second look: this process may stand still between the first and the third."""
            return one.held() and other.held() and one.held()

        pair = (one, other)
        assert within(PATIENCE_S, lambda: any(each.held() for each in pair))
        before = max(each.term() for each in pair)
        for pause_s in (0.0, 0.0, 0.15, 0.0, 1.0, 2.5, 0.0, 0.0):
            until = time.monotonic() + pause_s
            while time.monotonic() < until:
                assert not both()
                time.sleep(0.005)
            assert within(PATIENCE_S, lambda: holder_on(plane) in {"a", "b"})
            plane.call("DELETE", LEASE)
            assert not both()
        assert within(PATIENCE_S, lambda: any(each.held() for each in pair))
        assert max(each.term() for each in pair) > before
        assert not both()


def holder_on(plane: ControlPlane) -> str:
    """Who holds the Lease by what stands in it; "" when it is not there."""
    try:
        return str(plane.call("GET", LEASE).get("spec", {}).get("holderIdentity", ""))
    except HTTPError as error:
        error.close()
        return ""


def test_who_may_not_is_told_which_right_is_missing(plane: ControlPlane, tmp_path: Path) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
    plane.call("PATCH", "/api/v1/namespaces/default/serviceaccounts/nobody?fieldManager=test", account)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = plane.call("POST", "/api/v1/namespaces/default/serviceaccounts/nobody/token", request)
    kubeconfig = plane.write_kubeconfig(tmp_path / "kubeconfig", answer["status"]["token"])
    with closing(LeaseLeadership(connect(str(kubeconfig)), identity="n", timing=FAST)) as one:
        assert within(PATIENCE_S, lambda: one.fault() is not None)
        fault = one.fault()
        assert isinstance(fault, WorldFault)
        assert fault.code == "GPU7015"
        assert "leases" in str(fault)
        assert not one.held()
