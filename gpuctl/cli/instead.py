"""What to do instead of a command or flag of Run:ai or kubectl that gpuctl lacks. One table, by words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_GIT = "jobs and projects are YAML in Git: edit the file and merge it; `gpuctl plan DIR --base main` tells what it does"
_NODES = "gpuctl top node"
_PROJECTS = "gpuctl project list"
_NODE_CARE = "nodes are Kubernetes' own: kubectl {0} NODE; gpuctl places jobs on what is left"
_LOGIN = "there is no login: gpuctl uses your kubeconfig as kubectl does, and Git as git does"
_MPI = "gpuctl submit NAME --workers N --framework pytorch: a gang of N workers, and torchrun finds what it needs"
_TEMPLATE = "templates are YAML in Git: kind Template; in the file of a job, spec: template: {name: NAME, with: {...}}"
_KEPT = "in the job's file, spec: ttlAfterFinished: 7d; the job stays declared until: gpuctl delete JOB"
_PROJECT_GOES = "a project goes when its files are removed in Git: gpuctl plan DIR --base main tells what ends then"
_ASSET = "there are no stored assets: write the fields into the job's YAML"
_DEPARTMENTS = "departments are YAML in Git: kind Department; gpuctl project list shows what projects hold"
_POOLS = "node pools are declared in cluster.yaml; gpuctl top node shows their nodes"

INSTEAD: Mapping[tuple[str, ...], str] = {
    # Run:ai's command line, first and second version
    ("list", "jobs"): "gpuctl list",
    ("list", "job"): "gpuctl list",
    ("list", "projects"): _PROJECTS,
    ("list", "project"): _PROJECTS,
    ("list", "nodes"): _NODES,
    ("list", "node"): _NODES,
    ("list", "clusters"): "ls clusters/; the live ones are your kubeconfig's: kubectl config get-contexts",
    ("list", "templates"): _TEMPLATE,
    ("list", "departments"): _DEPARTMENTS,
    ("list", "pvcs"): "kubectl get pvc -n NAMESPACE; a job names a claim in `volumes`",
    ("describe", "job"): "gpuctl get JOB, and gpuctl explain JOB for why it waits",
    ("describe", "node"): "gpuctl top node NODE -d",
    ("describe", "project"): _PROJECTS,
    ("describe", "template"): _TEMPLATE,
    ("describe",): "gpuctl get JOB, and gpuctl explain JOB for why it waits",
    ("submit-dist",): _MPI,
    ("submit-mpi",): _MPI,
    ("attach",): "gpuctl exec JOB -it -- COMMAND, or gpuctl logs JOB -f",
    ("template",): _TEMPLATE,
    ("login",): _LOGIN,
    ("logout",): _LOGIN,
    ("whoami",): "kubectl auth whoami for the cluster, git config user.email for commits",
    ("auth",): "kubectl auth whoami; kubectl auth can-i VERB KIND",
    ("update", "project"): "gpuctl project set NAME, gpuctl project set-quota NAME GPUS",
    ("update",): "gpuctl project set NAME for a project; a job's file for a job; pip for gpuctl itself",
    ("upgrade",): "install the newer gpuctl with pip; `gpuctl install` prints the manifests of its version",
    ("prune",): "what ended stays in `gpuctl list` until its declaration goes: gpuctl delete JOB",
    ("stop",): "gpuctl suspend JOB",
    ("start",): "gpuctl resume JOB; for a finished job raise its runIndex",
    ("kill",): "gpuctl delete JOB",
    ("cancel",): "gpuctl delete JOB",
    ("workspace", "submit"): "gpuctl submit NAME --interactive",
    ("training", "submit"): "gpuctl submit NAME",
    ("inference", "submit"): "gpuctl submit NAME --type inference",
    ("workload", "submit"): "gpuctl submit NAME",
    ("workspace", "create"): "gpuctl submit NAME --interactive",
    ("training", "create"): "gpuctl submit NAME",
    ("workspace",): "gpuctl submit NAME --interactive, gpuctl list, get, logs, exec, suspend, delete JOB",
    ("training",): "gpuctl submit NAME, gpuctl list, get, logs, exec, suspend, resume, delete JOB",
    ("inference",): "gpuctl submit NAME --type inference, gpuctl list, get, logs, delete JOB",
    ("workload",): "gpuctl list, get, logs, exec, suspend, resume, delete JOB",
    ("department",): _DEPARTMENTS,
    ("node", "list"): _NODES,
    ("node",): _NODES,
    ("nodepool",): _POOLS,
    ("cluster",): "ls clusters/; the live ones are your kubeconfig's: kubectl config get-contexts",
    ("pvc",): "kubectl get pvc -n NAMESPACE; gpuctl submit NAME --pvc CLAIM:PATH uses one",
    ("environment",): _ASSET,
    ("compute",): _ASSET,
    ("datasource",): _ASSET,
    ("credential",): "kubectl create secret; a job takes it by env: {KEY: {secret: NAME, key: KEY}}",
    ("kubeconfig",): "kubectl config set-context; --kubeconfig FILE and --context NAME name one for a command",
    ("diagnostics",): "gpuctl list -A, gpuctl diff DIR, and the log of the controller",
    ("report",): "gpuctl simulate and gpuctl project list -o json give figures; the controller serves /metrics",
    ("project", "create"): "write a file of kind Project: clusters/NAME/projects/PROJECT/project.yaml",
    ("project", "delete"): "remove the project's folder in Git; `gpuctl plan DIR --base main` tells what stops",
    ("project", "update"): "gpuctl project set NAME, gpuctl project set-quota NAME GPUS",
    ("project", "describe"): _PROJECTS,
    ("project", "get"): _PROJECTS,
    (
        "config",
        "cluster",
    ): "--context NAME names a cluster; kubectl config use-context NAME sets the default",
    ("config", "view"): "gpuctl config project prints the default project; kubectl config view the clusters",
    ("config", "set-context"): "gpuctl config project NAME sets the default project",
    ("config", "use-context"): "kubectl config use-context NAME: gpuctl goes by the same file",
    ("config", "get-contexts"): "kubectl config get-contexts: gpuctl goes by the same file",
    ("top", "pod"): "gpuctl top job; kubectl top pod -n NAMESPACE",
    ("top", "pods"): "gpuctl top job; kubectl top pod -n NAMESPACE",
    # kubectl
    ("apply",): _GIT,
    ("create",): f"gpuctl submit NAME for a job; {_GIT}",
    ("edit",): _GIT,
    ("patch",): _GIT,
    ("replace",): _GIT,
    ("set",): f"gpuctl project set NAME; {_GIT}",
    ("scale",): "set the job's `workers` in its YAML; with `minWorkers` below it the job is elastic",
    ("autoscale",): "set `minWorkers` and `workers` in the job's YAML: it runs with what has a place",
    ("run",): "gpuctl submit NAME -i IMAGE -g N",
    ("expose",): "gpuctl submit NAME --port 8888 --service-type ingress, or `expose` in the job's YAML",
    ("rollout",): "a changed job is a new run by itself; going back: gpuctl plan DIR --base main --rollback REV",
    ("label",): _GIT,
    ("annotate",): _GIT,
    ("wait",): "gpuctl get JOB -o json has its state",
    ("events",): "gpuctl get JOB shows its events",
    ("cp",): "gpuctl get JOB names its pod: kubectl cp FILE NAMESPACE/POD:PATH",
    ("debug",): "gpuctl bash JOB",
    ("cordon",): _NODE_CARE.format("cordon"),
    ("uncordon",): _NODE_CARE.format("uncordon"),
    ("drain",): _NODE_CARE.format("drain"),
    ("taint",): _NODE_CARE.format("taint"),
    ("cluster-info",): "kubectl cluster-info; gpuctl top node shows the GPUs",
    ("api-resources",): "gpuctl schema KIND prints what a declaration may say",
    ("api-versions",): "gpuctl version",
    ("proxy",): "kubectl proxy: gpuctl serves no API",
    ("certificate",): _LOGIN,
    ("kustomize",): "gpuctl render DIR prints the Kubernetes objects",
    # Slurm and others, by habit
    ("sbatch",): "gpuctl submit NAME -i IMAGE -g N",
    ("squeue",): "gpuctl list -A",
    ("scancel",): "gpuctl delete JOB",
    ("sinfo",): _NODES,
    ("ps",): "gpuctl list",
    ("jobs",): "gpuctl list",
    ("projects",): _PROJECTS,
    ("nodes",): _NODES,
    ("format",): "gpuctl fmt",
    ("lint",): "gpuctl validate DIR",
    ("help",): "gpuctl --help, gpuctl COMMAND --help",
}
"""By the words of the command, without `gpuctl`. An entry of more words is preferred."""

KINDS: Mapping[str, str] = {
    **dict.fromkeys(
        ("jobs", "job", "pods", "pod", "po", "workloads", "all"), "gpuctl list -A shows all jobs, gpuctl get JOB one"
    ),
    **dict.fromkeys(("projects", "project", "namespaces", "ns", "queues"), _PROJECTS),
    **dict.fromkeys(("nodes", "node", "no"), _NODES),
}
"""Kinds that `kubectl get` takes; `gpuctl get` takes a job's name there."""
_OF_A_JOB = frozenset([
    "get",
    "delete",
    "suspend",
    "resume",
    "submit",
    "explain",
    "logs",
    "exec",
    "bash",
    "port-forward",
])
"""Commands whose first argument is a job. `freeze`, `history`, `project` and `top` do take a kind."""

_NOT_PODS = "what pods may do is the cluster's choice, not the job's: spec.security in cluster.yaml"
_NFS = "--nfs SERVER:FOLDER:PATH, of what the Cluster lists in security.nfs"
_VOLUMES = (
    "--pvc, --nfs, -v; in the job's file, spec.volumes, also configMap, secret and emptyDir; others behind a claim"
)
_CPU_LIMITS = "a job asks for CPU and memory, and gets that much: --cpu, --memory"
_PATIENCE = "submit writes a file and does not wait: gpuctl get JOB, gpuctl explain JOB"

SUBMIT_FLAGS: Mapping[str, str] = {
    "--elastic": "--min-workers N: the job runs with as many workers as have a place",
    "--max-replicas": "--workers N is the most, --min-workers the least",
    "--name": "the name is the first argument: gpuctl submit NAME",
    "--job-name-prefix": "a job in Git has a name of its own: gpuctl submit NAME",
    "--cpu-limit": _CPU_LIMITS,
    "--memory-limit": _CPU_LIMITS,
    "--gpu-memory-limit": "--gpu-memory SIZE: a job has what it asks for, no more and no less",
    "--gpu-portion-request": "-g 0.5: a fraction of a GPU",
    "--gpu-portion-limit": "-g 0.5: a job has what it asks for, no more and no less",
    "--gpu-devices-request": "-g N",
    "--mig-profile": "-g 0.5 or --gpu-memory 16Gi: the pool's sharing says how a fraction becomes real",
    "--extended-resource": "GPUs, CPU and memory are what a job can ask for",
    "--nfs-server": _NFS,
    "--nfs-path": _NFS,
    "--nfs-mount": _NFS,
    "--s3": _VOLUMES,
    "--git-sync": "in the job's file, spec: git: {repository: URL, path: FOLDER}, where the Cluster has gitSync",
    "--configmap-volume": _VOLUMES,
    "--configmap-map-volume": _VOLUMES,
    "--secret-volume": "in the job's file, spec: volumes: [{secret: NAME, mountPath: PATH}]",
    "--mount-propagation": _VOLUMES,
    "--pvc-exists": "--pvc CLAIM:PATH",
    "--existing-pvc": "--pvc CLAIM:PATH",
    "--new-pvc": "--pvc CLASS:SIZE:PATH",
    "--host-path": "-v HOST:PATH",
    "--template": _TEMPLATE,
    "--attach": _PATIENCE,
    "--wait": _PATIENCE,
    "--wait-timeout": _PATIENCE,
    "--custom-url": "the address is the cluster's ingress and /PROJECT/JOB",
    "--external-url": "--port 8888 --service-type ingress; the address is /PROJECT/JOB",
    "--toleration": "a pool's taints are tolerated by --node-pools of that pool",
    "--required-pod-topology-key": "gangs are placed close together by the pool's topology, by themselves",
    "--preferred-pod-topology-key": "gangs are placed close together by the pool's topology, by themselves",
    "--node-name": "--node-pools POOL; gpuctl chooses the node",
    "--auto-deletion-time-after-completion": _KEPT,
    "--ttl-after-finish": _KEPT,
    "--no-master": "worker 0 is the master: RANK 0",
    "--master-args": "worker 0 is the master: the command sees RANK 0",
    "--master-gpu": "all workers of a gang ask for the same",
    "--create-home-dir": "set HOME to a mounted volume: -e HOME=/scratch --pvc CLAIM:/scratch",
    "--allow-privilege-escalation": _NOT_PODS,
    "--host-ipc": _NOT_PODS,
    "--host-network": _NOT_PODS,
    "--user": "whose a job is stands in Git: the author of its commit",
    "--loglevel": "messages have codes: gpuctl explain CODE",
    "--cluster": "--path DIR names the cluster's folder",
}
"""Flags of Run:ai's submit that `gpuctl submit` lacks."""


def without_kind(words: Sequence[str]) -> str:
    """What to do instead of a command with a kind, as in kubectl: `get nodes`, `delete job NAME`; "" for others."""
    if len(words) < 2 or words[1] not in KINDS or words[0] not in _OF_A_JOB:
        return ""
    if words[0] == "delete" and KINDS[words[1]] == _PROJECTS:
        return _PROJECT_GOES
    return KINDS[words[1]] if words[0] == "get" else f"without the kind: gpuctl {words[0]} JOB"


def instead_of(words: Sequence[str]) -> str:
    """What to do instead of a command that begins with these words; "" if nothing is known. The longest matching entry
    is used."""
    said = [word for word in words if not word.startswith("-")]
    for count in range(min(len(said), 2), 0, -1):
        if (found := INSTEAD.get(tuple(said[:count]))) is not None:
            return found
    return ""
