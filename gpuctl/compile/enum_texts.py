"""The meaning of each value of an enumeration, for editors. The JSON Schemas have these texts as `enumDescriptions`."""

from __future__ import annotations

from collections.abc import Mapping

TEXTS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    tuple(texts): texts
    for texts in (
        {
            "Cluster": "A cluster: its node pools and the choices of its engine.",
            "Department": "An optional level above projects, with a quota of its own.",
            "Project": "What owns quota and jobs.",
            "Job": "What runs, on how many GPUs.",
            "Template": "A job with parameters, of which other jobs are made.",
            "Policy": "A rule that declarations must keep.",
        },
        {
            "Cluster": "The cluster.",
            "Department": "Departments.",
            "Project": "Projects.",
            "Job": "Jobs.",
        },
        {
            "error": "A breach makes the declarations invalid: nothing of them is applied.",
            "warning": "A breach is told.",
            "audit": "A breach is counted, and listed by plan.",
        },
        {
            "pause": "Commits wait that pause, move or end a running job that stays declared.",
            "delete": "Commits wait that remove a job or a project.",
        },
        {
            "text": "Text; an amount with a unit, too.",
            "number": "A number.",
            "boolean": "true or false.",
            "list": "A list of texts, such as arguments.",
        },
        {
            "binpack": "The fullest node that fits is taken first.",
            "spread": "The emptiest node that fits is taken first.",
        },
        {
            "Equal": "The taint has this value.",
            "Exists": "The taint may have any value.",
        },
        {
            "NoSchedule": "The taint keeps new pods off the node.",
            "PreferNoSchedule": "The taint has new pods go to other nodes where they can.",
            "NoExecute": "The taint also evicts the pods that are there.",
        },
        {
            "ClusterFirst": "The cluster's name server; what it does not know it asks the node's for.",
            "Default": "The name server of the node.",
        },
        {
            "AUDIT_WRITE": "Write to the kernel's audit log.",
            "CHOWN": "Give files to other users and groups.",
            "DAC_OVERRIDE": "Read and write files whatever their permissions say.",
            "FOWNER": "Change permissions of files of other users.",
            "FSETID": "Keep the set-user-ID bit of files that are written.",
            "KILL": "Send signals to processes of other users.",
            "MKNOD": "Make device files; the container may use none that it was not given.",
            "NET_BIND_SERVICE": "Listen on ports below 1024.",
            "SETFCAP": "Give capabilities to files.",
            "SETGID": "Change the group of a process.",
            "SETPCAP": "Change the capabilities of a process.",
            "SETUID": "Change the user of a process.",
            "SYS_CHROOT": "Change the root folder of a process.",
        },
        {
            "device-plugin": "NVIDIA's device plugin: whole GPUs only.",
            "mig": "GPUs cut into slices of MIG profiles; a fraction gets the smallest slice that has it.",
            "hami": "HAMi's scheduler and device plugin: any fraction, with its memory enforced.",
            "dra": "Dynamic resource allocation: claims of a DRA driver, HAMi's or NVIDIA's.",
        },
        {
            "hami": "HAMi's DRA driver: any fraction of a GPU.",
            "nvidia": "NVIDIA's DRA driver: whole GPUs and MIG slices.",
        },
        {
            "reclaim": "Jobs that run above a quota that was cut may be paused for others.",
            "drain": "Jobs that run above a quota that was cut go on until they end.",
        },
        {
            "privileged": "No restriction: pods may do what the node's root may. Needed for hostPath.",
            "baseline": "Pods without known ways to privileges: no host namespaces, no hostPath.",
            "restricted": "Pods that also run as a user who is not root, without capabilities.",
        },
        {
            "ingress": "An Ingress at /PROJECT/JOB of the cluster's ingress host.",
            "service": "A Service, reached inside the cluster.",
            "portForward": "Neither: the port is reached by gpuctl port-forward alone.",
        },
        {
            "training": "Runs to its end: unless it is not preemptible, it may be paused for others, and "
            "goes on later.",
            "interactive": "A person works in it: unless it is preemptible, it is not paused and stays within quota.",
            "inference": "Serves requests until it is removed: unless it is preemptible, it is not paused.",
        },
        {
            "pytorch": "PyTorch: PET_NNODES and the others that torchrun reads, and RANK.",
            "jax": "JAX: JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.",
        },
        {
            "pods": "The service's own pods: requests a second, say, or the length of their queues.",
            "external": "Something that is no object of the cluster: the length of a queue of messages.",
        },
        {
            "all": "All workers.",
            "worker0": "Worker 0.",
            "any": "Any of them, the first that does.",
        },
        {
            "success": "It has succeeded.",
            "any": "It has ended: it succeeded, failed, timed out or was deleted.",
        },
        {
            "Job": "Its controller makes a Job for each of these entries.",
            "Service": "Its controller makes a Service for each of these entries.",
        },
        {
            "Always": "The image is pulled each time a pod starts.",
            "IfNotPresent": "The image is pulled where the node has it not.",
            "Never": "The image is on the node already.",
        },
    )
}
"""The texts, by the values of the enumeration in their order."""


def text_of(values: list[str]) -> list[str] | None:
    """The texts of an enumeration's values, in their order; None if it has none."""
    texts = TEXTS.get(tuple(values))
    return None if texts is None else list(texts.values())
