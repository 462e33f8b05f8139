"""A real Kubernetes API server, in raw JSON over the connection that the `kubernetes` package makes.

Layers, each knowing only those before it: `timings`, `budget`, `paths`, `faults` (values); `connection` (address and
identity); `requests` (one exchange); `stream` (a watch that is kept going). On these stand the ports: `cluster`,
`lease` with the rules of `election`, `recorder`, `terminal`; and `discovery`, which tells what the server has.
"""

from gpuctl.adapters.kubernetes.cluster import KubernetesCluster
from gpuctl.adapters.kubernetes.connection import Connection, connect
from gpuctl.adapters.kubernetes.timings import Timings, WriteLimits

__all__ = ["Connection", "KubernetesCluster", "Timings", "WriteLimits", "connect"]
