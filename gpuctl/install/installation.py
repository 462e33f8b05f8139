"""What is to be installed, and the names and ports that its objects share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gpuctl.k8s import kinds, names
from gpuctl.k8s.workload_table import BUILT_IN
from gpuctl.model.state import Body
from gpuctl.model.workload_kind import WorkloadKind

NAME = "gpuctl"
"""Of the account, its roles, the Deployment, its container and what belongs to them."""
GIT_SECRET = "gpuctl-git"  # noqa: S105 - its name
NOTIFY_SECRET, PUSH_SECRET, DASHBOARD_SECRET = "gpuctl-notify", "gpuctl-push", "gpuctl-dashboard"
"""Of the Secrets with the receivers of notifications, with the secret of webhooks, and with that of the proxy."""
UTILISATION_SECRET = "gpuctl-utilisation"  # noqa: S105 - its name
"""Of the Secret with the token for Prometheus."""
SIGNERS = "gpuctl-signers"
"""Of the ConfigMap with the keys of those who may sign commits."""
METRICS_PORT = 8080
HISTORY_PORT = 8081
"""On the pod's own loopback address: nothing on the network of pods reaches it."""
HISTORY_FOLDER = "/var/lib/gpuctl-history"
HISTORY_FILE = f"{HISTORY_FOLDER}/history.db"
PUSH_PORT, DASHBOARD_PORT = 8082, 8083
ACCOUNT = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{NAME}"
"""The user that requests of the controller are made as."""

LABELS: Mapping[str, str] = {"app.kubernetes.io/name": NAME}
"""On every object, and what finds the controller's pods. Not MANAGED_BY_LABEL: these objects are not gpuctl's own."""

UNGUARDED = (
    "Installed without --guard. People who may edit in a project's namespace can start pods with GPUs past Git, as "
    "many as the project's ResourceQuota lets them; get all GPUs of a node whose NVIDIA runtime obeys "
    "NVIDIA_VISIBLE_DEVICES; run pods on GPU nodes in spite of taints and past the scheduler; and change what gpuctl "
    "made in their namespace. Pod Security and quotas bound them all the same: see SECURITY.md."
)
"""What nothing else stops, for `gpuctl install` to say."""

_HTTPS_PORT, _SSH_PORT = 443, 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """`repo` is an https or ssh URL, or USER@HOST:PATH. `branch` None: the one the repository has checked out.

    `namespace_prefix` is the cluster's; empty where projects may have any namespace. `roles` are the ClusterRoles that
    projects may grant. `guard`: whether Git is to be the only way to a GPU. `write_qps` and `write_burst` bound the
    controller's writes; None: as it does by itself. `jobs` and `nodes`: how many it is given memory for. `verify` is
    which commits need a signature, by a key in these texts; None: none does. `api_port` is where API servers listen
    behind the Service; None: where most installers have them. Metrics are for `monitoring_namespace`; empty: for all.
    `notify`: whether receivers in a Secret are notified. `push_from`: the namespace from which webhooks for pushes
    come, such as the ingress controller's; None: they are not received.
    `monitoring`: whether the Prometheus operator is to read the metrics, with alerts.
    `utilisation_prometheus`, `utilisation_exporter`: where the use of GPUs is read, at `utilisation_port`; of
    Prometheus only series with the labels of `utilisation_match`. None: nowhere.
    `dashboard`: whether pages are served to an authenticating proxy in `proxy_namespace`; empty: in any.
    """

    image: str
    repo: str
    path: str
    branch: str | None = None
    namespace_prefix: str = "gpu-"
    roles: tuple[str, ...] = ("admin", "edit", "view")
    replicas: int = 2
    guard: bool = False
    write_qps: int | None = None
    write_burst: int | None = None
    jobs: int = 10_000
    nodes: int = 1_000
    verify: str | None = None
    allowed_signers: str | None = None
    openpgp_keys: str | None = None
    api_port: int | None = None
    monitoring_namespace: str = "monitoring"
    controllers: tuple[str, ...] = ()
    notify: bool = False
    push_from: str | None = None
    dashboard: bool = False
    proxy_namespace: str = "ingress-nginx"
    monitoring: bool = False
    utilisation_prometheus: str | None = None
    utilisation_match: str | None = None
    utilisation_exporter: str | None = None
    utilisation_port: int = 9090

    @property
    def signer_files(self) -> Mapping[str, str]:
        """The keys of those who may sign, by the option that takes them as a file."""
        given = {"allowed-signers": self.allowed_signers, "openpgp-keys": self.openpgp_keys}
        return {option: text for option, text in given.items() if text is not None}

    @property
    def by_ssh(self) -> bool:
        """Whether the repository is read by ssh, with a deploy key; else by https, with a token if any."""
        return not self.repo.startswith("https://")

    @property
    def git_port(self) -> int:
        """Where the Git server listens. ValueError for a port that is none."""
        port = urlsplit(self.repo).port if "://" in self.repo else None
        return port or (_SSH_PORT if self.by_ssh else _HTTPS_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """What gpuctl does in this cluster, and what its rights follow from: no option of a chart changes it.

    `kinds` are those that the Cluster declares. `engine`: the other engine that decides which jobs run; "": gpuctl's
    own.
    """

    kinds: tuple[WorkloadKind, ...] = ()
    engine: str = ""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The kinds of other controllers as groups and plurals, the built-in ones first."""
        built_in = ((kinds.group_of(kind), kinds.KINDS[kind].plural) for kind in BUILT_IN)
        return (*built_in, *((kinds.group_of(row.kind), row.plural) for row in self.kinds))


USUAL = Duties()
"""Of a cluster that declares no kinds, and where gpuctl's own engine decides."""
ENGINE_ACCOUNTS: Mapping[str, str] = {"kueue": "system:serviceaccount:kueue-system:kueue-controller-manager"}
"""What changes Jobs that gpuctl made, where another engine decides: it lets them go and pauses them."""


def made(kind: kinds.Kind, name: str, content: Mapping[str, Any], *, namespace: str = "", note: str = "") -> Body:
    """An object; `note` tells people what to do with it."""
    metadata: dict[str, Any] = {"name": name, "labels": LABELS}
    if namespace:
        metadata["namespace"] = namespace
    if note:
        metadata["annotations"] = {"kubernetes.io/description": note}
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, **content}
