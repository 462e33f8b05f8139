"""GPU304x and GPU506x: how pools hand out GPUs, and what can't be had of them that way."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3040",
        title="a MIG pool that does not say what is cut",
        message='pool "{pool}" shares GPUs by MIG and does not say how any of them is cut',
        why="A fraction becomes a slice that was cut beforehand; which there are is decided when nodes are set up.",
        fix="add mig with the number of GPUs of each node that are cut, by profile: {3g.40gb: 2}",
    ),
    CodeEntry(
        code="GPU3041",
        title="a MIG profile that such a GPU does not have",
        message='"{profile}" is no MIG profile of a GPU with {memory:memory}',
        why="What a GPU can be cut into depends on its memory: an A100 with 40 GB has 3g.20gb, one with 80 GB 3g.40gb.",
        fix="name a profile of that GPU, or correct gpuMemory",
    ),
    CodeEntry(
        code="GPU3042",
        title="more GPUs cut than there are",
        message='node "{node}" has {gpus} GPUs, and {cut} of them are cut',
        why="mig counts GPUs of each node, not slices.",
        fix="cut fewer, or give the node a mig of its own",
    ),
    CodeEntry(
        code="GPU3043",
        title="a field of another kind of sharing",
        message="{field} means nothing with sharing: {sharing}",
        why="driver belongs to dra, mig to mig and to dra with driver: nvidia, gpuSlots to hami.",
        fix="remove it, or correct sharing",
    ),
    CodeEntry(
        code="GPU3044",
        title="more than half a GPU where GPUs are cut",
        message="{need:gpus} GPUs cannot be had on {pools}: no MIG profile holds more than half a GPU",
        why="A GPU is cut into slices of an eighth, a quarter or a half of its memory; what is more is a whole GPU.",
        fix="ask for 0.5 or 1, or use a pool with sharing: hami, or dra with HAMi's driver",
    ),
    CodeEntry(
        code="GPU3045",
        title="a slice that no GPU is cut into",
        message="{need:gpus} GPUs cannot be had on {pools}: the largest slice there, {profile}, holds {largest:gpus}",
        why="A fraction gets the smallest slice that holds it, of those its pools declare.",
        fix="ask for less, or cut GPUs into larger slices and declare that in the pool's mig",
    ),
    CodeEntry(
        code="GPU3046",
        title="a part of a GPU where none is cut",
        message="a part of a GPU cannot be had on {pools}: NVIDIA's driver gives whole GPUs, and none there is cut",
        why="NVIDIA's DRA driver enforces no share of a GPU but a MIG slice.",
        fix="ask for whole GPUs, declare the pool's mig, or use a pool with HAMi's driver",
    ),
    CodeEntry(
        code="GPU3047",
        title="a variable by which a container takes GPUs",
        message="a job may not set {name}",
        why="By it a container sees GPUs it was not given, or takes more of one than it was given.",
        fix="remove it; CUDA_VISIBLE_DEVICES is yours to set",
    ),
    CodeEntry(
        code="GPU3048",
        title="a gang on MIG slices",
        message="{workers} workers that work together cannot have MIG slices, and {pools} gives no other part of a GPU",
        why="A cut GPU has no NVLink and no peer-to-peer access, and NCCL takes no slices.",
        fix="use whole GPUs, or make it one worker",
    ),
    CodeEntry(
        code="GPU5060",
        title="live nodes are cut in another way",
        message="can't run: no node of {pools} offers MIG slices {profile}",
        why="The pool declares GPUs cut into that profile, and its live nodes have none: MIG was never set up there, "
        "or is being changed.",
        fix="Cut GPUs of these nodes (nvidia.com/mig.config), or declare in the pool's mig what there is.",
    ),
    CodeEntry(
        code="GPU5061",
        title="live nodes hand out GPUs in another way",
        message="can't run: no node of {pools} shows GPUs that can be had by sharing: {sharing}",
        why="dra needs ResourceSlices of the pool's driver, hami the node annotation hami.io/node-nvidia-register with "
        "at least gpuSlots each, device-plugin and mig a device plugin or a DeviceClass gpu.nvidia.com with "
        "extendedResourceName nvidia.com/gpu.",
        fix="Install the driver or plugin on these nodes, or correct the pool's sharing and driver.",
    ),
)
