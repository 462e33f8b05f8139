"""Random stories: no device or node over its room, lists that events rebuild, a file that holds what memory holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from stories import EPOCH_MS, NAMESPACE, advance, everything, job, job_id, pool

from gpuctl.adapters.clock import VirtualClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.embedded.bodies import drop
from gpuctl.adapters.embedded.fieldsets import changed, decode, encode, leaves
from gpuctl.adapters.embedded.merge import merged
from gpuctl.adapters.embedded.shapes import shape_of
from gpuctl.app.ports import WorldFault
from gpuctl.k8s import kinds, names
from gpuctl.k8s.quantity import parse_whole
from gpuctl.model.declared import Sharing
from gpuctl.model.ids import NodeName, ObjectRef
from gpuctl.model.state import Body

NAMES = ("a", "b", "c", "d")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from(NAMES), st.sampled_from(("n1", "n2")), st.integers(1, 8)),
        st.tuples(st.just("pause"), st.sampled_from(NAMES)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(st.just("finish"), st.sampled_from(NAMES), st.integers(0, 1)),
        st.tuples(st.just("node"), st.sampled_from(("n1", "n2")), st.booleans()),
        st.tuples(st.just("time"), st.sampled_from((500, 1_000, 3_000, 400_000))),
    ),
    max_size=25,
)


def template(name: str, cores: int) -> dict[str, Any]:
    exactly = {"deviceClassName": names.DRA_DEVICE_CLASS, "capacity": {"requests": {
        "cores": str(cores), "memory": f"{325 * cores}Mi"}}}  # fmt: skip
    return {
        "apiVersion": kinds.CLAIM_TEMPLATE[0], "kind": kinds.CLAIM_TEMPLATE[1],
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }  # fmt: skip


def on_device(name: str, *, suspend: bool, node: str) -> dict[str, Any]:
    wanted = job(name, suspend=suspend, gpus=0, node=node)
    pod = wanted["spec"]["template"]["spec"]
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
    pod["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return wanted


def play(cluster: EmbeddedCluster, clock: VirtualClock, step: tuple[Any, ...]) -> None:
    """One thing that happens; what the server refuses has not happened."""
    name = step[1]
    try:
        match step[0]:
            case "run":
                cluster.apply(template(name, 10 * step[3]))
                cluster.apply(on_device(name, suspend=False, node=step[2]))
            case "pause":
                live = next(o for o in cluster.list(kinds.JOB).items if o["metadata"]["name"] == name)
                terms = str(live["spec"]["template"]["spec"]["affinity"])
                cluster.apply(on_device(name, suspend=True, node="n1" if "n1" in terms else "n2"))
            case "delete":
                live = next(o for o in cluster.list(kinds.JOB).items if o["metadata"]["name"] == name)
                cluster.delete(ObjectRef(*kinds.JOB, NAMESPACE, name), live["metadata"]["uid"], "")
            case "finish":
                cluster.finish(job_id(name), step[2])
            case "node":
                cluster.set_node_ready(NodeName(name), ready=step[2])
            case _:
                advance(clock, cluster, name)
    except (WorldFault, StopIteration):
        pass


def made(clock: VirtualClock, path: str | None = None) -> EmbeddedCluster:
    cluster = EmbeddedCluster(clock, path)
    cluster.provide([pool("n1", "n2", gpus=1, sharing=Sharing.DRA)])
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return cluster


def booked(cluster: EmbeddedCluster) -> Counter[tuple[str, str]]:
    """Cores taken of each device."""
    cores: Counter[tuple[str, str]] = Counter()
    for claim in cluster.list(kinds.RESOURCE_CLAIM).items:
        for result in claim["status"].get("allocation", {}).get("devices", {}).get("results", ()):
            cores[result["pool"], result["device"]] += parse_whole(result["consumedCapacity"]["cores"])
    return cores


@settings(max_examples=60)
@given(STEPS)
def test_no_device_is_ever_overbooked_and_no_claim_outlives_its_pod(steps: list[tuple[Any, ...]]) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = made(clock)
    for step in steps:
        play(cluster, clock, step)
        assert all(cores <= 100 for cores in booked(cluster).values())
        alive = {p["metadata"]["name"] for p in cluster.list(kinds.POD).items
                 if p["status"]["phase"] in {"Pending", "Running"}}  # fmt: skip
        owners = {c["metadata"]["ownerReferences"][0]["name"] for c in cluster.list(kinds.RESOURCE_CLAIM).items}
        assert owners <= alive


@settings(max_examples=60)
@given(STEPS)
def test_a_suspended_job_comes_to_rest_without_pods(steps: list[tuple[Any, ...]]) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = made(clock)
    for step in steps:
        play(cluster, clock, step)
    for name in NAMES:
        play(cluster, clock, ("pause", name))
    advance(clock, cluster, 3_600_000)
    assert [p for p in cluster.list(kinds.POD).items if p["status"]["phase"] in {"Pending", "Running"}] == []
    assert not booked(cluster)
    assert cluster.next_event_ms() is None


@settings(max_examples=40)
@given(STEPS)
def test_events_rebuild_every_list(steps: list[tuple[Any, ...]]) -> None:
    clock = VirtualClock(EPOCH_MS)
    cluster = made(clock)
    watched = (kinds.JOB, kinds.POD, kinds.NODE, kinds.RESOURCE_CLAIM)
    versions = {kind: cluster.list(kind).resource_version for kind in watched}
    copies = {kind: {o["metadata"]["uid"]: o for o in cluster.list(kind).items} for kind in watched}
    for step in steps:
        play(cluster, clock, step)
        for kind in watched:
            for event in cluster.watch(kind, versions[kind], 0):
                versions[kind] = event.body["metadata"]["resourceVersion"]
                if event.type == "DELETED":
                    del copies[kind][event.body["metadata"]["uid"]]
                elif event.type != "BOOKMARK":
                    copies[kind][event.body["metadata"]["uid"]] = event.body
            assert copies[kind] == {o["metadata"]["uid"]: o for o in cluster.list(kind).items}


def unversioned(cluster: EmbeddedCluster) -> dict[tuple[str, str], list[Body]]:
    """Everything but versions: what happens at one instant has an order that no file keeps."""
    return {
        kind: [drop(body, ("metadata", "resourceVersion")) for body in bodies]
        for kind, bodies in everything(cluster).items()
    }


@settings(max_examples=25)
@given(STEPS, st.integers(1, 5))
@example([("run", "b", "n1", 1), ("run", "a", "n1", 1), ("node", "n1", False)], 1)
@example([("node", "n1", False), ("run", "b", "n1", 1), ("run", "a", "n2", 1), ("node", "n1", True), ("time", 1000)], 1)
def test_a_file_left_and_opened_between_steps_tells_the_same_story(steps: list[tuple[Any, ...]], every: int) -> None:
    with TemporaryDirectory() as folder:
        clocks = VirtualClock(EPOCH_MS), VirtualClock(EPOCH_MS)
        path = str(Path(folder) / "c.db")
        whole, broken = made(clocks[0]), made(clocks[1], path)
        try:
            for number, step in enumerate(steps):
                play(whole, clocks[0], step)
                play(broken, clocks[1], step)
                if number % every == 0:
                    broken.close()
                    broken = EmbeddedCluster(clocks[1], path)
            assert unversioned(broken) == unversioned(whole)
            assert broken.next_event_ms() == whole.next_event_ms()
        finally:
            broken.close()


SCALARS = st.one_of(st.integers(0, 3), st.sampled_from(("x", "y")), st.booleans())
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(("main", "side", "third"))},
        optional={"image": SCALARS, "args": st.lists(SCALARS, max_size=2), "resources": st.fixed_dictionaries(
            {}, optional={"limits": st.dictionaries(st.sampled_from(("cpu", "memory")), SCALARS)})},
    ),
    max_size=3,
    unique_by=lambda container: str(container["name"]),
)  # fmt: skip
JOBS = st.fixed_dictionaries(
    {"spec": st.fixed_dictionaries(
        {"template": st.fixed_dictionaries({"spec": st.fixed_dictionaries({"containers": CONTAINERS})})},
        optional={"suspend": st.booleans(), "activeDeadlineSeconds": st.integers(0, 5)},
    )},
    optional={"metadata": st.fixed_dictionaries({"labels": st.dictionaries(st.sampled_from("ab"), SCALARS)})},
)  # fmt: skip
SHAPE = shape_of(kinds.JOB)


@given(JOBS)
def test_a_field_set_is_the_same_after_writing_and_reading_it(body: dict[str, Any]) -> None:
    fields = frozenset(leaves(SHAPE, body))
    assert decode(encode(fields)) == fields


@given(JOBS, JOBS)
def test_what_is_applied_is_there_afterwards(live: dict[str, Any], wanted: dict[str, Any]) -> None:
    result = leaves(SHAPE, merged(SHAPE, live, wanted))
    assert {path: result[path] for path in leaves(SHAPE, wanted) if leaves(SHAPE, wanted)[path] != {}} == {
        path: value for path, value in leaves(SHAPE, wanted).items() if value != {}
    }
    assert set(leaves(SHAPE, live)) <= set(result) | {
        path for path, value in leaves(SHAPE, live).items() if value == {}
    }


@given(JOBS, JOBS)
def test_applying_twice_is_applying_once(live: dict[str, Any], wanted: dict[str, Any]) -> None:
    once = merged(SHAPE, live, wanted)
    assert merged(SHAPE, once, wanted) == once


@given(JOBS, JOBS)
def test_what_changed_is_nothing_exactly_for_equals(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert changed(SHAPE, one, one) == frozenset()
    assert changed(SHAPE, one, other) == changed(SHAPE, other, one)
