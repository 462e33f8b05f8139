"""GPU705x: differences between the cluster and the declared inventory."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

_LIVE = "gpuctl schedules on the live nodes. Validation, plans and simulations use the declared ones."

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7050",
        title="a declared node is not in the cluster",
        message="pool {pool} declares nodes that are not in the cluster: {nodes}",
        why="They were removed, have other names, or have not joined yet. " + _LIVE,
        fix="Bring the nodes back, or remove them from the pool's nodes.",
    ),
    CodeEntry(
        code="GPU7051",
        title="a declared node is not in its pool",
        message="nodes that pool {pool} declares don't belong to it by their labels: {nodes}",
        why="A node belongs to the first pool whose selector matches its labels. " + _LIVE,
        fix="Label the nodes as the pool's selector says, or declare them in the pool they are in.",
    ),
    CodeEntry(
        code="GPU7052",
        title="a node of the pool is not declared",
        message="nodes belong to pool {pool} by their labels but are not declared: {nodes}",
        why="They are used nevertheless. " + _LIVE,
        fix="Add the nodes to the pool's nodes, or remove the label from them.",
    ),
    CodeEntry(
        code="GPU7053",
        title="a node has another number of GPUs than declared",
        message="nodes of pool {pool} have other numbers of GPUs than declared: {nodes}",
        why="A GPU is missing, or the declaration is wrong. " + _LIVE,
        fix="Check the nodes, or correct the pool's gpusPerNode or the node's gpus.",
    ),
    CodeEntry(
        code="GPU7054",
        title="a pool's selector matches no node",
        message="pool {pool} has no node: none has the labels {selector}",
        why="No job can run in the pool. The selector or the nodes' labels are wrong, or the nodes have not joined "
        "yet.",
        fix="Label the nodes as the pool's selector says, or correct the selector.",
    ),
    CodeEntry(
        code="GPU7055",
        title="a node is in two pools",
        message="nodes of pool {pool} match the selector of pool {other} too: {nodes}",
        why="They belong to the first of the two, in the order of nodePools, and do not count in the other.",
        fix="Make the selectors exclude each other.",
    ),
    CodeEntry(
        code="GPU7056",
        title="another cluster has the same namespace prefix",
        message="cluster {cluster} on this API server has the namespace prefix {prefix} too (namespace {namespace})",
        why="Projects with the same name in both would share one namespace; the second one is refused: GPU6006.",
        fix="Give one of the clusters another `namespacePrefix`.",
    ),
    CodeEntry(
        code="GPU7057",
        title="another object has a run's name",
        message="{object} was not created by gpuctl and has the name of the run of {job}, which waits",
        why="gpuctl only uses objects that it created: its ledger has their uids. It changes and removes no other "
        "object, whatever its labels are.",
        fix="Delete the object, or give it another name.",
    ),
    CodeEntry(
        code="GPU7058",
        title="pods hold more GPUs than their node has",
        message="on nodes of pool {pool}, pods of jobs hold more GPUs than there are: {nodes}",
        why="The node reports fewer GPUs than before: the device plugin was restarted, or GPUs have failed. Or pods "
        "were bound to the node without kube-scheduler. gpuctl starts nothing there until pods have ended.",
        fix="Check the node and its device plugin. If GPUs have failed, cordon the node.",
    ),
    CodeEntry(
        code="GPU7059",
        title="nothing reports idle GPUs",
        message="nothing reports whether the GPUs of {job} are idle, so its idleTimeout can't end it",
        why="A job ends after its idleTimeout if gpuctl reads what GPUs do, or if something in the cluster writes the "
        "annotation gpuctl.dev/idle-since on its pods: since when their GPUs are idle, or empty while they work. "
        "gpuctl does not read it, and no pod of this job has the annotation.",
        fix="Have it read from NVIDIA's DCGM exporter: `gpuctl install --utilisation-prometheus URL`. Or take "
        "idleTimeout out.",
    ),
    CodeEntry(
        code="GPU7060",
        title="an object of others has a name that gpuctl needs",
        message="{object} is there and was not created by gpuctl, so it is left as it is",
        why="What a person made is not changed, and is not deleted with the job. What needs the name waits; all else "
        "goes on. gpuctl knows its own objects by their managed fields: it applied them.",
        fix="Delete the object, or give it another name. To hand it over, label it as gpuctl labels its own: "
        "`kubectl label OBJECT app.kubernetes.io/managed-by=gpuctl gpuctl.dev/cluster=CLUSTER "
        "gpuctl.dev/project=PROJECT` (a PriorityClass has the first alone). It then becomes what Git says, and goes "
        "with the job. gpuctl tries again every minute.",
    ),
    CodeEntry(
        code="GPU7061",
        title="a job's own storage was gone, and was made anew",
        message="{object} of {job} was gone and is made anew, empty",
        why="Something other than gpuctl deleted the PersistentVolumeClaim of a `newClaim` volume. Kubernetes keeps a "
        "deleted claim until no pod uses it; then what was in it is gone, unless its volume is kept "
        "(`persistentVolumeReclaimPolicy: Retain`). The job needs a claim of that name to start.",
        fix="Restore the data, from the volume that was kept or from a backup, before the job goes on without it: "
        "`gpuctl suspend JOB` holds it.",
    ),
    CodeEntry(
        code="GPU7062",
        title="a job's own storage is being deleted",
        message="{object} of {job} was deleted; its data is gone once no pod uses it",
        why="Something other than gpuctl deleted the PersistentVolumeClaim of a `newClaim` volume. Kubernetes keeps it "
        "until no pod uses it: until the job is paused or ends. Then gpuctl makes it anew, empty (GPU7061).",
        fix="A deletion can't be taken back. Copy the data while the job runs (`gpuctl exec JOB`), or have the volume "
        'kept: `kubectl patch pv VOLUME -p \'{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}\'`.',
    ),
    CodeEntry(
        code="GPU7095",
        title="the cluster has other nodes",
        message="this cluster has nodes that are not the demonstration's: {nodes}",
        why="`gpuctl demo` and `gpuctl bench cluster` create nodes that KWOK simulates, and fill them with jobs. They "
        "only do so on clusters without other nodes.",
        fix="Name a cluster without nodes: --kubeconfig FILE, --context NAME. `kwokctl create cluster` creates one.",
    ),
    CodeEntry(
        code="GPU7096",
        title="no KWOK simulates the nodes",
        message="node {node} does not become ready",
        why="The nodes of a demonstration are simulated by KWOK, which must run against the cluster, with stages for "
        "nodes and pods.",
        fix="Start KWOK for the cluster. `kwokctl create cluster` creates one with KWOK.",
    ),
)
