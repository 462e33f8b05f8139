"""GPU3xxx: references between declarations, and the capacity of the cluster."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3001",
        title="a folder without a Cluster",
        message='no Cluster is declared below "{folder}"',
        why="Pools, capacity and namespaces come from it; nothing can be checked or rendered without it.",
        fix="add a cluster.yaml with kind: Cluster, or name the cluster's folder",
    ),
    CodeEntry(
        code="GPU3002",
        title="two Clusters",
        message='the folder declares a second Cluster, "{name}"',
        why="A folder is one cluster.",
        fix="keep one of them, or put each into its own folder",
    ),
    CodeEntry(
        code="GPU3003",
        title="two declarations of one name",
        message='{kind} "{name}" is declared twice',
        why="A name must be unique. A declaration in its project's own folder, or a cluster-wide one in the cluster's "
        "own files, takes precedence: the error is at the other one, and only the owner of that file stays at the last "
        "good commit. Without precedence the error is at the second by path and line, since one commit does not show "
        "which was first.",
        fix="rename or remove one of them",
    ),
    CodeEntry(
        code="GPU3004",
        title="a project that is not declared",
        message='project "{project}" is not declared',
        why="A job uses its project's quota and namespace.",
        fix="declare the project, or name another",
    ),
    CodeEntry(
        code="GPU3005",
        title="a department that is not declared",
        message='department "{department}" is not declared',
        why="Quota is divided through departments.",
        fix="declare the department, or name another",
    ),
    CodeEntry(
        code="GPU3006",
        title="a cycle of departments",
        message="department {chain} belongs to itself",
        why="Quota is divided from the top; a cycle has no top.",
        fix="remove the department field of one of them",
    ),
    CodeEntry(
        code="GPU3007",
        title="a node pool that is not declared",
        message='the cluster has no node pool "{pool}"',
        why="Quota, affinity and placement refer to the pools of the Cluster declaration.",
        fix="declare the pool, or name another",
    ),
    CodeEntry(
        code="GPU3008",
        title="a declaration in another project's folder",
        message='this file is in the folder of project "{folder}" and declares {kind} of project "{project}"',
        why="Review rights are by folder: files below projects/<project>/ belong to that project.",
        fix="move the file, or name the folder's project",
    ),
    CodeEntry(
        code="GPU3009",
        title="quotas above the cluster's capacity",
        message="the quotas add up to {sum:gpus} GPUs, and {where} has {capacity:gpus}",
        why="A quota is a guarantee. The marked quota is the first that exceeds the capacity: those in the cluster's "
        "own files are counted first, then all others by name.",
        fix="lower quotas, or set scheduling.overcommitQuota: true to scale guarantees by quota",
    ),
    CodeEntry(
        code="GPU3010",
        title="quotas above their department's quota",
        message='the quotas in department "{department}" add up to {sum:gpus} GPUs, and its own is {quota:gpus}',
        why="A department can only guarantee its own quota. The marked quota is the first that exceeds it: those in "
        "the cluster's own files are counted first, then all others by name.",
        fix="lower quotas in the department, or raise its own",
    ),
    CodeEntry(
        code="GPU3011",
        title="plain quotas and quotas by pool",
        message="this is {form}, while other quotas are {other}",
        why="GPUs are divided either over the whole cluster or by pool; the two kinds of amounts can't be compared.",
        fix="write all quotas and limits as numbers, or all as {pool: number}",
    ),
    CodeEntry(
        code="GPU3012",
        title="a quota that the project's affinity cannot serve",
        message="this guarantees {quota:gpus} GPUs, and the pools of the project's nodeAffinity have {capacity:gpus}",
        why="A guarantee must be possible on the pools the project may use.",
        fix="lower the quota, or widen nodeAffinity",
    ),
    CodeEntry(
        code="GPU3013",
        title="a limit below the quota",
        message="the limit {limit:gpus} is below the quota {quota:gpus}",
        why="A guarantee above the limit could never be used.",
        fix="raise the limit, or lower the quota",
    ),
    CodeEntry(
        code="GPU3014",
        title="a job above a limit",
        message="the job needs {need:gpus} GPUs, and {owner} may use {limit:gpus} at most",
        why="It could never start: limits are those of its project and of the departments above it.",
        fix="request fewer GPUs or workers, or raise the limit",
    ),
    CodeEntry(
        code="GPU3015",
        title="a non-preemptible job above its project's quota",
        message='the job is not preemptible and needs {need:gpus} GPUs; project "{project}" has {quota:gpus} of quota '
        "in {where}",
        why="GPUs above the quota are only lent to preemptible jobs, so that they can be reclaimed; this job could "
        "never start.",
        fix="set preemptible: true, request fewer GPUs, or raise the quota",
    ),
    CodeEntry(
        code="GPU3016",
        title="a worker that fits no node",
        message="no node of {pools} has {need} for a worker",
        why="It could never start, even on an empty cluster.",
        fix="request less per worker, or allow another pool",
    ),
    CodeEntry(
        code="GPU3017",
        title="a gang larger than its pools",
        message="the job needs {need} workers at once, and {pools} can hold {room}",
        why="All workers of a gang start together, in one pool, so this one could never start.",
        fix="request fewer workers, or set minWorkers",
    ),
    CodeEntry(
        code="GPU3018",
        title="a pool outside the project's affinity",
        message='project "{project}" may not run {type} jobs on pool "{pool}"',
        why="A job may only narrow its project's nodeAffinity.",
        fix="name one of the project's pools, or widen its nodeAffinity",
    ),
    CodeEntry(
        code="GPU3019",
        title="a fraction of a GPU where only whole GPUs are available",
        message="a fraction of a GPU is not available on {pools}, which allocates whole GPUs only",
        why="sharing: device-plugin allocates whole GPUs; mig, hami and dra can share them.",
        fix="request whole GPUs, or use a pool with sharing: dra, hami or mig",
    ),
    CodeEntry(
        code="GPU3021",
        title="more GPU memory than a device has",
        message="the job needs {need:memory} of one GPU, and those of {pools} have {largest:memory}",
        why="A request for GPU memory is served by one device; it could never start.",
        fix="request less, request whole GPUs, or declare the pools' gpuMemory",
    ),
    CodeEntry(
        code="GPU3022",
        title="a namespace's name too long",
        message='the namespace "{namespace}" would have {length} characters, at most 63 are allowed',
        why="A project's namespace is the cluster's namespacePrefix and the project's name.",
        fix="shorten the project's name or the prefix",
    ),
    CodeEntry(
        code="GPU3023",
        title="an ingress where the cluster has none",
        message="the cluster declares no ingress to publish port {port} at",
        why="via: ingress needs spec.ingress of the Cluster, with the host to publish at.",
        fix="declare ingress in the Cluster, or use via: service or portForward",
    ),
    CodeEntry(
        code="GPU3024",
        title="a node in two pools",
        message='node "{node}" is declared a second time',
        why="Its GPUs would be counted twice.",
        fix="keep it in one pool, once",
    ),
    CodeEntry(
        code="GPU3025",
        title="a limit above the project's",
        message="maxDuration {found:duration} has no effect: the project's limit is {limit:duration}",
        why="The lower of the two limits applies.",
        fix="lower it, or raise the project's limit",
    ),
    CodeEntry(
        code="GPU3026",
        title="a pool that shares GPUs of unknown memory",
        message='pool "{pool}" shares GPUs without gpuMemory, the memory of one GPU',
        why="A fraction of a GPU is a fraction of its memory.",
        fix="add gpuMemory, for example 32510Mi",
    ),
    CodeEntry(
        code="GPU3027",
        title="a namespace of the system",
        message='the namespace "{namespace}" belongs to the system',
        why="A project owns its namespace and everything in it.",
        fix="rename the project, or give the cluster a namespacePrefix",
    ),
    CodeEntry(
        code="GPU3028",
        title="pools that allocate GPUs in different ways",
        message="the job runs on {used} only: {unused} does not allocate GPUs by {sharing}",
        why="A run is created for one way to allocate GPUs and can't change to another.",
        fix="name pools with the same sharing in the job's nodePools",
    ),
    CodeEntry(
        code="GPU3029",
        title="the cluster's declaration in a project's folder",
        message='this file is in the folder of project "{folder}" and declares a {kind}, which is the cluster\'s',
        why="Review rights are by folder: files below projects/<project>/ concern that project alone, but a Cluster or "
        "Department concerns all projects.",
        fix="move it to the cluster's own files, outside projects/",
    ),
    CodeEntry(
        code="GPU3030",
        title="departments too deep",
        message='department "{department}" is more than {limit} levels below the top',
        why="Quota is divided level by level; the bound is far above what organisations need.",
        fix="remove levels",
    ),
    CodeEntry(
        code="GPU3031",
        title="too many declarations",
        message="{whose} declares more than {limit} {what}",
        why="This bounds the work that one project can cause, far above what a cluster can run.",
        fix="remove finished ones, or declare another project or cluster",
    ),
    CodeEntry(
        code="GPU3032",
        title="after a job that is not declared",
        message='job "{job}" is not declared in project "{project}"',
        why="A job waits for those that its after names, so they have to stay declared as long as it is, also once "
        "they have ended.",
        fix="declare the job, or remove its name from after",
    ),
    CodeEntry(
        code="GPU3033",
        title="after a job that never ends",
        message='job "{job}" is an inference job, which never ends',
        why="A job with after is queued once the jobs named there have ended.",
        fix="remove its name from after",
    ),
    CodeEntry(
        code="GPU3034",
        title="jobs that come after each other",
        message="jobs come after each other: {chain}",
        why="Each would wait for the next one, and none would ever be queued.",
        fix="remove an entry of after of one of them",
    ),
    CodeEntry(
        code="GPU3035",
        title="more jobs than there is memory for",
        message="{whose} {count} {what}; the cluster has {total} with them, and the reconciler has memory for {limit}",
        why="gpuctl install gives the reconciler memory for a number of declared jobs, and reconcile --jobs tells it "
        "that number; also 8 KiB for each of text in commands, environment and manifests, as each job has it. Of more "
        "than 24 variables, volumes, ports and the like in a job each counts as 256 bytes of text, and a container as "
        "1 KiB more. Beyond that the project with the most stays at its last good commit; all others go on. gpuctl "
        "validate --jobs tells it before a change is merged: also of a project that the change does not touch, "
        "where that has the most.",
        fix="remove jobs that have ended, or have an administrator give it more memory: gpuctl install --jobs N",
    ),
    CodeEntry(
        code="GPU3060",
        title="a job too large for the cluster",
        message="the job's command, arguments, environment, preStop and probes are {found} KiB together, "
        "more than 1024 KiB",
        why="They are part of every object and pod of the job, and the API server refuses objects above 1.5 MiB.",
        fix="put the data into the image, a volume or a ConfigMap of your own, and name it here",
    ),
)
