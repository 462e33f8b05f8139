"""A Kubernetes cluster in one process: the API semantics gpuctl relies on, with controllers, a scheduler and nodes."""

from gpuctl.adapters.embedded.cluster import EmbeddedCluster
from gpuctl.adapters.embedded.timings import EmbeddedTimings

__all__ = ["EmbeddedCluster", "EmbeddedTimings"]
