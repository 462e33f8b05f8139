"""A cluster on a file: opened again it is the cluster that was left, also when it was killed between two writes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import pytest
from stories import EPOCH_MS, NAMESPACE, advance, everything, job, job_id, opened, phases, true_conditions

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.embedded.sqlite import read
from gpuctl.app.ports import ClusterUnavailable, Gone
from gpuctl.k8s import kinds, names
from gpuctl.model.ids import ObjectRef


def test_opened_again_everything_is_as_it_was(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock, tmp_path / "c.db")
    for name in ("a", "b", "c"):
        cluster.apply(job(name, suspend=name == "c"))
    advance(clock, cluster, 1_000)
    cluster.finish(job_id("b"), 1)
    before, version = everything(cluster), cluster.list(kinds.POD).resource_version
    cluster.close()
    again = EmbeddedCluster(clock, str(tmp_path / "c.db"))
    assert everything(again) == before
    assert again.list(kinds.POD).resource_version == version
    again.close()


def test_a_watch_goes_on_from_the_last_version_and_from_no_earlier_one(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock, tmp_path / "c.db")
    early = cluster.list(kinds.JOB).resource_version
    cluster.apply(job("a", suspend=True))
    late = cluster.list(kinds.JOB).resource_version
    cluster.close()
    again = EmbeddedCluster(clock, str(tmp_path / "c.db"))
    assert [event.type for event in again.watch(kinds.JOB, late, 0)] == ["BOOKMARK"]
    again.apply(job("b", suspend=True))
    assert again.watch(kinds.JOB, late, 0)[0].body["metadata"]["name"] == "b"
    with pytest.raises(Gone):
        again.watch(kinds.JOB, early, 0)
    again.close()


def test_what_was_under_way_goes_on_at_its_own_time(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock, tmp_path / "c.db")
    cluster.run_for(job_id("a"), 60_000)
    cluster.apply(job("a"))
    advance(clock, cluster, 31_000)
    cluster.close()
    clock.advance_to(EPOCH_MS + 50_000)
    cluster = EmbeddedCluster(clock, str(tmp_path / "c.db"))
    assert cluster.next_event_ms() == EPOCH_MS + 61_000
    cluster.close()
    clock.advance_to(EPOCH_MS + 500_000)
    cluster = EmbeddedCluster(clock, str(tmp_path / "c.db"))
    assert "Complete" in true_conditions(cluster, "a")
    (done,) = cluster.list(kinds.JOB).items
    assert done["status"]["completionTime"] == "2020-07-29T05:21:01Z"
    cluster.close()


def test_a_pod_that_was_ending_ends(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock, tmp_path / "c.db")
    cluster.apply(job("a"))
    advance(clock, cluster, 1_000)
    cluster.apply(job("a", suspend=True))
    cluster.close()
    cluster = EmbeddedCluster(clock, str(tmp_path / "c.db"))
    assert phases(cluster) == {"a": "Running"}
    advance(clock, cluster, 2_000)
    assert phases(cluster) == {}
    cluster.close()


def test_new_objects_never_have_the_uid_of_old_ones(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH_MS)
    seen: set[str] = set()
    for _ in range(3):
        cluster = opened(clock, tmp_path / "c.db")
        uid = cluster.apply(job("a", suspend=True))["metadata"]["uid"]
        ref = next(o for o in cluster.list(kinds.JOB).items)["metadata"]
        cluster.delete(ObjectRef(*kinds.JOB, NAMESPACE, "a"), ref["uid"], ref["resourceVersion"])
        cluster.close()
        assert uid not in seen
        seen.add(uid)


def test_a_second_user_of_the_file_is_told_so(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock, tmp_path / "c.db")
    with pytest.raises(ClusterUnavailable, match="in use"):
        EmbeddedCluster(clock, str(tmp_path / "c.db"))
    cluster.close()
    EmbeddedCluster(clock, str(tmp_path / "c.db")).close()


def test_a_copy_shows_the_cluster_as_it_would_be_now_and_changes_nothing(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock, tmp_path / "c.db")
    cluster.apply(job("a"))
    later = VirtualClock(EPOCH_MS + 1_000)
    copy = EmbeddedCluster.copy_of(str(tmp_path / "c.db"), later)
    assert phases(copy) == {"a": "Running"}
    copy.apply(job("b"))
    assert phases(cluster) == {"a": "Pending"}
    cluster.close()
    assert phases(EmbeddedCluster.copy_of(str(tmp_path / "c.db"), clock)) == {"a": "Pending"}
    with pytest.raises(ClusterUnavailable):
        EmbeddedCluster.copy_of(str(tmp_path / "none.db"), clock)


def test_a_write_that_can_not_be_kept_now_says_so_and_is_kept_with_the_next(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock, tmp_path / "c.db")
    with closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ClusterUnavailable):
            cluster.apply(job("a", suspend=True))
        other.execute("ROLLBACK")
    cluster.apply(job("b", suspend=True))
    cluster.close()
    copy = EmbeddedCluster.copy_of(str(tmp_path / "c.db"), clock)
    assert [o["metadata"]["name"] for o in copy.list(kinds.JOB).items] == ["a", "b"]


def test_a_file_of_another_format_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "c.db")) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(ClusterUnavailable, match="another version"):
        EmbeddedCluster(VirtualClock(EPOCH_MS), str(tmp_path / "c.db"))


def test_facts_go_with_what_they_are_about(tmp_path: Path) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock, tmp_path / "c.db")
    cluster.apply(job("a"))
    advance(clock, cluster, 10_000)
    live = cluster.list(kinds.JOB).items[0]["metadata"]
    cluster.delete(ObjectRef(*kinds.JOB, NAMESPACE, "a"), live["uid"], live["resourceVersion"])
    advance(clock, cluster, 10_000)
    cluster.close()
    assert {about for about, _, _ in read(str(tmp_path / "c.db")).facts} == {"nodes"}


def test_a_file_that_is_no_cluster_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database " * 100)
    for path in (tmp_path / "text", tmp_path / "missing" / "c.db", tmp_path):
        with pytest.raises(ClusterUnavailable):
            EmbeddedCluster(VirtualClock(EPOCH_MS), str(path))


KILLED = dedent("""
    import os, signal, sys
    sys.path.insert(0, sys.argv[1])
    from stories import EPOCH_MS, job, opened
    from pathlib import Path
    from gpuctl.adapters.clock import VirtualClock
    clock = VirtualClock(EPOCH_MS)
    cluster = opened(clock, Path(sys.argv[2]))
    for number in range(1000):
        cluster.apply(job(f"j{number}", gpus=0))
        clock.advance_to(clock.now_ms() + 100)
        print(number, flush=True)
""")


@pytest.mark.parametrize("writes", [1, 7, 30])
def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path: Path, writes: int) -> None:
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path / "c.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(writes)]
        os.kill(process.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().split()]
    cluster = EmbeddedCluster(VirtualClock(EPOCH_MS + 3_600_000), str(tmp_path / "c.db"))
    found = {o["metadata"]["name"] for o in cluster.list(kinds.JOB).items}
    assert {f"j{number}" for number in acknowledged} <= found
    owners = [p["metadata"]["labels"][names.JOB_LABEL] for p in cluster.list(kinds.POD).items]
    assert sorted(owners) == sorted(found)
    assert set(phases(cluster).values()) == {"Running"}
    cluster.close()
