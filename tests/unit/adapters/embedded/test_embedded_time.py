"""The machine's clock, threads, and how far back a watch can go."""

from __future__ import annotations

import subprocess
import sys
import threading
from time import monotonic

import pytest
from stories import EPOCH_MS, NAMESPACE, job, job_id, opened, phases, pool

from gpuctl.adapters.clock import SystemClock, VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster, EmbeddedTimings
from gpuctl.adapters.embedded.agenda import Agenda, Task
from gpuctl.adapters.embedded.bodies import Key
from gpuctl.app.ports import Gone, WatchEvent
from gpuctl.k8s import kinds

QUICK = EmbeddedTimings(start_ms=30, termination_ms=30)


def real() -> EmbeddedCluster:
    cluster = EmbeddedCluster(SystemClock(), timings=QUICK)
    cluster.provide([pool("n1")])
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return cluster


def phases_of(events: list[WatchEvent]) -> set[str]:
    return {event.body["status"]["phase"] for event in events}


def test_virtual_time_moves_forward_only() -> None:
    clock = VirtualClock(10)
    clock.advance_to(10)
    clock.advance_to(11)
    assert clock.now_ms() == 11
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance_to(10)


def test_the_machines_clock_goes_on() -> None:
    clock = SystemClock()
    assert EPOCH_MS < clock.now_ms() <= clock.now_ms()


def test_in_real_time_a_watch_waits_for_what_is_due() -> None:
    cluster = real()
    cluster.run_for(job_id("j"), 50)
    version = cluster.list(kinds.POD).resource_version  # before the job: all of its life is seen, on a busy machine too
    cluster.apply(job("j"))
    seen: list[WatchEvent] = []
    started = monotonic()
    while "Succeeded" not in phases_of(seen) and monotonic() - started < 120:
        events = cluster.watch(kinds.POD, version, 5_000)
        version = events[-1].body["metadata"]["resourceVersion"]
        seen += [event for event in events if event.type != "BOOKMARK"]
    assert phases(cluster) == {"j": "Succeeded"}
    assert phases_of(seen) >= {"Running", "Succeeded"}


def test_a_watch_is_woken_by_a_writer() -> None:
    cluster = real()
    version = cluster.list(kinds.CONFIG_MAP).resource_version
    seen: list[WatchEvent] = []
    watcher = threading.Thread(target=lambda: seen.extend(cluster.watch(kinds.CONFIG_MAP, version, 20_000)))
    watcher.start()
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": NAMESPACE}})
    watcher.join(60)
    assert not watcher.is_alive()
    assert [event.type for event in seen] == ["ADDED", "BOOKMARK"]


def test_a_watch_in_real_time_ends_with_its_timeout() -> None:
    cluster = real()
    version = cluster.list(kinds.CONFIG_MAP).resource_version
    assert [event.type for event in cluster.watch(kinds.CONFIG_MAP, version, 50)] == ["BOOKMARK"]


def test_a_clock_that_stands_still_is_not_waited_for() -> None:
    cluster = opened(VirtualClock(EPOCH_MS))
    version = cluster.list(kinds.CONFIG_MAP).resource_version
    started = monotonic()
    assert [event.type for event in cluster.watch(kinds.CONFIG_MAP, version, 3_600_000)] == ["BOOKMARK"]
    assert monotonic() - started < 60


def test_writers_of_several_threads_lose_nothing() -> None:
    cluster = real()

    def write(start: int) -> None:
        for number in range(start, start + 50):
            cluster.apply(job(f"j{number}", suspend=True))

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 50, 100, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = cluster.list(kinds.JOB).items
    assert len(listed) == 200
    assert len({o["metadata"]["resourceVersion"] for o in listed}) == 200


def test_a_watch_from_before_the_history_is_gone() -> None:
    cluster = opened(VirtualClock(EPOCH_MS), history=4)
    version = cluster.list(kinds.JOB).resource_version
    for number in range(3):
        cluster.apply(job(f"j{number}", suspend=True))
    with pytest.raises(Gone):
        cluster.watch(kinds.JOB, version, 0)
    quiet = cluster.list(kinds.SERVICE).resource_version
    assert [event.type for event in cluster.watch(kinds.SERVICE, quiet, 0)] == ["BOOKMARK"]


def test_the_agenda_keeps_one_instant_a_task_and_gives_them_in_order() -> None:
    agenda = Agenda()
    late, early = (Task("c", Key("v1", "Pod", "ns", name)) for name in ("late", "early"))
    agenda.at(30, late)
    agenda.at(20, late)
    agenda.at(25, late)
    agenda.at(10, early)
    assert agenda.next_due() == 10
    agenda.ripen()
    assert (agenda.take(), agenda.take()) == (early, None)
    assert agenda.next_due() == 20
    agenda.forget(late)
    assert agenda.next_due() is None
    for _ in range(1_000):
        agenda.forget(early)
        agenda.at(5, early)
    assert agenda.next_due() == 5
    agenda.ripen()
    assert (agenda.take(), agenda.take(), agenda.next_due()) == (early, None, None)


def test_importing_it_is_light() -> None:
    """Neither the file format nor a network client comes with the import of the command line's adapters."""
    script = "import sys, gpuctl.adapters.embedded; print(*sorted(m for m in ('kubernetes', 'pydantic', 'asyncio') if m in sys.modules))"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
