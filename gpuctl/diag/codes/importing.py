"""GPU6140-6149: declarations of what another system's cluster holds."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU6140",
        title="not the JSON of another system",
        message="{path} can't be imported: {why}",
        why="gpuctl import reads JSON of at most 32 MiB and 20,000 objects, as kubectl and Run:ai's API print it.",
        fix="Write it anew: kubectl get ... -o json > FILE. Divide what is larger by namespace.",
    ),
    CodeEntry(
        code="GPU6141",
        title="what is imported does not fit the cluster",
        message="nothing is written: with what is imported, the declarations have {errors} more",
        why="A job or a project that is wrong by itself is left out and listed. These errors are of all together: for "
        "example, the quotas add up to more GPUs than the cluster or their department has.",
        fix="Declare what is missing first, then import again: nodes, `scheduling: {overcommitQuota: true}` in the "
        "cluster, a department with a larger quota. What is declared already is not imported.",
    ),
    CodeEntry(
        code="GPU6142",
        title="more is imported than a cluster can declare",
        message="nothing is written: the cluster would have more than {bound}",
        why="A tree with more is not read by gpuctl.",
        fix="Export fewer namespaces, for example without jobs that have ended.",
    ),
)
