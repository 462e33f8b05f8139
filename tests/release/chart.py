"""The Helm chart as it is committed, and the options of an installation as its values."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from gpuctl.cli.install import install
from gpuctl.cli.install_files import choices
from gpuctl.install.chart import Value, values_of
from gpuctl.model.state import Body
from release.tools import HOW, TOOLS

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "gpuctl"
VALUES = values_of(choices(install))
REPOSITORIES = (
    "https://git.example.com/gpus.git", "https://git.example.com:8443/gpus.git", "git@git.example.com:gpus.git",
    "ssh://git@git.example.com/gpus.git", "ssh://git@[::1]:2222/gpus.git",
)  # fmt: skip
_SAMPLES: Mapping[str, Sequence[Any]] = {
    "repo": REPOSITORIES,
    "path": ("clusters/prod", "cl\u00fcster/{{x}}"),
    "branch": ("main", 'a"b'),
    "allowed_signers": ('ann@x ssh-ed25519 AAAA\nbob@x namespaces="git" ssh-ed25519 <&>\n',),
    "openpgp_keys": ("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nx\n",),
    "image": ("registry.example.com:5000/gpuctl:1@sha256:" + "0" * 64,),
    "namespace_prefix": ("team-", ""),
    "controllers": (("aks-service", "gke:x"), ()),
    "monitoring_namespace": ("prometheus", ""),
    "proxy_namespace": ("oauth2", ""),
    "utilisation_prometheus": ("http://prometheus.monitoring:9090", "https://[::1]/prom"),
    "utilisation_match": ('job="dcgm-exporter",cluster=~"a|b"',),
    "utilisation_exporter": ("http://dcgm.gpu-operator:9400/metrics",),
    "roles": (("view", "edit", "a:b"),),
}


def tool(name: str) -> str:
    """The path of `helm` or `kustomize`. Not built: the test skips, in CI it fails."""
    folder = TOOLS.find()
    if folder is None:
        missing = f"no Helm and Kustomize for the tests: {HOW}"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return str(folder / name)


def others(value: Value) -> Sequence[Any]:
    """What a value may be beside its default."""
    choice = value.choice
    if value.field in _SAMPLES:
        return _SAMPLES[value.field]
    if bool in value.types:
        return (True,)
    if int in value.types:
        return (choice.least or 1, min(choice.most or 1_234_567, 1_234_567))
    if choice.among:
        return choice.among
    return ("x-1",) if str in value.types else (("x-2", "x-1"),)


def some_options() -> Iterator[dict[str, Any]]:
    """Options of installations: each by itself, then many at once."""
    needed = {"repo": REPOSITORIES[0], "path": "clusters/prod"}
    yield needed
    for value in VALUES:
        yield from ({**needed, value.field: other} for other in others(value))
    random = Random(7)
    for _ in range(24):
        given = {value.field: random.choice(others(value)) for value in VALUES if random.random() < 0.6}
        yield {**needed, **given}


def templated(options: Mapping[str, Any], folder: Path, *more: str) -> list[Body]:
    """What `helm template` makes of the chart with these options as values."""
    done = template(options, folder, *more)
    assert done.returncode == 0, done.stderr
    return [body for body in yaml.load_all(done.stdout, yaml.CSafeLoader) if body]  # ten times as fast


def template(options: Mapping[str, Any], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """`helm template`, as it ends."""
    names = {value.field: value.name for value in VALUES}
    file = folder / "values.json"
    file.write_text(json.dumps({names.get(field, field): given for field, given in options.items()}))
    command = [tool("helm"), "template", "gpuctl", str(CHART), "--values", str(file), *more]
    homes = {name: str(folder) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | homes)
