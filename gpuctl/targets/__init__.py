"""The same declarations for an engine that a cluster has already: Kueue's or KAI's objects in place of decisions.

Projects, quotas and jobs stay as they are declared; which jobs run is the other engine's decision. What it has no
counterpart of is told, each at its place in the declarations: nothing is left out in silence.
"""

from gpuctl.targets.differences import differences
from gpuctl.targets.target import rendered_for
from gpuctl.targets.unsaid import Engine, engine_of
from gpuctl.targets.workloads import TargetObjects

__all__ = ["Engine", "TargetObjects", "differences", "engine_of", "rendered_for"]
