from typing import Any

import pytest
from objects_by_hand import NOON, condition, job, pod

from gpuctl.model.state import Body
from gpuctl.observe.health import Health, health_of


def thing(kind: str, **status: Any) -> Body:
    return {"kind": kind, "metadata": {"name": "x", "generation": 1}, "spec": {"replicas": 2}, "status": status}


READY = {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2, "replicas": 2}
STUCK = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


@pytest.mark.parametrize(
    ("body", "health"),
    [
        (thing("ConfigMap"), Health.CURRENT),
        (job(metadata={"deletionTimestamp": NOON}), Health.TERMINATING),
        (thing("Namespace", phase="Active"), Health.CURRENT),
        (thing("Namespace", phase="Terminating"), Health.TERMINATING),
        (job(suspend=True), Health.CURRENT),
        (job(), Health.IN_PROGRESS),
        (job(ready=1), Health.CURRENT),
        (job(condition("Complete")), Health.CURRENT),
        (job(condition("Failed")), Health.FAILED),
        (thing("Deployment", **READY), Health.CURRENT),
        (thing("Deployment", **{**READY, "observedGeneration": 0}), Health.IN_PROGRESS),
        (thing("Deployment", **{**READY, "availableReplicas": 1}), Health.IN_PROGRESS),
        (thing("Deployment", **{**READY, "availableReplicas": 1}, conditions=[STUCK]), Health.FAILED),
        (pod(), Health.IN_PROGRESS),
        (pod(phase="Failed"), Health.FAILED),
        (pod(phase="Succeeded"), Health.CURRENT),
        (thing("Pod", phase="Running", conditions=[condition("Ready")]), Health.CURRENT),
        (thing("PersistentVolumeClaim", phase="Bound"), Health.CURRENT),
        (thing("PersistentVolumeClaim", phase="Pending"), Health.IN_PROGRESS),
        (thing("PersistentVolumeClaim", phase="Lost"), Health.FAILED),
    ],
)
def test_health(body: Body, health: Health) -> None:
    assert health_of(body) is health
