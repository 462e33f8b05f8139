"""How GPUs are asked for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample import MIB, admit, bodies, declared, job, pending, pool, rendered, run_body

from gpuctl.k8s import names
from gpuctl.k8s.annotations import decode_charge
from gpuctl.k8s.quantity import parse_whole
from gpuctl.model.declared import Sharing
from gpuctl.model.job import Job
from gpuctl.model.state import Body, Charge
from gpuctl.model.units import GpuMilli


def claim_of(one: Job, *workers: tuple[str, tuple[int, ...]]) -> Any:
    body = bodies(rendered(declared(one), admit(one, *workers)))["ResourceClaimTemplate a-1-g-0badcafe"]
    (request,) = body["spec"]["spec"]["devices"]["requests"]
    return request["exactly"]


def expression(claim: Body) -> str:
    return str(claim["selectors"][0]["cel"]["expression"])


def test_half_of_the_reports_gpu_is_exactly_half_its_memory() -> None:
    claim = claim_of(job(gpu_milli=500), ("dgx1-1", (7,)))
    assert claim == {
        "deviceClassName": names.DRA_DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {"cores": "50", "memory": "16255Mi"}},
        "selectors": [{"cel": {"expression": f"device.attributes['{names.DRA_DRIVER}'].minor in [7]"}}],
    }


def test_whole_gpus_are_taken_whole_and_by_name() -> None:
    claim = claim_of(job(gpu_milli=4000), ("dgx1-1", (5, 4, 7, 6)))
    assert claim["count"] == 4
    assert claim["capacity"]["requests"] == {"cores": "100", "memory": "32510Mi"}
    assert expression(claim).endswith("in [4, 5, 6, 7]")


def test_a_gang_shares_a_template_with_the_union_of_its_devices() -> None:
    claim = claim_of(job(gpu_milli=2000, workers=2), ("dgx1-1", (0, 1)), ("dgx1-2", (6, 7)))
    assert claim["count"] == 2
    assert expression(claim).endswith("in [0, 1, 6, 7]")


def test_a_request_by_memory_gets_that_memory() -> None:
    one = job(gpu_milli=504, gpu_mem_bytes=16_384 * MIB)
    assert claim_of(one, ("dgx1-1", (0,)))["capacity"]["requests"] == {"cores": "50", "memory": "16Gi"}


def test_the_pod_uses_the_claim_and_the_template_carries_the_runs_labels() -> None:
    one = job()
    manifests = bodies(rendered(declared(one), admit(one, ("dgx1-1", (0,)))))
    spec = manifests["Job a-1-g-0badcafe"]["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "a-1-g-0badcafe"}]
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}
    claim_labels = manifests["ResourceClaimTemplate a-1-g-0badcafe"]["spec"]["metadata"]["labels"]
    assert claim_labels[names.RUN_LABEL] == "0badcafe"


def test_the_device_plugin_is_asked_for_a_number() -> None:
    plugin = (pool(sharing=Sharing.DEVICE_PLUGIN),)
    one = job(gpu_milli=2000)
    manifests = bodies(rendered(declared(one, pools=plugin), admit(one, ("dgx1-1", (0, 1)))))
    spec = manifests["Job a-1-g-0badcafe"]["spec"]["template"]["spec"]
    amounts = {names.GPU_RESOURCE: "2"}
    assert spec["containers"][0]["resources"] == {"requests": amounts, "limits": amounts}
    assert "resourceClaims" not in spec
    assert not [name for name in manifests if name.startswith("ResourceClaimTemplate")]


def test_a_cpu_job_asks_for_no_device() -> None:
    one = job(gpu_milli=0, cpu_milli=500, mem_bytes=2**30)
    manifests = bodies(rendered(declared(one), admit(one, ("dgx1-1", ()))))
    spec = manifests["Job a-1-g-0badcafe"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"memory": "1Gi"},
    }
    assert "resourceClaims" not in spec
    assert not [name for name in manifests if name.startswith("ResourceClaimTemplate")]


def test_a_run_is_charged_what_it_takes_where_it_is() -> None:
    one = job(gpu_milli=1000, gpu_mem_bytes=16_255 * MIB)
    placed = run_body(declared(one), admit(one, ("dgx1-1", (0,))))
    waiting = run_body(declared(one), pending(one))
    assert decode_charge(placed["metadata"]["annotations"][names.CHARGE_ANNOTATION]) == Charge(gpu_milli=500)
    assert decode_charge(waiting["metadata"]["annotations"][names.CHARGE_ANNOTATION]) == Charge(gpu_milli=1000)


@given(st.lists(st.integers(1, 999), min_size=1, max_size=12))
def test_fractions_that_fill_a_gpu_fit_it(shares: list[GpuMilli]) -> None:
    """SAFETY: what jobs on one device ask for together is never more than it has, where their shares are not."""
    fitting = [share for index, share in enumerate(shares) if sum(shares[: index + 1]) <= 1000]
    claims = [claim_of(job(gpu_milli=share), ("dgx1-1", (0,))) for share in fitting]
    amounts = [claim["capacity"]["requests"] for claim in claims]
    assert sum(parse_whole(amount["memory"]) for amount in amounts) <= 32_510 * MIB
    assert sum(int(amount["cores"]) for amount in amounts) <= 100


@pytest.mark.parametrize("sharing", [Sharing.DRA, Sharing.DEVICE_PLUGIN])
def test_a_template_is_the_same_waiting_and_placed_but_for_its_place(sharing: Sharing) -> None:
    one = job(gpu_milli=2000, workers=2)
    cluster = declared(one, pools=(pool(sharing=sharing),))
    placed = run_body(cluster, admit(one, ("dgx1-1", (0, 1)), ("dgx1-2", (0, 1))))["spec"]["template"]
    waiting = run_body(cluster, pending(one))["spec"]["template"]
    spec = {key: value for key, value in placed["spec"].items() if key != "affinity"}
    assert spec == waiting["spec"]
    assert placed["metadata"]["labels"] == waiting["metadata"]["labels"]
