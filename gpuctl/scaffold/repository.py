"""The files of a new repository, by path."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpuctl.compile.amounts import label
from gpuctl.compile.fields_v1 import AN_OWNER, OWNER
from gpuctl.compile.jsonschema import any_kind
from gpuctl.edit.values import Value, block
from gpuctl.scaffold.pools import Pool

POLICIES = ("images-with-a-version", "max-duration-required")
"""The policies that a new repository begins with."""
EXAMPLES = "policies/examples/"
"""The folder of their examples."""

SCHEMA = ".vscode/gpuctl.schema.json"
_API = "gpuctl.dev/v1"
_IMAGE = "nvidia/cuda:12.6.3-base-ubuntu24.04"

_GITHUB = """\
# Checks declarations in pull requests, and writes as a comment what a change does to running jobs.
name: gpuctl
on: [pull_request]
permissions: {contents: read, pull-requests: write}
jobs:
  gpuctl:
    runs-on: ubuntu-latest
    steps:
    - uses: actions/checkout@v4
      with: {fetch-depth: 0}
    # Where your organisation keeps gpuctl, and the commit of it that you use.
    - uses: ORGANISATION/gpuctl@REVISION
      # As many as gpuctl install --jobs has said. What there is no memory for is an error before it is merged.
      with: {jobs: "10000"}
"""

_GITLAB = """\
# Checks declarations in merge requests, and shows what a change does to running jobs.
# Where your organisation keeps gpuctl, and the commit of it that you use.
include: {project: ORGANISATION/gpuctl, ref: REVISION, file: templates/gitlab-ci.yml}
# GPUCTL_JOBS: as many as gpuctl install --jobs has said. What there is no memory for is an error before it is merged.
variables: {GPUCTL_IMAGE: "REGISTRY/gpuctl:REVISION", GPUCTL_JOBS: "10000"}
"""

_LAST_COUNTS = "# The last line that fits a file counts: what is in no project's folder is the platform team's."
_NO_PLATFORM = """\
# The cluster, policies, CI and this file have no owner yet. Name the platform team here; a later line counts more:
# * @ORGANISATION/PLATFORM-TEAM"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The content of a new repository. `owners`: of the first project, for CODEOWNERS; `platform`: of everything
    else."""

    cluster: str
    pools: tuple[Pool, ...]
    project: str
    owners: tuple[str, ...] = ()
    platform: tuple[str, ...] = ()
    ci: Literal["github", "gitlab"] = "github"


def files(beginning: Beginning, policies: Mapping[str, bytes]) -> dict[str, bytes]:
    """Every file of the repository by its path from the top.

    `policies`: the content of POLICIES and of their examples, by path in `policies/`.

    Raises ValueError if the cluster or the project has a name that no folder can have, or if an owner of the rest is
    invalid.
    """
    folder = f"clusters/{label(beginning.cluster)}"
    project = f"{folder}/projects/{label(beginning.project)}"
    texts = {
        f"{folder}/cluster.yaml": _cluster(beginning),
        f"{project}/project.yaml": _project(beginning),
        f"{project}/jobs/hello.yaml": _job(beginning),
    }
    made = {path: f"{_modeline(path)}\n{text}\n" for path, text in texts.items()}
    for name, content in policies.items():
        path = f"policies/{name}"
        made[path] = content.decode() if "/" in name else f"{_modeline(path)}\n{content.decode()}"
    made[SCHEMA] = json.dumps(any_kind(), indent=1) + "\n"
    settings = {"yaml.schemas": {f"./{SCHEMA}": ["clusters/**/*.yaml", "policies/*.yaml"]}}
    made[".vscode/settings.json"] = json.dumps(settings, indent=2) + "\n"
    if beginning.owners or beginning.platform:
        made["CODEOWNERS"] = _code_owners(beginning, project)
    made[".github/workflows/gpuctl.yml" if beginning.ci == "github" else ".gitlab-ci.yml"] = (
        _GITHUB if beginning.ci == "github" else _GITLAB
    )
    return {path: text.encode() for path, text in sorted(made.items())}


def _code_owners(beginning: Beginning, project: str) -> str:
    """The reviewers of each file; without the platform team's name, a line to fill it in."""
    lines = [_NO_PLATFORM]
    if beginning.platform:
        lines = [_LAST_COUNTS, f"* {' '.join(map(_owner, beginning.platform))}"]
    if beginning.owners:
        lines.append(f"/{project}/ {' '.join(beginning.owners)}")
    return "".join(f"{line}\n" for line in lines)


def _owner(text: str) -> str:
    if re.fullmatch(OWNER, text) is None:
        raise ValueError(f"{text!r} is not {AN_OWNER}")
    return text


def _modeline(path: str) -> str:
    """The line by which an editor without settings finds the schema."""
    return f"# yaml-language-server: $schema={posixpath.relpath(SCHEMA, posixpath.dirname(path))}"


def _declared(kind: str, metadata: dict[str, Value], spec: dict[str, Value]) -> str:
    return "\n".join(block({"apiVersion": _API, "kind": kind, "metadata": metadata, "spec": spec}))


def _cluster(beginning: Beginning) -> str:
    pools: list[Value] = []
    for pool in beginning.pools:
        said: dict[str, Value] = {
            "name": pool.name,
            "selector": {"matchLabels": dict(pool.selector)} if pool.selector else {},
            "nodes": _nodes(pool),
            "gpusPerNode": pool.gpus,
            "gpuMemory": pool.memory,
            "gpuProduct": pool.product,
            "resourcesPerNode": _given({
                "cpu": int(pool.cpu) if pool.cpu.isdecimal() else pool.cpu,
                "memory": pool.ram,
            }),
            "sharing": pool.sharing,
            "driver": pool.driver,
            "mig": dict(pool.mig),
        }
        pools.append(_given(said))
    return _declared("Cluster", {"name": beginning.cluster}, {"nodePools": pools})


def _nodes(pool: Pool) -> list[Value]:
    odd = dict(pool.odd)
    return [{"name": name, "gpus": odd[name]} if name in odd else name for name in pool.nodes]


def _given(fields: dict[str, Value]) -> dict[str, Value]:
    return {key: value for key, value in fields.items() if value}


def _project(beginning: Beginning) -> str:
    spec: dict[str, Value] = {"quota": max((pool.gpus for pool in beginning.pools if pool.nodes), default=0)}
    if beginning.owners:
        spec["owners"] = list(beginning.owners)
    return _declared("Project", {"name": beginning.project}, spec)


def _job(beginning: Beginning) -> str:
    spec: dict[str, Value] = {
        "type": "training",
        "image": _IMAGE,
        "command": ["nvidia-smi"],
        "gpus": 1,
        "maxDuration": "1h",
    }
    return _declared("Job", {"name": "hello", "project": beginning.project}, spec)
