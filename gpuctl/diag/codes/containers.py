"""GPU311x: containers of a job besides its own, and what is mounted into them."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3110",
        title="a mount of a volume that the job has not",
        message='no volume of the job is mounted at "{found}"',
        why="An init container or a sidecar sees volumes of its job. Each is named by the mountPath that it has in "
        "the job's volumes, or by the path of the job's git.",
        fix="declare it in the job's volumes, or name one that is there",
    ),
    CodeEntry(
        code="GPU3111",
        title="a second container with GPUs in a job that has no whole ones",
        message="another container has GPUs only where the job has whole ones by gpus",
        why="A part of a GPU, or so much of its memory, is given to the job's own container alone; and a job without "
        "GPUs is placed as one that needs none.",
        fix="give the job whole gpus, or remove the container's",
    ),
    CodeEntry(
        code="GPU3112",
        title="a second container with GPUs where they are not counted",
        message="{pools} can't give GPUs to several containers of a pod",
        why="Only where a device plugin counts GPUs does each container get its own number. A claim of dynamic "
        "resource allocation is the whole pod's, and HAMi's scheduler books what one container asks for.",
        fix="let the job's own container use the GPUs, or name a pool with sharing: device-plugin or mig",
    ),
    CodeEntry(
        code="GPU3113",
        title="a token of a service account in a volume",
        message="a job has no token of a service account, also not in a projected volume",
        why="With a token a job's processes speak to the API server as the namespace's service account, with whatever "
        "rights it was given: pods of jobs have none. A job that needs a service of its own gets its key in a Secret.",
        fix="remove it; put the key that it needs into a Secret",
    ),
)
