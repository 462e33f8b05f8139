"""Objects of the API server -> ClusterState. Pure: what it says follows from the objects alone, not from a clock."""

from gpuctl.observe.cluster import observe

__all__ = ["observe"]
