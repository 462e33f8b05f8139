"""The options of an installation, and the names and ports that its objects share."""

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
"""The name of the account, its roles, the Deployment, its container and what belongs to them."""
GIT_SECRET = "gpuctl-git"  # noqa: S105 - its name
NOTIFY_SECRET, PUSH_SECRET, DASHBOARD_SECRET = "gpuctl-notify", "gpuctl-push", "gpuctl-dashboard"
"""The Secrets with the receivers of notifications, with the secret of webhooks, and with that of the proxy."""
UTILISATION_SECRET = "gpuctl-utilisation"  # noqa: S105 - its name
"""The Secret with the token for Prometheus."""
SIGNERS = "gpuctl-signers"
"""The ConfigMap with the keys of people who may sign commits."""
METRICS_PORT = 8080
HISTORY_PORT = 8081
"""The port on the pod's own loopback address: it can't be reached from the network of pods."""
HISTORY_FOLDER = "/var/lib/gpuctl-history"
HISTORY_FILE = f"{HISTORY_FOLDER}/history.db"
PUSH_PORT, DASHBOARD_PORT = 8082, 8083
ACCOUNT = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{NAME}"
"""The user of the controller's requests."""

LABELS: Mapping[str, str] = {"app.kubernetes.io/name": NAME}
"""Labels on every object; they select the controller's pods. Not MANAGED_BY_LABEL: gpuctl does not manage these
objects."""

UNGUARDED = (
    "Installed without --guard. People who may edit in a project's namespace can start pods with GPUs past Git, as "
    "many as the project's ResourceQuota lets them; get all GPUs of a node whose NVIDIA runtime obeys "
    "NVIDIA_VISIBLE_DEVICES; run pods on GPU nodes in spite of taints and past the scheduler; and change what gpuctl "
    "made in their namespace. Pod Security and quotas bound them all the same: see SECURITY.md."
)
"""The risks without the guard, for `gpuctl install` to print."""

_HTTPS_PORT, _SSH_PORT = 443, 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The options. `repo`: an https or ssh URL, or USER@HOST:PATH. `branch` None: the repository's checked-out branch.

    - `namespace_prefix`: the cluster's; empty if projects may have any namespace.
    - `roles`: the ClusterRoles that projects may grant.
    - `guard`: whether Git should be the only way to a GPU.
    - `write_qps`, `write_burst`: bound the controller's writes; None: its own defaults.
    - `jobs`, `nodes`: how many it gets memory for.
    - `verify`: which commits need a signature, by a key in these texts; None: none does.
    - `api_port`: where API servers listen behind the Service; None: where most installers have them.
    - `monitoring_namespace`: may read metrics; empty: all namespaces. `monitoring`: whether the Prometheus operator
      reads the metrics, with alerts.
    - `notify`: whether receivers in a Secret are notified.
    - `push_from`: the namespace from which webhooks for pushes come, such as the ingress controller's; None: webhooks
      are not received.
    - `utilisation_prometheus`, `utilisation_exporter`: where the use of GPUs is read, at `utilisation_port`; of
      Prometheus only series with the labels of `utilisation_match`. None: nowhere.
    - `dashboard`: whether pages are served to an authenticating proxy in `proxy_namespace`; empty: in any namespace.
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
        """The keys of people who may sign, by the option that takes them as a file."""
        given = {"allowed-signers": self.allowed_signers, "openpgp-keys": self.openpgp_keys}
        return {option: text for option, text in given.items() if text is not None}

    @property
    def by_ssh(self) -> bool:
        """Whether the repository is read by ssh, with a deploy key; else by https, with a token if there is one."""
        return not self.repo.startswith("https://")

    @property
    def git_port(self) -> int:
        """The port of the Git server. ValueError for an invalid port."""
        port = urlsplit(self.repo).port if "://" in self.repo else None
        return port or (_SSH_PORT if self.by_ssh else _HTTPS_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """What gpuctl does in this cluster; its rights follow from it, and no option of a chart changes it.

    `kinds`: those that the Cluster declares. `engine`: the other engine that decides which jobs run; "": gpuctl's own.
    """

    kinds: tuple[WorkloadKind, ...] = ()
    engine: str = ""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The kinds of other controllers as groups and plurals, the built-in ones first."""
        built_in = ((kinds.group_of(kind), kinds.KINDS[kind].plural) for kind in BUILT_IN)
        return (*built_in, *((kinds.group_of(row.kind), row.plural) for row in self.kinds))


USUAL = Duties()
"""For a cluster that declares no kinds, and where gpuctl's own engine decides."""
ENGINE_ACCOUNTS: Mapping[str, str] = {"kueue": "system:serviceaccount:kueue-system:kueue-controller-manager"}
"""The accounts that change gpuctl's Jobs if another engine decides: it releases and pauses them."""


def made(kind: kinds.Kind, name: str, content: Mapping[str, Any], *, namespace: str = "", note: str = "") -> Body:
    """An object; `note` tells people what to do with it."""
    metadata: dict[str, Any] = {"name": name, "labels": LABELS}
    if namespace:
        metadata["namespace"] = namespace
    if note:
        metadata["annotations"] = {"kubernetes.io/description": note}
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, **content}
