"""The same declarations for another engine that a cluster already has: Kueue's or KAI's objects instead of decisions.

Projects, quotas and jobs stay as declared; the other engine decides which jobs run. A declaration that it has no
counterpart for is reported at its place in the files: nothing is left out silently.
"""

from gpuctl.targets.differences import differences
from gpuctl.targets.target import rendered_for
from gpuctl.targets.unsaid import Engine, engine_of
from gpuctl.targets.workloads import TargetObjects

__all__ = ["Engine", "TargetObjects", "differences", "engine_of", "rendered_for"]
