"""Reads a CI job's environment for its code host: the API, the repository, the request and the token.

CI_JOB_TOKEN, the token of a GitLab job, can't write comments, so it is not used. Source:
https://docs.github.com/actions/reference/workflows-and-actions/variables and
https://docs.gitlab.com/ci/variables/predefined_variables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.request import getproxies, proxy_bypass

from gpuctl.adapters.forge.address import ForgeAddress
from gpuctl.app.ports import ForgeFault
from gpuctl.diag.wording import message

Host = Literal["github", "gitlab"]
_API = {"github": "https://api.github.com", "gitlab": "https://gitlab.com/api/v4"}
_API_VARIABLE = {"github": "GITHUB_API_URL", "gitlab": "CI_API_V4_URL"}
_REPOSITORY_VARIABLE = {"github": "GITHUB_REPOSITORY", "gitlab": "CI_PROJECT_ID"}
_TOKEN_VARIABLES = {"github": ("GITHUB_TOKEN", "GH_TOKEN"), "gitlab": ("GITLAB_TOKEN",)}
_MAX_TOKEN_BYTES = 16 * 1024
_MAX_EVENT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeOptions:
    """A code host as options name it; None: take the value from the environment."""

    host: Host
    api_url: str | None = None
    repository: str | None = None
    number: int | None = None
    token_file: Path | None = None


def address_of(options: ForgeOptions, environment: Mapping[str, str]) -> ForgeAddress:
    """The API's address, repository and token. Raises ForgeFault: GPU6201, GPU6202."""
    host = options.host
    url = options.api_url or environment.get(_API_VARIABLE[host]) or _API[host]
    repository = options.repository or environment.get(_REPOSITORY_VARIABLE[host], "")
    if not repository:
        raise _unknown("the repository", f"{_REPOSITORY_VARIABLE[host]} is not set")
    if host == "github" and repository.count("/") != 1:
        raise _unknown("the repository", f"{repository} is not of the form owner/name")
    token = _token(options, environment)
    ca_file = environment.get("CI_SERVER_TLS_CA_FILE") if host == "gitlab" and not options.api_url else None
    address = ForgeAddress(url=url, repository=repository, token=token, ca_file=ca_file or None)
    proxy = None if proxy_bypass(address.host) else getproxies().get(url.partition(":")[0])
    return ForgeAddress(url=url, repository=repository, token=token, ca_file=ca_file or None, proxy=proxy or None)


def number_of(options: ForgeOptions, environment: Mapping[str, str]) -> int:
    """The number of the pull or merge request. Raises ForgeFault: GPU6202."""
    if options.number is not None:
        return options.number
    if options.host == "github":
        return _event_number(environment.get("GITHUB_EVENT_PATH", ""))
    text = environment.get("CI_MERGE_REQUEST_IID", "")
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise _unknown("the number of the request", "CI_MERGE_REQUEST_IID is not set, as in jobs of a merge request")
    return int(text)


def _event_number(path: str) -> int:
    """The number of the pull request in GitHub's event."""
    if not path:
        raise _unknown("the number of the request", "GITHUB_EVENT_PATH is not set")
    try:
        event: Any = json.loads(_read(Path(path), _MAX_EVENT_BYTES))
        number = event["pull_request"]["number"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        why = "GITHUB_EVENT_PATH names no event of a pull request"
        raise _unknown("the number of the request", why) from None
    if type(number) is not int or number < 1:
        raise _unknown("the number of the request", "GITHUB_EVENT_PATH has none that is a number")
    return number


def _token(options: ForgeOptions, environment: Mapping[str, str]) -> str:
    names = _TOKEN_VARIABLES[options.host]
    if options.token_file is None:
        found = next((environment[name] for name in names if environment.get(name)), "")
        if not found:
            raise _no_token(options, f"{' and '.join(names)} are not set" if names[1:] else f"{names[0]} is not set")
        return found
    try:
        return _read(options.token_file, _MAX_TOKEN_BYTES).decode().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise _no_token(options, f"{options.token_file}: {why or 'not a file with a token'}") from None


def _read(path: Path, bound: int) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(2, "no such file")
    with path.open("rb") as file:
        data = file.read(bound + 1)
    if len(data) > bound:
        raise ValueError("the file is too large")
    return data


def _no_token(options: ForgeOptions, why: str) -> ForgeFault:
    host = {"github": "GitHub", "gitlab": "GitLab"}[options.host]
    return ForgeFault("GPU6201", message("GPU6201", {"host": host, "why": why}))


def _unknown(what: str, why: str) -> ForgeFault:
    return ForgeFault("GPU6202", message("GPU6202", {"what": what, "why": why}))
