"""GPU307x: declarations that the cluster's administrators have not allowed."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3070",
        title="a folder of the node that jobs may not mount",
        message='"{found}" is in none of the folders that jobs of this cluster may mount',
        why="Jobs of other teams run on the same node, and its folders hold the node's own secrets. Jobs may mount "
        "only the folders that the Cluster lists in security.hostPaths, and folders below them. The default is none.",
        fix="mount a claim; or have an administrator of the cluster list the folder in security.hostPaths",
    ),
    CodeEntry(
        code="GPU3071",
        title="a folder of the node in a project without that right",
        message='Pod Security level {level} of project "{project}" lets no pod mount a folder of the node',
        why="The API server would refuse the pods of this job. The level is the Cluster's security.podSecurity, or the "
        "project's entry in security.exceptions; only privileged lets pods mount folders of the node.",
        fix="mount a claim; or have an administrator of the cluster declare the project privileged in "
        "security.exceptions",
    ),
    CodeEntry(
        code="GPU3072",
        title="an exception for a project that is not declared",
        message='project "{project}" is not declared',
        why="The exception has no effect now, and would apply to any project of that name that is declared later. It "
        "is only a warning, so that a team can remove its project without making the Cluster invalid.",
        fix="remove the exception, or declare the project",
    ),
    CodeEntry(
        code="GPU3073",
        title="root in a project whose pods are restricted",
        message='Pod Security level restricted of project "{project}" lets no pod run as user 0',
        why="The API server would refuse the pods of this job. The level is the Cluster's security.podSecurity, or the "
        "project's entry in security.exceptions.",
        fix="name another user; or have an administrator of the cluster declare the project baseline in "
        "security.exceptions",
    ),
    CodeEntry(
        code="GPU3074",
        title="a capability in a project whose pods are restricted",
        message='Pod Security level restricted of project "{project}" lets no container add {found}',
        why="The API server would refuse the pods of this job: NET_BIND_SERVICE is the one capability that it lets "
        "containers add. The level is the Cluster's security.podSecurity, or the project's entry in "
        "security.exceptions.",
        fix="remove it; or have an administrator of the cluster declare the project baseline in security.exceptions",
    ),
    CodeEntry(
        code="GPU3075",
        title="more time to stop than the cluster allows",
        message="pauseGrace {found:duration} is more than the Cluster's scheduling.pauseGrace, {limit:duration}",
        why="While a worker stops, its GPUs are kept from the job that they are meant for. So the cluster says how "
        "long that may take.",
        fix="ask for less; or have an administrator of the cluster raise scheduling.pauseGrace",
    ),
    CodeEntry(
        code="GPU3076",
        title="a folder of an NFS server that jobs may not mount",
        message='"{found}" is in none of the folders of NFS servers that jobs of this cluster may mount',
        why="An NFS server takes a job's word for its user's number, so what one team may mount, it may read as any "
        "user. Jobs may mount only the folders that the Cluster lists in security.nfs, and folders below them. The "
        "default is none.",
        fix="mount a claim; or have an administrator of the cluster list the folder in security.nfs",
    ),
    CodeEntry(
        code="GPU3077",
        title="a folder of an NFS server in a project whose pods are restricted",
        message='Pod Security level restricted of project "{project}" lets no pod mount a folder of an NFS server',
        why="The API server would refuse the pods of this job. The level is the Cluster's security.podSecurity, or the "
        "project's entry in security.exceptions.",
        fix="mount a claim; or have an administrator of the cluster declare the project baseline in "
        "security.exceptions",
    ),
    CodeEntry(
        code="GPU3078",
        title="a Git repository where the cluster has no git-sync",
        message="this cluster names no image that checks Git repositories out",
        why="A container that an administrator has chosen checks the repository out: the Cluster's gitSync.image. The "
        "default is none.",
        fix="put the code into the image; or have an administrator of the cluster name one in gitSync.image",
    ),
    CodeEntry(
        code="GPU3079",
        title="a CSI driver whose inline volumes jobs may not have",
        message='CSI driver "{found}" is none of those whose inline volumes jobs of this cluster may have',
        why="A driver runs on the node with rights of its own, and a job tells it what to mount, with no claim and no "
        "StorageClass that an administrator has written. Jobs may use only the drivers that the Cluster lists in "
        "security.csiDrivers. The default is none.",
        fix="mount a claim; or have an administrator of the cluster list the driver in security.csiDrivers",
    ),
)
