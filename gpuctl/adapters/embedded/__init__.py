"""A Kubernetes cluster in one process: the API semantics that gpuctl relies on, with controllers, a scheduler and
nodes.

Layers, each knowing only those before it: `bodies`, `amounts`, `cel`, `shapes` (values); `store`, `sqlite` (objects
that last); `merge`, `defaults`, `validation`, `quota`, `api` (what a server admits); `agenda`, `nodebook`, `devices`
(what is due, what is where); the controllers; `cluster`, which implements the ports.

It is simpler than a real cluster on purpose: controllers act at once; kube-scheduler displaces no pods and does not
search over combinations of device requests; Deployments have no ReplicaSets and replace all pods at once; a suspended
Job's resources may not change; a pod of a lost node goes some time after its deletion was asked for; a storage claim is
bound at once; Secrets need not exist; quantities stay as written; only what clients write has owners.
"""

from gpuctl.adapters.embedded.cluster import EmbeddedCluster
from gpuctl.adapters.embedded.timings import EmbeddedTimings

__all__ = ["EmbeddedCluster", "EmbeddedTimings"]
