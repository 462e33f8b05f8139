"""GPU304x and GPU506x: how pools allocate GPUs, and requests that they can't serve."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3040",
        title="a MIG pool without mig",
        message='pool "{pool}" shares GPUs by MIG without mig, the MIG profiles of its GPUs',
        why="A fraction becomes a MIG slice, and slices are created when nodes are set up.",
        fix="add mig with the number of partitioned GPUs of each node, by profile: {3g.40gb: 2}",
    ),
    CodeEntry(
        code="GPU3041",
        title="a MIG profile that such a GPU does not have",
        message='"{profile}" is not a MIG profile of a GPU with {memory:memory}',
        why="The MIG profiles of a GPU depend on its memory: an A100 with 40 GB has 3g.20gb, one with 80 GB 3g.40gb.",
        fix="name a profile of that GPU, or correct gpuMemory",
    ),
    CodeEntry(
        code="GPU3042",
        title="more partitioned GPUs than the node has",
        message='node "{node}" has {gpus} GPUs, and mig partitions {cut} of them',
        why="mig counts GPUs of each node, not slices.",
        fix="partition fewer, or declare a separate mig for the node",
    ),
    CodeEntry(
        code="GPU3043",
        title="a field of another kind of sharing",
        message="{field} has no effect with sharing: {sharing}",
        why="driver belongs to dra, mig to mig and to dra with driver: nvidia, gpuSlots to hami.",
        fix="remove it, or correct sharing",
    ),
    CodeEntry(
        code="GPU3044",
        title="more than half a GPU on MIG slices",
        message="{need:gpus} GPUs are not available on {pools}: no MIG profile has more than half a GPU",
        why="MIG slices have an eighth, a quarter or a half of a GPU's memory; a larger request needs a whole GPU.",
        fix="request 0.5 or 1, or use a pool with sharing: hami, or dra with HAMi's driver",
    ),
    CodeEntry(
        code="GPU3045",
        title="a request larger than every MIG slice",
        message="{need:gpus} GPUs are not available on {pools}: the largest slice, {profile}, has {largest:gpus}",
        why="A fraction gets the smallest slice that is large enough, of those that its pools declare.",
        fix="request less, or partition GPUs into larger slices and declare that in the pool's mig",
    ),
    CodeEntry(
        code="GPU3046",
        title="a fraction of a GPU without MIG slices",
        message="a fraction of a GPU is not available on {pools}: NVIDIA's driver allocates whole GPUs, and mig "
        "declares no slices",
        why="The only share of a GPU that NVIDIA's DRA driver enforces is a MIG slice.",
        fix="request whole GPUs, declare the pool's mig, or use a pool with HAMi's driver",
    ),
    CodeEntry(
        code="GPU3047",
        title="a variable that gives a container GPUs",
        message="a job may not set {name}",
        why="With this variable a container could use GPUs, or parts of a GPU, that are not allocated to it.",
        fix="remove it; CUDA_VISIBLE_DEVICES is yours to set",
    ),
    CodeEntry(
        code="GPU3048",
        title="a gang on MIG slices",
        message="a gang of {workers} workers can't use MIG slices, and {pools} has no other fractions of a GPU",
        why="A GPU with MIG has no NVLink and no peer-to-peer access, and NCCL does not support slices.",
        fix="use whole GPUs, or one worker",
    ),
    CodeEntry(
        code="GPU3049",
        title="variables of an object that may give a container GPUs",
        message="after the prefix {prefix} a key could name {name}",
        why="The keys of a Secret or ConfigMap are not known here, and with this variable a container could use "
        "GPUs, or parts of a GPU, that are not allocated to it. After a prefix that no such variable begins with, no "
        "key can name one.",
        fix="take another prefix; or name each variable in env, with secret and key",
    ),
    CodeEntry(
        code="GPU5060",
        title="live nodes have other MIG slices",
        message="can't run: no node of {pools} offers MIG slices {profile}",
        why="The pool declares GPUs with this profile, but its live nodes have none: MIG is not set up, or is being "
        "changed.",
        fix="Partition GPUs of these nodes (nvidia.com/mig.config), or declare the existing slices in the pool's mig.",
    ),
    CodeEntry(
        code="GPU5061",
        title="live nodes allocate GPUs in another way",
        message="can't run: no node of {pools} offers GPUs by sharing: {sharing}",
        why="dra needs ResourceSlices of the pool's driver, hami the node annotation hami.io/node-nvidia-register with "
        "at least gpuSlots each, device-plugin and mig a device plugin or a DeviceClass gpu.nvidia.com with "
        "extendedResourceName nvidia.com/gpu.",
        fix="Install the driver or plugin on these nodes, or correct the pool's sharing and driver.",
    ),
)
