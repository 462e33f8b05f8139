"""Objects of the API server -> ClusterState. Pure: what it says follows from the objects alone, not from a clock."""

from gpuctl.observe.cache import ObserveCache
from gpuctl.observe.cluster import observe
from gpuctl.observe.ledgers import Records, read_ledgers

__all__ = ["ObserveCache", "Records", "observe", "read_ledgers"]
