"""What each value of an enumeration means, for editors. The JSON Schemas have these texts as `enumDescriptions`."""

from __future__ import annotations

from collections.abc import Mapping

TEXTS: Mapping[tuple[str, ...], Mapping[str, str]] = {
    values: dict(zip(values, texts, strict=True))
    for values, texts in (
        (
            ("Cluster", "Department", "Project", "Job", "Policy"),
            (
                "A cluster: its node pools and the choices of its engine.",
                "An optional level above projects, with a quota of its own.",
                "What owns quota and jobs.",
                "What runs, on how many GPUs.",
                "A rule that declarations must keep.",
            ),
        ),
        (
            ("Cluster", "Department", "Project", "Job"),
            ("The cluster.", "Departments.", "Projects.", "Jobs."),
        ),
        (
            ("error", "warning", "audit"),
            (
                "A breach makes the declarations invalid: nothing of them is applied.",
                "A breach is told.",
                "A breach is counted, and listed by plan.",
            ),
        ),
        (
            ("pause", "delete"),
            (
                "Commits wait that pause, move or end a running job that stays declared.",
                "Commits wait that remove a job or a project.",
            ),
        ),
        (
            ("binpack", "spread"),
            ("The fullest node that fits is taken first.", "The emptiest node that fits is taken first."),
        ),
        (
            ("device-plugin", "mig", "hami", "dra"),
            (
                "NVIDIA's device plugin: whole GPUs only.",
                "GPUs cut into slices of MIG profiles; a fraction gets the smallest slice that has it.",
                "HAMi's scheduler and device plugin: any fraction, with its memory enforced.",
                "Dynamic resource allocation: claims of a DRA driver, HAMi's or NVIDIA's.",
            ),
        ),
        (
            ("hami", "nvidia"),
            ("HAMi's DRA driver: any fraction of a GPU.", "NVIDIA's DRA driver: whole GPUs and MIG slices."),
        ),
        (
            ("reclaim", "drain"),
            (
                "Jobs that run above a quota that was cut may be paused for others.",
                "Jobs that run above a quota that was cut go on until they end.",
            ),
        ),
        (
            ("privileged", "baseline", "restricted"),
            (
                "No restriction: pods may do what the node's root may. Needed for hostPath.",
                "Pods without known ways to privileges: no host namespaces, no hostPath.",
                "Pods that also run as a user who is not root, without capabilities.",
            ),
        ),
        (
            ("ingress", "service", "portForward"),
            (
                "An Ingress at /PROJECT/JOB of the cluster's ingress host.",
                "A Service, reached inside the cluster.",
                "Neither: the port is reached by kubectl port-forward alone.",
            ),
        ),
        (
            ("training", "interactive", "inference"),
            (
                "Runs to its end: unless it is not preemptible, it may be paused for others, and goes on later.",
                "A person works in it: unless it is preemptible, it is not paused and stays within quota.",
                "Serves requests until it is removed: unless it is preemptible, it is not paused.",
            ),
        ),
        (
            ("Always", "IfNotPresent", "Never"),
            (
                "The image is pulled each time a pod starts.",
                "The image is pulled where the node has it not.",
                "The image is on the node already.",
            ),
        ),
    )
}


def text_of(values: list[str]) -> list[str] | None:
    """The texts of an enumeration's values, in their order; None where it has none."""
    texts = TEXTS.get(tuple(values))
    return None if texts is None else list(texts.values())
