"""Objects of the API server -> ClusterState. Pure: what it says follows from the objects alone, not from a clock."""

from gpuctl.observe.cluster import observe
from gpuctl.observe.ledgers import Records, read_ledgers
from gpuctl.observe.sights import Sights

__all__ = ["Records", "Sights", "observe", "read_ledgers"]
