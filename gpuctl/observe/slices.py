"""MIG slices that a device plugin counts by profile: to which GPUs of a node they belong, and how many others hold.

It is not known to which GPU a counted slice belongs. Whole GPUs have the first indexes, cut ones the indexes after
them, profile by profile. A broken slice counts for the last GPU of its profile, and so do slices that others hold, as
far as gpuctl's own runs leave room there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuctl.k8s import names
from gpuctl.k8s.bounds import whole_number
from gpuctl.k8s.objects import labels_of, mapping
from gpuctl.k8s.quantity import MEBIBYTE
from gpuctl.k8s.requests import profile_counts
from gpuctl.model.mig import slices_per_gpu
from gpuctl.model.state import Body, CutGpu
from gpuctl.model.units import MOST_NODE_GPUS


def counted_gpus(node: Body, first: int) -> dict[int, CutGpu]:
    """The cut GPUs of a node, from index `first` on; for each profile at most one more than a node may have GPUs."""
    mem_bytes = (whole_number(labels_of(node).get(names.GPU_MEMORY_LABEL)) or 0) * MEBIBYTE
    healthy = profile_counts(mapping(node, "status", "allocatable"))
    found: dict[int, CutGpu] = {}
    for profile, count in sorted(profile_counts(mapping(node, "status", "capacity")).items()):
        left, per_gpu = min(count, healthy.get(profile, 0)), slices_per_gpu(profile, mem_bytes)
        for _ in range(min(-(-count // per_gpu), MOST_NODE_GPUS + 1)):
            found[first + len(found)] = CutGpu(profile=profile, slices=min(left, per_gpu))
            left -= min(left, per_gpu)
    return found


def with_others(
    cut: Mapping[int, CutGpu], counted: Mapping[str, int], named: Mapping[int, int], held: Mapping[int, int]
) -> dict[int, CutGpu]:
    """The cut GPUs with what others hold: `counted` by profile, `named` by index. `held`: how often runs hold each."""
    left = dict(counted)
    found: dict[int, CutGpu] = {}
    for gpu, one in sorted(cut.items(), reverse=True):
        free = max(0, one.slices - held.get(gpu, 0))
        here = min(free, left.get(one.profile, 0))
        left[one.profile] = left.get(one.profile, 0) - here
        found[gpu] = replace(one, taken=here + named.get(gpu, 0))
    return dict(sorted(found.items()))
