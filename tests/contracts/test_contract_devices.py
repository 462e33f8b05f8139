"""Devices by DRA: seen on a real server, and what keeps two jobs off one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labs import DRIVER, Lab, claim_template, dra_job, lab

from gpuctl.k8s import kinds

GANG: Mapping[str, Any] = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}


def devices(lab: Lab, job: str) -> list[tuple[str, str, Mapping[str, str]]]:
    """(node, device, consumed capacity) of a job's claims, sorted."""
    pods = {pod["metadata"]["name"] for pod in lab.pods(job)}
    found = []
    for claim in lab.cluster.list(kinds.RESOURCE_CLAIM).items:
        if claim["metadata"]["ownerReferences"][0]["name"] in pods:
            results: list[dict[str, Any]] = (
                claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
            )
            assert all(result["driver"] == DRIVER for result in results)
            found += [(r["pool"], r["device"], r["consumedCapacity"]) for r in results]
    return sorted(found, key=lambda entry: entry[:2])


def phases(lab: Lab, job: str) -> list[str]:
    """Of a job's pods, sorted."""
    return sorted(str(pod["status"].get("phase")) for pod in lab.pods(job))


def test_sixty_and_forty_share_a_device_and_fifty_more_wait(lab: Lab) -> None:
    def start(name: str, cores: int, memory: str) -> None:
        lab.apply(claim_template(name, (0,), cores=cores, memory=memory))
        lab.apply(dra_job(name, name, nodes=("shared-1",)))

    # One by one: pods of Jobs made at once are made in any order, and the last two would fit together as well.
    start("b60", 60, "19506Mi")
    lab.running("b60")
    start("b40", 40, "13004Mi")
    lab.running("b40")
    start("c50", 50, "16255Mi")
    lab.eventually(lambda: "cannot allocate all claims" in lab.unschedulable("c50"))
    assert devices(lab, "b60") == [("shared-1", "hami-gpu-0", {"cores": "60", "memory": "19506Mi"})]
    assert devices(lab, "b40") == [("shared-1", "hami-gpu-0", {"cores": "40", "memory": "13004Mi"})]
    assert devices(lab, "c50") == []


def test_what_waits_for_a_device_gets_it_when_it_is_free(lab: Lab) -> None:
    for name in ("first", "second"):
        lab.apply(claim_template(name, (3,)))
    lab.apply(dra_job("first", "first", nodes=("shared-2",)))
    lab.running("first")
    lab.apply(dra_job("second", "second", nodes=("shared-2",)))
    lab.eventually(lambda: lab.unschedulable("second"))
    lab.finish("first")
    lab.running("second")
    assert devices(lab, "second") == [("shared-2", "hami-gpu-3", {"cores": "100", "memory": "32510Mi"})]
    assert devices(lab, "first") == []


def test_a_count_takes_exactly_the_devices_of_the_selector(lab: Lab) -> None:
    lab.apply(claim_template("two", (1, 2), count=2))
    lab.apply(dra_job("two", "two", nodes=("shared-1",)))
    lab.running("two")
    assert [entry[:2] for entry in devices(lab, "two")] == [("shared-1", "hami-gpu-1"), ("shared-1", "hami-gpu-2")]


def test_a_gang_takes_the_same_devices_on_each_of_its_nodes_from_one_template(lab: Lab) -> None:
    lab.apply(claim_template("gang", (0, 1, 2, 3), count=4))
    # Each worker asks for so much CPU that a node has room for one.
    big = dra_job("gang", "gang", nodes=("shared-1", "shared-2"), **GANG)
    big["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "60"}
    lab.apply(big)
    pods = lab.running("gang", 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"shared-1", "shared-2"}
    assert [entry[:2] for entry in devices(lab, "gang")] == [
        (node, f"hami-gpu-{minor}") for node in ("shared-1", "shared-2") for minor in range(4)
    ]


def test_a_gang_that_fits_nowhere_together_still_gets_what_there_is(lab: Lab) -> None:
    lab.apply(claim_template("holder", (0, 1, 2, 3), count=4))
    lab.apply(dra_job("holder", "holder", nodes=("shared-1",)))
    lab.running("holder")
    lab.apply(claim_template("gang", (0, 1, 2, 3), count=4))
    lab.apply(dra_job("gang", "gang", nodes=("shared-1", "shared-2"), **GANG))
    lab.eventually(lambda: phases(lab, "gang") == ["Pending", "Running"])
    lab.later(60_000)
    assert phases(lab, "gang") == ["Pending", "Running"]


def test_a_pod_waits_for_its_template(lab: Lab) -> None:
    lab.apply(dra_job("early", "late-template", nodes=("shared-1",)))
    lab.eventually(lambda: lab.pods("early"))
    lab.later(30_000)
    assert phases(lab, "early") == ["Pending"]
    lab.apply(claim_template("late-template", (5,)))
    lab.running("early")


def test_the_template_of_a_suspended_job_may_be_made_anew_for_other_devices(lab: Lab) -> None:
    lab.apply(claim_template("moved", (0,)))
    lab.apply(dra_job("moved", "moved", nodes=("shared-1",)))
    lab.running("moved")
    lab.apply(dra_job("moved", "moved", nodes=("shared-1",), suspend=True))
    lab.eventually(lambda: not lab.pods("moved"))
    lab.eventually(lambda: not lab.cluster.list(kinds.RESOURCE_CLAIM).items)
    lab.delete(kinds.CLAIM_TEMPLATE, "moved")
    lab.apply(claim_template("moved", (6,)))
    lab.apply(dra_job("moved", "moved", nodes=("shared-2",)))
    lab.running("moved")
    assert [entry[:2] for entry in devices(lab, "moved")] == [("shared-2", "hami-gpu-6")]


def test_claims_of_different_namespaces_share_a_device(lab: Lab) -> None:
    other = "gpu-team-b"
    lab.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    for namespace in (lab.namespace, other):
        for made in (
            claim_template("half", (7,), cores=60, memory="16255Mi"),
            dra_job("half", "half", nodes=("shared-1",)),
        ):
            lab.apply({**made, "metadata": {**made["metadata"], "namespace": namespace}})
    lab.eventually(lambda: phases(lab, "half") == ["Pending", "Running"])
    lab.later(60_000)
    assert phases(lab, "half") == ["Pending", "Running"]
