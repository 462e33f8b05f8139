"""Finds the code host and the repository of a remote's address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuctl.adapters.forge.environment import Host
from gpuctl.app.ports import ForgeFault
from gpuctl.diag.wording import message

_URL = re.compile(r"(?:https|ssh)://(?:[^/@]*@)?(?P<host>[A-Za-z0-9.-]+)(?P<port>:[0-9]{1,5})?/(?P<path>[^?#]+)")
_SCP_LIKE = re.compile(r"(?:[A-Za-z0-9_.-]+@)?(?P<host>[A-Za-z0-9.-]+):(?P<path>[^/:][^:?#]*)")
_PART = re.compile(r"[A-Za-z0-9_.-]+")
_PUBLIC: Mapping[str, Host] = {"github.com": "github", "gitlab.com": "gitlab"}
_OWN: Mapping[str, Host] = {"GITHUB_API_URL": "github", "CI_API_V4_URL": "gitlab"}
"""The variables that name the API of one's own host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedAt:
    """A repository of a code host."""

    host: Host
    repository: str


def hosted_at(remote_url: str, environment: Mapping[str, str]) -> HostedAt:
    """The code host of a remote's address: GitHub, GitLab, or the host whose API the environment names.

    Security: no other host counts, whatever its name, since it would be sent the token. Raises ForgeFault GPU6122.
    """
    found = _URL.fullmatch(remote_url) or _SCP_LIKE.fullmatch(remote_url)
    name = found["host"].lower() if found is not None else ""
    own = {_name_in(environment.get(variable, "")): host for variable, host in _OWN.items()}
    kind = _PUBLIC.get(name) or (own.get(name) if name else None)
    repository = found["path"].strip("/").removesuffix(".git") if found is not None else ""
    parts = repository.split("/")
    sound = all(_PART.fullmatch(part) and set(part) != {"."} for part in parts)
    if kind is None or not sound or len(parts) < 2 or (kind == "github" and len(parts) != 2):
        why = "the remote's address names no repository of GitHub or GitLab"
        raise ForgeFault("GPU6122", message("GPU6122", {"why": why}))
    return HostedAt(host=kind, repository=repository)


def _name_in(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
