"""Fields that can't be beside ours: what a person chose instead has to go before ours is taken again.

Server-side apply puts our field back and leaves those that others own beside it; where the server allows one or the
other, it refuses that each time. Seen with a Deployment whose strategy was changed to RollingUpdate, Kubernetes 1.36:
also with an explicit null in the apply.
"""

from __future__ import annotations

from gpuctl.app.ports import Invalid
from gpuctl.k8s.kinds import DEPLOYMENT
from gpuctl.k8s.objects import mapping
from gpuctl.model.state import Body

_ROLLING = "spec.strategy.rollingUpdate"


def without_rivals(body: Body, refusal: Invalid) -> Body | None:
    """The merge patch that takes off what keeps our strategy out, pods untouched; None for any other refusal."""
    strategy = mapping(body, "spec", "strategy")
    if (body["apiVersion"], body["kind"]) != DEPLOYMENT or "rollingUpdate" in strategy or _ROLLING not in str(refusal):
        return None
    return {"spec": {"strategy": {**strategy, "rollingUpdate": None}}}
