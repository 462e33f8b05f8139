"""The caches that one cycle hands to the next. They never change a result, only its cost.

Each stage has its own cache. Each entry is compared with its inputs, so nothing has to be invalidated. All caches may
be dropped at any time: the first cycle of a process begins with empty ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuctl.engine import EngineCache
from gpuctl.model.memo import Memo
from gpuctl.model.state import ClusterState, RawObjects
from gpuctl.model.tenancy import Tenancy
from gpuctl.observe import ObserveCache, observe
from gpuctl.plan import PlanCache
from gpuctl.render import RenderCache


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleCaches:
    """The cache of each stage. It holds entries of the last two cycles at most, so it is no larger than the cluster."""

    states: Memo[None, ClusterState] = field(default_factory=Memo)
    observe: ObserveCache = field(default_factory=ObserveCache)
    engine_cache: EngineCache = field(default_factory=EngineCache)
    render: RenderCache = field(default_factory=RenderCache)
    plan: PlanCache = field(default_factory=PlanCache)

    def state_of(self, objects: RawObjects, tenancy: Tenancy) -> ClusterState:
        """The state observed of the objects; the same value while the objects are the same as in the last call."""
        self.states.turn()
        return self.states.get(None, (objects, tenancy), lambda: observe(objects, tenancy, self.observe))
