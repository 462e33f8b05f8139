"""`gpuctl install -o helm` and `-o kustomize`: what they write gives the objects that `gpuctl install` prints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import ROOT, Run
from release.chart import CHART, VALUES, some_options, template, templated, tool

from gpuctl.install import Installation, all_objects
from gpuctl.k8s.objects import ref_of
from gpuctl.model.state import Body

WATCH = ROOT / "deploy/monitoring"
BASE = ROOT / "deploy" / "kustomize" / "base"
EXAMPLE = ("--repo", "https://git.example.com/gpus.git", "--path", "clusters/prod")
OPTIONS = list(some_options())
IMAGE = "gpuctl:0.1.0"


def by_ref(bodies: list[Body]) -> dict[Any, Body]:
    found = {ref_of(body): body for body in bodies}
    assert len(found) == len(bodies)
    return found


def read(documents: str) -> list[Any]:
    """By libyaml: ten times as fast."""
    return list(yaml.load_all(documents, yaml.CSafeLoader))


def plain(bodies: tuple[Body, ...]) -> list[Body]:
    """As they are read again."""
    return [json.loads(json.dumps(body)) for body in bodies]


@pytest.mark.parametrize("options", OPTIONS, ids="-".join)
def test_the_chart_gives_what_install_prints(options: Mapping[str, Any], tmp_path: Path) -> None:
    made = by_ref(templated(options, tmp_path))
    wanted = by_ref(plain(all_objects(Installation(**{"image": IMAGE, **options}))))
    assert made.keys() == wanted.keys()
    for ref, body in wanted.items():
        assert made[ref] == body, ref


def test_every_option_of_an_installation_is_tried() -> None:
    assert {field for options in OPTIONS for field in options} == {value.field for value in VALUES}


@pytest.mark.parametrize("output", ["helm", "kustomize", "monitoring"])
def test_what_is_committed_is_what_is_written(
    output: str, run: Run, tmp_path: Path, golden: Callable[[Path, str], None]
) -> None:
    more = (*EXAMPLE, "--guard") if output == "kustomize" else ()
    assert run("install", *more, "-o", output, "--dir", tmp_path).exit_code == 0
    folder = {"helm": CHART, "kustomize": BASE, "monitoring": WATCH}[output]
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    for path, text in made.items():
        golden(folder / path, text)
    assert {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} == made.keys()


@pytest.mark.parametrize("more", [(), ("--guard",), ("--guard", "--policies", str(ROOT / "policies"))])
def test_the_base_gives_what_install_prints(more: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    assert run("install", *EXAMPLE, *more, "-o", "kustomize", "--dir", tmp_path).exit_code == 0
    built = subprocess.run([tool("kustomize"), "build", str(tmp_path)], capture_output=True, text=True, check=True)
    printed = run("install", *EXAMPLE, *more).stdout
    assert read(built.stdout) == read(printed)


def test_a_chart_has_what_was_given_as_its_defaults_and_the_policies(run: Run, tmp_path: Path) -> None:
    more = (*EXAMPLE, "--guard", "--policies", str(ROOT / "policies"), "--jobs", "500")
    assert run("install", *more, "-o", "helm", "--dir", tmp_path / "chart").exit_code == 0
    command = [tool("helm"), "template", "gpuctl", str(tmp_path / "chart")]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    printed = run("install", *more).stdout
    assert by_ref(list(filter(None, read(made)))) == by_ref(read(printed))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"repo": "/srv/gpus.git"}, "/repo"),
        ({"repo": "https://user:secret@git.example.com/gpus.git"}, "/repo"),
        ({"path": "../c"}, "/path"),
        ({"path": "/c"}, "/path"),
        ({"namespace_prefix": "GPU'"}, "/namespacePrefix"),
        ({"roles": ["a b"]}, "/roles/0"),
        ({"image": "-x"}, "/image"),
        ({"replicas": 0}, "/replicas"),
        ({"jobs": "many"}, "/jobs"),
        ({"verify": "some"}, "/verify"),
        ({"gaurd": True}, "gaurd"),
    ],
)
def test_the_schema_of_the_values_refuses_what_install_refuses(
    wrong: Mapping[str, Any], words: str, tmp_path: Path
) -> None:
    done = template({"repo": EXAMPLE[1], "path": EXAMPLE[3], **wrong}, tmp_path)
    assert done.returncode != 0
    assert "don't meet the specifications of the schema" in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize("options", [("-o", "helm"), ("-o", "kustomize", *EXAMPLE), (*EXAMPLE, "--dir", "x")])
def test_a_folder_is_for_files(options: tuple[str, ...], run: Run) -> None:
    refused = run("install", *options)
    assert (refused.exit_code, "--dir is for" in refused.stderr) == (2, True)


def test_a_folder_that_cannot_be_written_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = run("install", *EXAMPLE, "-o", "kustomize", "--dir", tmp_path / "file" / "x")
    assert (refused.exit_code, "GPU9004" in refused.stderr) == (2, True)


CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: prod}
spec:
  nodePools: [{name: dgx, nodes: [dgx-1], gpusPerNode: 8}]
  workloadKinds:
  - {apiVersion: batch.example.com/v1, kind: TrainingRun, plural: trainingruns, pods: [{name: w}], suspend: paused}
"""


@pytest.mark.parametrize("engine", ["kueue", "kai"])
def test_a_chart_and_a_base_have_the_engine_and_the_clusters_kinds(engine: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "cluster.yaml").write_text(CLUSTER)
    options = (*EXAMPLE, "--guard", "--target", engine, "--cluster", tmp_path / "c")
    printed = by_ref(read(run("install", *options).stdout))
    (deployment,) = [body for ref, body in printed.items() if ref.kind == "Deployment"]
    assert ["--target", engine] == deployment["spec"]["template"]["spec"]["containers"][0]["args"][-2:]
    of_kinds = [ref.name for ref, body in printed.items() if "trainingruns" in json.dumps(body)]
    assert {"gpuctl", "gpuctl-reader", "gpuctl-other-workloads"} <= set(of_kinds)
    for output, command in (("kustomize", ("kustomize", "build")), ("helm", ("helm", "template", "gpuctl"))):
        folder = tmp_path / output
        assert run("install", *options, "-o", output, "--dir", folder).exit_code == 0
        built = subprocess.run([tool(command[0]), *command[1:], folder], capture_output=True, text=True, check=True)
        assert by_ref(list(filter(None, read(built.stdout)))) == printed
