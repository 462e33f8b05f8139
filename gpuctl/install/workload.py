"""The controller itself: its namespace, its replicas, and the objects to reach, evict and follow them.

A pod has a read-only root, no privileges, and the token of its account; the clone is in an emptyDir, and a new pod
fetches it anew. Only one replica works at a time: the Lease decides which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuctl.install.installation import (
    DASHBOARD_PORT,
    DASHBOARD_SECRET,
    GIT_SECRET,
    HISTORY_FILE,
    HISTORY_FOLDER,
    HISTORY_PORT,
    LABELS,
    METRICS_PORT,
    NAME,
    NOTIFY_SECRET,
    PUSH_PORT,
    PUSH_SECRET,
    SIGNERS,
    UNGUARDED,
    USUAL,
    UTILISATION_SECRET,
    Duties,
    Installation,
    made,
)
from gpuctl.k8s import kinds, names
from gpuctl.model.state import Body

_HOME = names.SYSTEM_NAMESPACE
_USER = 65532
"""The user of the image."""
_WORK, _GIT, _SIGNERS = "/var/lib/gpuctl", "/etc/gpuctl/git", "/etc/gpuctl/signers"
_POD_IP = "POD_IP"
_OWN_ADDRESS = {"name": _POD_IP, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
_NOTIFY, _PUSH, _DASHBOARD = "/etc/gpuctl/notify", "/etc/gpuctl/push", "/etc/gpuctl/dashboard"
_UTILISATION = "/etc/gpuctl/utilisation"
_KEY, _HOSTS, _NETRC = "ssh-privatekey", "known_hosts", ".netrc"
_SSH = (
    f"ssh -F none -i {_GIT}/{_KEY} -o IdentitiesOnly=yes -o UserKnownHostsFile={_GIT}/{_HOSTS} "
    "-o StrictHostKeyChecking=yes"
)
_DNS_PORT = 53
_NODE_DNS = "169.254.20.10/32"
"""The address at which nodes with a name cache of their own answer."""
_SERVICE_PORT, SERVER_PORT = 443, 6443
"""The ports of the Service `kubernetes`, and of the servers behind it as most installers set them up."""
_KEPT = {"helm.sh/resource-policy": "keep"}
"""Keeps the namespace: it has the ledgers, and without them, jobs that have ended would run again."""
_TERMINATION_S = 30
_PODS_ON_A_NODE = 110
"""The most pods, of all users, that Kubernetes puts on a node by default."""
BASE_MIB, JOB_KIB, NODE_KIB = 256, 48, 40 + 4 * _PODS_ON_A_NODE
"""The memory of the process: with nothing to do, for each declared job and its pods, for each node and its pods.

By `gpuctl bench cluster`: 10,000 jobs on 1,000 nodes take some 330 MiB at rest and at most 450 while they are created;
a pod of any user takes 2 to 3 KiB. A job's environment and arguments count several times.
"""
STEP_MIB = 64


def controller(wanted: Installation, duties: Duties = USUAL) -> Iterator[Body]:
    """All objects except those of the account."""
    yield _namespace()
    yield _git_secret(wanted)
    yield from _more_secrets(wanted)
    if wanted.signer_files:
        note = "The keys that a commit must be signed with. Read again with each new commit."
        yield made(kinds.CONFIG_MAP, SIGNERS, {"data": dict(wanted.signer_files)}, namespace=_HOME, note=note)
    note = "Empty at first. The replica that acquires it is the leader."
    yield made(kinds.LEASE, names.LEASE_NAME, {}, namespace=_HOME, note=note)
    note = _sized(wanted) if wanted.guard else f"{_sized(wanted)} {UNGUARDED}"
    yield made(kinds.DEPLOYMENT, NAME, {"spec": _deployment(wanted, duties)}, namespace=_HOME, note=note)
    yield _service("metrics", METRICS_PORT)
    if wanted.push_from is not None:
        yield _service("push", PUSH_PORT)
    if wanted.dashboard:
        yield _leaders_service("dashboard", DASHBOARD_PORT)
        yield made(kinds.NETWORK_POLICY, f"{NAME}-dashboard", {"spec": _dashboard_network(wanted)}, namespace=_HOME)
    yield made(
        ("policy/v1", "PodDisruptionBudget"),
        NAME,
        {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}},
        namespace=_HOME,
    )
    yield made(kinds.NETWORK_POLICY, NAME, {"spec": _network(wanted)}, namespace=_HOME)


def _namespace() -> Body:
    levels = {f"{names.POD_SECURITY_LABEL}{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    body = made(kinds.NAMESPACE, _HOME, {})
    metadata = {**body["metadata"], "labels": {**LABELS, **levels}, "annotations": _KEPT}
    return {**body, "metadata": metadata}


def _git_secret(wanted: Installation) -> Body:
    """The Secret for Git, without data, so that applying it again never removes what was filled in."""
    if wanted.by_ssh:
        note = (
            f"Needs {_KEY}, a deploy key that may read the repository, and {_HOSTS}, the Git server's host keys. "
            f"{fill_in(_KEY, _HOSTS)}"
        )
    else:
        note = (
            f"Only for a repository that is not public: {_NETRC}, one line 'machine HOST login USER password TOKEN' "
            f"with a token that may read the repository and no more. {fill_in(_NETRC)}"
        )
    return made(kinds.SECRET, GIT_SECRET, {"type": "Opaque"}, namespace=_HOME, note=note)


def _more_secrets(wanted: Installation) -> Iterator[Body]:
    """The Secrets of parts that are off by default, without data like Git's."""
    if wanted.notify:
        note = (
            "Who is notified, by the keys that are there: slack-url; webhook-url, webhook-key; github-token or "
            "gitlab-token, for commit statuses, and github-url or gitlab-url for a code host of one's own. "
            f"{fill_in('slack-url', secret=NOTIFY_SECRET)}"
        )
        yield made(kinds.SECRET, NOTIFY_SECRET, {"type": "Opaque"}, namespace=_HOME, note=note)
    if wanted.push_from is not None:
        note = (
            "Needs secret, 16 characters at least: the secret of the webhook on GitHub or GitLab, for POST /push of "
            f"Service {NAME}-push. {fill_in('secret', secret=PUSH_SECRET)}"
        )
        yield made(kinds.SECRET, PUSH_SECRET, {"type": "Opaque"}, namespace=_HOME, note=note)
    if wanted.dashboard:
        note = (
            "Needs secret, 16 characters at least: what the authenticating proxy sends in the header X-Proxy-Secret to "
            f"Service {NAME}-dashboard, beside the user in X-Forwarded-User. "
            f"{fill_in('secret', secret=DASHBOARD_SECRET)}"
        )
        yield made(kinds.SECRET, DASHBOARD_SECRET, {"type": "Opaque"}, namespace=_HOME, note=note)
    if wanted.utilisation_prometheus is not None:
        note = (
            "Only for a Prometheus that asks for one: token, a bearer token that may query it. "
            f"{fill_in('token', secret=UTILISATION_SECRET)}"
        )
        yield made(kinds.SECRET, UTILISATION_SECRET, {"type": "Opaque"}, namespace=_HOME, note=note)


def fill_in(*keys: str, secret: str = GIT_SECRET) -> str:
    """The command that puts files into a Secret, with a field manager of its own: `gpuctl install` leaves its
    fields."""
    files = " ".join(f"--from-file={key}=FILE" for key in keys)
    return (
        f"kubectl -n {_HOME} create secret generic {secret} {files} --dry-run=client -o yaml | "
        "kubectl apply --server-side --field-manager=git-credentials -f -"
    )


def memory_mib(jobs: int, nodes: int) -> int:
    """The memory limit of the controller for so many declared jobs on so many nodes."""
    most_kib = 1024 * BASE_MIB + JOB_KIB * jobs + NODE_KIB * nodes
    return -(-most_kib // (1024 * STEP_MIB)) * STEP_MIB


def _sized(wanted: Installation) -> str:
    return (
        f"The memory limit of {memory_mib(wanted.jobs, wanted.nodes)}Mi is for {wanted.jobs} declared jobs on "
        f"{wanted.nodes} nodes: {BASE_MIB}Mi, {JOB_KIB}Ki a job and {NODE_KIB}Ki a node with up to {_PODS_ON_A_NODE} "
        "pods. For others: gpuctl install --jobs N --nodes N."
    )


def _deployment(wanted: Installation, duties: Duties) -> Mapping[str, Any]:
    return {
        "replicas": wanted.replicas,
        "selector": {"matchLabels": LABELS},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": LABELS}, "spec": _pod(wanted, duties)},
    }


def _pod(wanted: Installation, duties: Duties) -> Mapping[str, Any]:
    keys = (_KEY, _HOSTS) if wanted.by_ssh else (_NETRC,)
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _TERMINATION_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": LABELS},
            }
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        "containers": [_container(wanted, duties)],
        "volumes": [
            {"name": "work", "emptyDir": {"sizeLimit": "2Gi"}},
            {"name": "history", "emptyDir": {"sizeLimit": "3Gi"}},  # a file of 1 GiB, its log, and one put aside
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            {
                "name": "git",
                "secret": {
                    "secretName": GIT_SECRET,
                    "defaultMode": 0o440,
                    "optional": not wanted.by_ssh,
                    "items": [{"key": key, "path": key} for key in keys],
                },
            },
            *([{"name": "signers", "configMap": {"name": SIGNERS}}] if wanted.signer_files else ()),
            *([_optional("notify", NOTIFY_SECRET)] if wanted.notify else ()),
            *([_optional("push", PUSH_SECRET)] if wanted.push_from is not None else ()),
            *([_optional("dashboard", DASHBOARD_SECRET)] if wanted.dashboard else ()),
            *([_optional("utilisation", UTILISATION_SECRET)] if wanted.utilisation_prometheus is not None else ()),
        ],
    }


def _optional(name: str, secret: str) -> Mapping[str, Any]:
    return {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440, "optional": True}}


def _container(wanted: Installation, duties: Duties) -> Mapping[str, Any]:
    most_mib = memory_mib(wanted.jobs, wanted.nodes)
    return {
        "name": NAME,
        "image": wanted.image,
        "args": [*arguments(wanted), *(("--target", duties.engine) if duties.engine else ())],
        "env": [
            {"name": "HOME", "value": _GIT},  # where git looks for .netrc
            *([{"name": "GIT_SSH_COMMAND", "value": _SSH}] if wanted.by_ssh else ()),
            *([_OWN_ADDRESS] if wanted.dashboard else ()),
        ],
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT},
            *([{"name": "push", "containerPort": PUSH_PORT}] if wanted.push_from is not None else ()),
            *([{"name": "dashboard", "containerPort": DASHBOARD_PORT}] if wanted.dashboard else ()),
        ],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "metrics"},
            "initialDelaySeconds": 10,
            "periodSeconds": 20,
            "timeoutSeconds": 5,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 5, "timeoutSeconds": 5},
        "resources": {
            "requests": {"cpu": "100m", "memory": f"{most_mib // 2}Mi"},
            "limits": {"memory": f"{most_mib}Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "work", "mountPath": _WORK},
            {"name": "history", "mountPath": HISTORY_FOLDER},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
            {"name": "git", "mountPath": _GIT, "readOnly": True},
            *([{"name": "signers", "mountPath": _SIGNERS, "readOnly": True}] if wanted.signer_files else ()),
            *([{"name": "notify", "mountPath": _NOTIFY, "readOnly": True}] if wanted.notify else ()),
            *([{"name": "push", "mountPath": _PUSH, "readOnly": True}] if wanted.push_from is not None else ()),
            *([{"name": "dashboard", "mountPath": _DASHBOARD, "readOnly": True}] if wanted.dashboard else ()),
            *(
                [{"name": "utilisation", "mountPath": _UTILISATION, "readOnly": True}]
                if wanted.utilisation_prometheus is not None
                else ()
            ),
        ],
    }


def arguments(wanted: Installation) -> Iterator[str]:
    """The arguments of `gpuctl` in the pod."""
    yield from ("reconcile", "--repo", wanted.repo, "--path", wanted.path)
    if wanted.branch is not None:
        yield from ("--branch", wanted.branch)
    for option, number in (("--write-qps", wanted.write_qps), ("--write-burst", wanted.write_burst)):
        if number is not None:
            yield from (option, str(number))
    yield from ("--jobs", str(wanted.jobs))
    if wanted.verify is not None:
        yield from ("--verify-signatures", wanted.verify)
    for option in wanted.signer_files:
        yield from (f"--{option}", f"{_SIGNERS}/{option}")
    if wanted.notify:
        yield from ("--notify", _NOTIFY)
    if wanted.push_from is not None:
        yield from ("--push-address", f"0.0.0.0:{PUSH_PORT}", "--push-secret", f"{_PUSH}/secret")
    if wanted.dashboard:
        yield from ("--dashboard-address", f"0.0.0.0:{DASHBOARD_PORT}", "--dashboard-secret", f"{_DASHBOARD}/secret")
        yield from ("--dashboard-pod-ip", f"$({_POD_IP})")
    if wanted.utilisation_prometheus is not None:
        yield from ("--utilisation-prometheus", wanted.utilisation_prometheus)
        yield from ("--utilisation-token", f"{_UTILISATION}/token")
    if wanted.utilisation_match is not None:
        yield from ("--utilisation-match", wanted.utilisation_match)
    if wanted.utilisation_exporter is not None:
        yield from ("--utilisation-exporter", wanted.utilisation_exporter)
    yield from ("--workdir", _WORK, "--log-format", "json", "--metrics-address", f"0.0.0.0:{METRICS_PORT}")
    yield from ("--history", HISTORY_FILE, "--history-address", f"127.0.0.1:{HISTORY_PORT}")


def _service(name: str, number: int) -> Body:
    port = {"name": name, "port": number, "targetPort": name}
    return made(kinds.SERVICE, f"{NAME}-{name}", {"spec": {"selector": LABELS, "ports": [port]}}, namespace=_HOME)


def _leaders_service(name: str, number: int) -> Body:
    """A Service without a selector: it leads to the leader, which writes its own address. Only the leader has the
    history."""
    return made(kinds.SERVICE, f"{NAME}-{name}", {"spec": {"ports": [{"name": name, "port": number}]}}, namespace=_HOME)


def _network(wanted: Installation) -> Mapping[str, Any]:
    """In: metrics and webhooks; a node can always reach its own pods for probes. Out: names, the API server, Git, the
    source of GPU metrics and receivers of notifications: only their ports are known here, not their addresses."""
    servers = (_SERVICE_PORT, wanted.api_port or SERVER_PORT)
    is_measured = wanted.utilisation_prometheus is not None or wanted.utilisation_exporter is not None
    return {
        "podSelector": {"matchLabels": LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            _let_in(METRICS_PORT, wanted.monitoring_namespace),
            *([] if wanted.push_from is None else [_let_in(PUSH_PORT, wanted.push_from)]),
        ],
        "egress": [
            {
                "to": [
                    {"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}},
                    {"ipBlock": {"cidr": _NODE_DNS}},
                ],
                "ports": [{"port": _DNS_PORT, "protocol": protocol} for protocol in ("UDP", "TCP")],
            },
            {"ports": [{"port": port, "protocol": "TCP"} for port in servers]},
            {"ports": [{"port": wanted.git_port, "protocol": "TCP"}]},
            *([{"ports": [{"port": wanted.utilisation_port, "protocol": "TCP"}]}] if is_measured else []),
        ],
    }


def _dashboard_network(wanted: Installation) -> Mapping[str, Any]:
    """Lets in requests for pages, in addition to the controller's own policy."""
    return {
        "podSelector": {"matchLabels": LABELS},
        "policyTypes": ["Ingress"],
        "ingress": [_let_in(DASHBOARD_PORT, wanted.proxy_namespace)],
    }


def _let_in(port: int, namespace: str) -> Mapping[str, Any]:
    """An ingress rule for a port: from pods of one namespace; if none is named, from all."""
    by_name = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    some = {"from": [{"namespaceSelector": by_name}]} if namespace else {}
    return {"ports": [{"port": port, "protocol": "TCP"}], **some}
