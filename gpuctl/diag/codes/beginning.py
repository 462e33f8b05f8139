"""GPU6401-6429, GPU6143: the files of a new repository."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU6401",
        title="a file of the new repository is there already",
        message="something is in the place of {taken} of the {files} files of the new repository; nothing is written",
        why="gpuctl init replaces no file, and follows no symbolic link on the way to one. The paths are printed above "
        "the message.",
        fix="Name another folder, or another cluster, or move these files away.",
    ),
    CodeEntry(
        code="GPU6402",
        title="a pool is not described as gpuctl reads it",
        message="--pool {text}: {why}",
        why="A pool is KEY=VALUE, separated by commas, with the keys name, nodes, gpus, cpu and ram (of each "
        "node), memory (of one GPU), product, sharing, driver and mig. nodes is a name or a range, mig a MIG profile "
        "with the number of GPUs of each node that are cut into its slices; both may be there several times.",
        fix="Write it as in --pool name=dgx,nodes=dgx1-[1-2],gpus=8,memory=32Gi",
    ),
    CodeEntry(
        code="GPU6403",
        title="the new repository would not be valid",
        message="the declarations made of these options have {errors}; nothing is written",
        why="What gpuctl init writes is compiled first. The mistakes are marked in the files as they would be.",
        fix="Correct the options that the marked values come from.",
    ),
    CodeEntry(
        code="GPU6404",
        title="a file of the new repository can't be written",
        message="{path} can't be written: {why}; no file is left of what was written",
        why="gpuctl init writes all files or none.",
        fix="Name a folder that you may write, on a disk with room.",
    ),
    CodeEntry(
        code="GPU6405",
        title="the folder is inside another repository",
        message="the folder is inside the repository {top}",
        why="Code hosts read CI and CODEOWNERS, and editors their settings, at the top of a repository only.",
        fix="Name the top of that repository, or a folder outside of it.",
    ),
    CodeEntry(
        code="GPU6143",
        title="the live cluster has no node with GPUs",
        message="no node of the cluster has GPUs or the label gpuctl.dev/pool",
        why="gpuctl init makes node pools of nodes whose GPUs are announced, by a device plugin or a DRA driver.",
        fix="Check `kubectl get nodes -o yaml` for nvidia.com/gpu, or describe the pools by `--pool`.",
    ),
)
