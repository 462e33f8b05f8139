"""GPU3xxx: what declarations say of each other, and what the cluster can hold."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3001",
        title="a folder without a Cluster",
        message='no Cluster is declared below "{folder}"',
        why="Pools, capacity and namespaces come from it; nothing can be checked or rendered without.",
        fix="add a cluster.yaml with kind: Cluster, or name the cluster's folder",
    ),
    CodeEntry(
        code="GPU3002",
        title="two Clusters",
        message='the folder declares a second Cluster, "{name}"',
        why="A folder is one cluster.",
        fix="keep one of them, or give each a folder of its own",
    ),
    CodeEntry(
        code="GPU3003",
        title="two declarations of one name",
        message='{kind} "{name}" is declared twice',
        why="A name is one thing's. In a project's own folder, or in the cluster's own files for what is its own, a "
        "declaration has the better right to it: the error is at the other one, and only whose file that is stays at "
        "the last good commit. Of two with equal rights it is at the second by path and line: one commit does not show "
        "which was there before.",
        fix="rename or remove one of them",
    ),
    CodeEntry(
        code="GPU3004",
        title="a project that is not declared",
        message='project "{project}" is not declared',
        why="A job runs on its project's quota, in its project's namespace.",
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
        title="departments in a circle",
        message="department {chain} belongs to itself",
        why="Quota is divided from the top; a circle has none.",
        fix="remove the department field of one of them",
    ),
    CodeEntry(
        code="GPU3007",
        title="a node pool that is not declared",
        message='the cluster has no node pool "{pool}"',
        why="Quota, affinity and placement go by the pools of the Cluster declaration.",
        fix="declare the pool, or name another",
    ),
    CodeEntry(
        code="GPU3008",
        title="a declaration in another project's folder",
        message='this file is in the folder of project "{folder}" and declares {kind} of project "{project}"',
        why="Review rights go by folder: what is below projects/<project>/ belongs to that project.",
        fix="move the file, or name the folder's project",
    ),
    CodeEntry(
        code="GPU3009",
        title="quotas above the cluster's capacity",
        message="the quotas add up to {sum:gpus} GPUs, and {where} has {capacity:gpus}",
        why="A quota is a guarantee; the marked one is the first that exceeds what there is: those of the cluster's "
        "own files come first, then all others by name.",
        fix="lower quotas, or set scheduling.overcommitQuota: true to scale guarantees by quota",
    ),
    CodeEntry(
        code="GPU3010",
        title="quotas above their department's quota",
        message='the quotas in department "{department}" add up to {sum:gpus} GPUs, and its own is {quota:gpus}',
        why="A department's quota is what it can guarantee; the marked quota is the first to exceed it: those of the "
        "cluster's own files come first, then all others by name.",
        fix="lower quotas in the department, or raise its own",
    ),
    CodeEntry(
        code="GPU3011",
        title="plain quotas and quotas by pool",
        message="this is {form}, while other quotas are {other}",
        why="GPUs are divided either together or pool by pool; amounts of the two kinds cannot be compared.",
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
        why="What is guaranteed must be allowed.",
        fix="raise the limit, or lower the quota",
    ),
    CodeEntry(
        code="GPU3014",
        title="a job above its project's limit",
        message='the job needs {need:gpus} GPUs, and project "{project}" may use {limit:gpus} at most',
        why="It could never start.",
        fix="ask for fewer GPUs or workers, or raise the project's limit",
    ),
    CodeEntry(
        code="GPU3015",
        title="a non-preemptible job above its project's quota",
        message='the job is not preemptible and needs {need:gpus} GPUs; project "{project}" has {quota:gpus} of quota',
        why="Over-quota can be reclaimed, so it is only lent to jobs that can be stopped; this one could never start.",
        fix="set preemptible: true, ask for fewer GPUs, or raise the quota",
    ),
    CodeEntry(
        code="GPU3016",
        title="a worker that fits no node",
        message="no node of {pools} has {need} for a worker",
        why="It could never start, however empty the cluster is.",
        fix="ask for less per worker, or allow another pool",
    ),
    CodeEntry(
        code="GPU3017",
        title="a gang larger than its pools",
        message="the job needs {need} workers at once, and {pools} can hold {room}",
        why="A gang starts whole or not at all, in one pool, so this one never could.",
        fix="ask for fewer workers, or set minWorkers",
    ),
    CodeEntry(
        code="GPU3018",
        title="a pool outside of the project's affinity",
        message='project "{project}" may not run {type} jobs on pool "{pool}"',
        why="A job may only narrow its project's nodeAffinity.",
        fix="name one of the project's pools, or widen its nodeAffinity",
    ),
    CodeEntry(
        code="GPU3019",
        title="a part of a GPU where only whole ones can be had",
        message="a part of a GPU cannot be had on {pools}, which hands out whole GPUs only",
        why="sharing: device-plugin hands out whole GPUs; mig, hami and dra can share them.",
        fix="ask for whole GPUs, or use a pool with sharing: dra, hami or mig",
    ),
    CodeEntry(
        code="GPU3021",
        title="more GPU memory than a device has",
        message="the job needs {need:memory} of one GPU, and those of {pools} have {largest:memory}",
        why="A request for GPU memory is served by one device; it could never start.",
        fix="ask for less, ask for whole gpus, or declare the pools' gpuMemory",
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
        why="via: ingress needs the Cluster's spec.ingress with the host to publish at.",
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
        why="The tighter of the two limits holds.",
        fix="lower it, or raise the project's limit",
    ),
    CodeEntry(
        code="GPU3026",
        title="a pool that shares GPUs of unknown memory",
        message='pool "{pool}" shares GPUs and does not say how much memory one has',
        why="A fraction of a GPU is a fraction of its memory.",
        fix="add gpuMemory, for example 32510Mi",
    ),
    CodeEntry(
        code="GPU3027",
        title="a namespace that is not the project's to have",
        message='the namespace "{namespace}" belongs to the system',
        why="A project owns its namespace and all that is in it.",
        fix="rename the project, or give the cluster a namespacePrefix",
    ),
    CodeEntry(
        code="GPU3028",
        title="pools that hand out GPUs in different ways",
        message="the job runs on {used} only: {unused} would not hand out GPUs by {sharing}",
        why="How a pod gets its GPUs is part of a run from its start, so a run can't go from one way to the other.",
        fix="name pools of one kind of sharing in the job's nodePools",
    ),
    CodeEntry(
        code="GPU3029",
        title="the cluster's declaration in a project's folder",
        message='this file is in the folder of project "{folder}" and declares a {kind}, which is the cluster\'s',
        why="Review rights go by folder: what is below projects/<project>/ concerns that project alone, and a Cluster "
        "or Department concerns all.",
        fix="move it to the cluster's own files, outside of projects/",
    ),
    CodeEntry(
        code="GPU3060",
        title="a job too large for the cluster",
        message="the job's command, arguments and environment are {found} KiB together, more than 1024 KiB",
        why="They are part of every object and pod of the job, and the API server takes no object above 1.5 MiB.",
        fix="put the data into the image, a volume or a ConfigMap of your own, and name it here",
    ),
)
