"""GPU6150-6159: declarations that are rendered for another engine."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU6150",
        title="a setting that the other engine has no counterpart of",
        message="{engine} has no counterpart of {setting}: {instead}",
        why="gpuctl render --target gives the same declarations to an engine that the cluster has already. It decides "
        "by its own rules, and this setting is not among them.",
        fix="leave it out, or accept what happens in its place",
    ),
    CodeEntry(
        code="GPU6151",
        title="a job that the other engine can't run",
        message="the job is left out: {engine} {why}",
        why="An object that stands for something else than what is declared would be worse than none.",
        fix="ask for whole GPUs, or let gpuctl's own engine decide about this cluster",
    ),
    CodeEntry(
        code="GPU6152",
        title="an amount that the other engine has in another form",
        message="{engine} gets {name} as {given}, declared is {declared}",
        why="The other engine counts quotas in whole GPUs, or for each pool by itself, or divides all pools together.",
        fix="declare the amount in the form that the other engine has",
    ),
    CodeEntry(
        code="GPU6153",
        title="a pool whose GPUs the other engine can't ask for as declared",
        message="{engine} asks for GPUs of pool {pool} by their number, not by {sharing}",
        why="Pods of the other engine ask for nvidia.com/gpu. Nodes offer that where NVIDIA's device plugin runs.",
        fix="run the device plugin on the nodes of this pool, and declare sharing: device-plugin",
    ),
    CodeEntry(
        code="GPU6154",
        title="the effect of a plan is not the other engine's",
        message="{engine} may decide otherwise than this plan foresees: {how}",
        why="The effect of a plan is decided by gpuctl's own engine. With --target another engine decides about the "
        "same declarations, by rules of its own.",
        fix="take the objects and quotas of the plan as they are, and its effect as what is fair by the declarations",
    ),
)
