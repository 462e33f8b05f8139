"""What pools that share GPUs may say, what can be had of them, and what it is charged."""

from __future__ import annotations

import pytest
from trees import HEAD, codes, job, project, tree_of

from gpuctl.compile import Compiled, compile_tree
from gpuctl.model.declared import Driver, NodePool
from gpuctl.model.mig import profiles_of, slices_per_gpu

H100 = "gpusPerNode: 8, gpuMemory: 81559Mi"


def cluster(*pools: str) -> str:
    entries = "".join(f"  - {{{pool}, resourcesPerNode: {{cpu: 80}}}}\n" for pool in pools)
    return f"{HEAD}kind: Cluster\nmetadata: {{name: c}}\nspec:\n  nodePools:\n{entries}"


def compiled(*documents: str) -> Compiled:
    return compile_tree(tree_of({f"{index}.yaml": text for index, text in enumerate(documents)}))


def declared_pool(spec: str) -> NodePool:
    made = compiled(cluster(f"name: p, {spec}"))
    assert made.declared is not None, made.diagnostics
    return made.declared.cluster.pools[0]


@pytest.mark.parametrize(
    ("gib", "name", "per_gpu"),
    [
        (24, "1g.6gb", 4),
        (40, "1g.5gb", 7),
        (40, "1g.10gb", 4),
        (80, "1g.10gb", 7),
        (80, "1g.20gb", 4),
        (80, "2g.20gb", 3),
        (80, "3g.40gb", 2),
        (141, "3g.71gb", 2),
        (180, "1g.23gb", 7),
    ],
)
def test_slices_of_a_gpu(gib: int, name: str, per_gpu: int) -> None:
    mem_bytes = gib << 30
    for reported in (mem_bytes, mem_bytes * 97 // 100):
        assert slices_per_gpu(name, reported) == per_gpu
        charged = [p.charge_milli * p.per_gpu for p in profiles_of(reported)]
        assert all(994 <= milli <= 1000 for milli in charged)


def test_memory_that_is_unknown_makes_no_gpu_too_large() -> None:
    assert slices_per_gpu("1g.10gb", 0) == 7
    assert slices_per_gpu("9g.90gb", 0) == 1
    assert profiles_of(32 << 30) == ()


@pytest.mark.parametrize(
    ("milli", "charged", "profile"),
    [
        (1, 142, "1g.10gb"),
        (125, 142, "1g.10gb"),
        (126, 250, "1g.20gb"),
        (250, 250, "1g.20gb"),
        (251, 500, "3g.40gb"),
        (500, 500, "3g.40gb"),
        (3000, 3000, ""),
    ],
)
def test_a_part_becomes_the_smallest_slice_that_holds_it(milli: int, charged: int, profile: str) -> None:
    cut = "mig: {3g.40gb: 2, 1g.10gb: 1, 1g.20gb: 1}"
    for sharing in ("sharing: mig", "sharing: dra, driver: nvidia"):
        grant = declared_pool(f"nodes: [n], {H100}, {sharing}, {cut}").grant(milli)
        assert grant is not None
        assert (grant.gpu_milli, grant.profile) == (charged, profile)


def test_more_than_a_half_and_more_than_one_are_no_slice() -> None:
    pool = declared_pool(f"nodes: [n], {H100}, sharing: mig, mig: {{3g.40gb: 2}}")
    assert [pool.grant(milli) for milli in (501, 999, 1500)] == [None, None, None]


def test_a_node_may_be_cut_in_a_way_of_its_own() -> None:
    pool = declared_pool(f"nodes: [a, {{name: b, mig: {{}}}}], {H100}, sharing: mig, mig: {{3g.40gb: 2}}")
    assert [node.whole_gpus for node in pool.nodes] == [6, 8]
    assert pool.driver is Driver.HAMI


def test_hami_charges_no_less_than_a_slot() -> None:
    pool = declared_pool("nodes: [n], gpusPerNode: 8, sharing: hami, gpuSlots: 4")
    assert [grant and grant.gpu_milli for grant in map(pool.grant, (10, 250, 251, 2000))] == [250, 250, 251, 2000]


CUT = f"name: cut, nodes: [n], {H100}, sharing: mig, mig: {{3g.40gb: 2}}"
NVIDIA = f"name: nvidia, nodes: [m], {H100}, sharing: dra, driver: nvidia"
HAMI = f"name: hami, nodes: [o], {H100}, sharing: hami"


@pytest.mark.parametrize(
    ("pools", "spec", "found"),
    [
        ([CUT], "{gpus: 0.5}", []),
        ([CUT], "{gpus: 0.6}", ["GPU3044"]),
        ([CUT], "{gpuMemory: 40Gi}", ["GPU3044"]),
        ([CUT, HAMI], "{gpus: 0.6}", []),
        ([CUT], "{gpus: 7}", ["GPU3016"]),
        ([CUT], "{gpus: 6}", []),
        ([CUT], "{gpus: 0.25, workers: 4}", ["GPU3048"]),
        ([CUT], "{gpus: 0.25, workers: 4, type: inference}", []),
        ([CUT], "{gpus: 0.25, workers: 5, type: inference}", ["GPU3017"]),
        ([NVIDIA], "{gpus: 8}", []),
        ([NVIDIA], "{gpus: 0.5}", ["GPU3046"]),
        ([NVIDIA, CUT], "{gpus: 0.5}", []),
        ([CUT.replace("3g.40gb", "1g.10gb")], "{gpus: 0.3}", ["GPU3045"]),
        ([CUT.replace(", mig: {3g.40gb: 2}", "")], "{gpus: 0.3}", ["GPU3040"]),
        ([CUT.replace(", gpuMemory: 81559Mi", "")], "{gpus: 1}", ["GPU3026"]),
        ([HAMI], "{gpus: 0.5, env: {NVIDIA_VISIBLE_DEVICES: all}}", ["GPU3047"]),
        ([HAMI], "{gpus: 0.5, env: {GPU_CORE_UTILIZATION_POLICY: disable}}", ["GPU3047"]),
        ([HAMI], '{gpus: 0.5, env: {CUDA_TASK_PRIORITY: "0"}}', ["GPU3047"]),
        ([HAMI], "{gpus: 0.5, env: {CUDA_DEVICE_MEMORY_SHARED_CACHE: /tmp/mine}}", ["GPU3047"]),
        ([CUT, HAMI], "{gpus: 0.5, nodePools: [cut, hami]}", ["GPU3028"]),
        ([CUT, NVIDIA], "{gpus: 2, nodePools: [cut, nvidia]}", ["GPU3028"]),
    ],
)
def test_what_can_be_had(pools: list[str], spec: str, found: list[str]) -> None:
    wanted = "{image: x, " + spec[1:]
    assert codes(compiled(cluster(*pools), project("team-a", "{quota: 8}"), job("j", wanted))) == found


def test_a_slice_counts_in_full_against_quota() -> None:
    wanted = job("j", "{image: x, gpus: 0.3, preemptible: false}")
    assert codes(compiled(cluster(CUT), project("team-a", "{quota: 0.4}"), wanted)) == ["GPU3015"]
