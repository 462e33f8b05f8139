"""The names in a job of fields of Kubernetes' pods and Jobs: for people who write the names they know."""

from __future__ import annotations

from collections.abc import Mapping

_CALLED = {
    "activeDeadlineSeconds": "maxDuration",
    "backoffLimit": "retries",
    "backoffLimitPerIndex": "retriesPerWorker",
    "completions": "sweep.completions",
    "hostNetwork": "",
    "hostPID": "",
    "lifecycle": "preStop",
    "livenessProbe": "probes.liveness",
    "maxReplicas": "workers",
    "minReplicas": "minWorkers",
    "nodeSelector": "nodePools",
    "parallelism": "sweep.parallelism",
    "ports": "expose",
    "priorityClassName": "priority",
    "privileged": "",
    "readinessProbe": "probes.readiness",
    "replicas": "workers",
    "securityContext": "security",
    "startupProbe": "probes.startup",
    "stdin": "tty",
    "terminationGracePeriodSeconds": "pauseGrace",
    "ttlSecondsAfterFinished": "ttlAfterFinished",
    "volumeMounts": "volumes",
}
_NEVER = "no job may have it: it would reach beyond its pod"
IN_A_JOB: Mapping[str, str] = {
    name: f"write {field}, as it is called here" if field else _NEVER for name, field in _CALLED.items()
}
"""The fix for each such field in a job's spec."""
