"""What one cycle hands to the next so that it need not be worked out again. It changes no result, only the cost.

Each stage keeps its own; what has changed is told by the inputs themselves, so nothing has to be declared stale. All of
it may be thrown away at any time: the first cycle of a process begins without.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuctl.model.memo import Memo
from gpuctl.model.state import ClusterState, RawObjects
from gpuctl.model.tenancy import Tenancy
from gpuctl.observe import ObserveCache, observe
from gpuctl.plan import PlanCache
from gpuctl.render import RenderCache
from gpuctl.schedule import Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The memory of each stage: of the last two cycles at most, so no larger than what is there."""

    states: Memo[None, ClusterState] = field(default_factory=Memo)
    observe: ObserveCache = field(default_factory=ObserveCache)
    outlook: Outlook = field(default_factory=Outlook)
    render: RenderCache = field(default_factory=RenderCache)
    plan: PlanCache = field(default_factory=PlanCache)

    def look(self, objects: RawObjects, tenancy: Tenancy) -> ClusterState:
        """What is observed of the objects; the same, when they are those that were looked at last."""
        self.states.turn()
        return self.states.get(None, (objects, tenancy), lambda: observe(objects, tenancy, self.observe))
