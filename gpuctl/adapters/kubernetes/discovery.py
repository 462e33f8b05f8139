"""Which server this is, and which of the kinds that gpuctl uses it does not serve."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.adapters.kubernetes.faults import unsupported
from gpuctl.adapters.kubernetes.paths import group_path
from gpuctl.adapters.kubernetes.requests import Request, Requests
from gpuctl.app.ports import NotFound
from gpuctl.diag.wording import all_of, message
from gpuctl.k8s.kinds import KINDS, VERBS, Kind, in_words
from gpuctl.k8s.objects import flag, items, text
from gpuctl.model.state import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """The server's `version`, with the older one that it emulates, if any; `absent`: kinds of Kubernetes that gpuctl
    uses and the server does not have. Kinds of other controllers exist only where one is installed."""

    version: str
    absent: tuple[Kind, ...]

    @property
    def told(self) -> tuple[str, str] | None:
        """The code and message for the journal; None if the server has everything that gpuctl uses."""
        if not self.absent:
            return None
        uses = sorted({KINDS[kind].needed_for for kind in self.absent})
        params = {"version": self.version, "kinds": all_of(kind[1] for kind in self.absent), "uses": all_of(uses)}
        return "GPU7019", message("GPU7019", params)


def discover(requests: Requests) -> ServerReport:
    """Ask the server what it is. Raises ClusterUnavailable. Cost: some ten small requests, one for each group."""
    version = requests.send(Request(verb="get", kind=("", "Version"), path="/version", what="read the version"))
    of_kubernetes = [kind for kind in VERBS if not KINDS[kind].of_others]
    served = {kind for group in sorted({kind[0] for kind in of_kubernetes}) for kind in _kinds(requests, group)}
    return ServerReport(version=_version(version), absent=tuple(kind for kind in of_kubernetes if kind not in served))


def declared_plural(requests: Requests, kind: Kind) -> str:
    """The server's plural for a kind, for use in paths. Raises NotFound if it has none, or if the kind is not
    namespaced: a cluster-scoped object belongs to no job."""
    path, what = group_path(kind[0]), f"read what {kind[0]} has"
    listed = requests.send(Request(verb="get", kind=(kind[0], "APIResourceList"), path=path, what=what))
    for resource in items(listed, "resources"):
        if text(resource, "kind") == kind[1] and "/" not in text(resource, "name") and flag(resource, "namespaced"):
            return text(resource, "name")
    raise unsupported(f"{in_words(kind)} in namespaces")


def _version(told: Body) -> str:
    """The server's version. While a server is upgraded, it may emulate an older one (--emulated-version)."""
    minor, emulated = text(told, "minor"), text(told, "emulationMinor")
    like = "" if emulated in {"", minor} else f" as {text(told, 'emulationMajor')}.{emulated}"
    return text(told, "gitVersion") + like


def _kinds(requests: Requests, group: str) -> set[Kind]:
    """The kinds of a group and version; empty if the server does not have the group."""
    path, what = group_path(group), f"read what {group} has"
    try:
        listed = requests.send(Request(verb="get", kind=(group, "APIResourceList"), path=path, what=what))
    except NotFound:
        return set()
    return {(group, text(resource, "kind")) for resource in items(listed, "resources")}
