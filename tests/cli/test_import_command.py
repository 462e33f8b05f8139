"""`gpuctl import`: what is declared of another system's JSON, what is told, and that nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import ROOT, Run

KEPT = ROOT / "tests" / "fuzz" / "corpus" / "import"
POOLS = ("name=dgx,nodes=dgx1-[1-3],gpus=8,memory=32Gi,cpu=80,ram=512Gi,sharing=dra",
         "name=old,nodes=o-1,gpus=4,memory=16Gi,cpu=40,ram=128Gi")  # fmt: skip


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    """A cluster of two pools whose first project has no quota."""
    options = [word for pool in POOLS for word in ("--pool", pool)]
    assert run("init", str(tmp_path), "--cluster", "prod", "--project", "platform", *options).exit_code == 0
    project = tmp_path / "clusters" / "prod" / "projects" / "platform" / "project.yaml"
    project.write_text(project.read_text().replace("quota: 8", "quota: 0"))
    return tmp_path / "clusters" / "prod"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.yaml")}


def declared(folder: Path, path: str) -> Any:
    return yaml.safe_load((folder / path).read_text())["spec"]


def test_namespaces_quotas_and_jobs_of_kubernetes(run: Run, folder: Path) -> None:
    before = contents(folder)
    result = run("import", "kubectl", KEPT / "kubectl.json", "--path", folder)
    assert result.exit_code == 0, result.output
    assert contents(folder).items() >= before.items()
    assert set(contents(folder)) - set(before) == {
        "projects/speech/project.yaml", "projects/speech/jobs/half.yaml", "projects/vision/project.yaml",
        "projects/vision/jobs/train.yaml", "projects/vision/jobs/gang.yaml", "projects/vision/jobs/array.yaml",
    }  # fmt: skip
    assert declared(folder, "projects/vision/project.yaml") == {"quota": 8}
    assert declared(folder, "projects/vision/jobs/gang.yaml") == {
        "image": "registry.example.com/train:1", "imagePullPolicy": "IfNotPresent", "gpus": 2, "workers": 4,
        "resources": {"cpu": 4, "memory": "32Gi"}, "retries": 6, "suspend": True,
    }  # fmt: skip
    array = declared(folder, "projects/vision/jobs/array.yaml")
    assert (array["sweep"], array["retries"]) == ({"completions": 8, "parallelism": 2}, 6)
    train = declared(folder, "projects/vision/jobs/train.yaml")
    assert train["env"] == {"EPOCHS": "90", "TOKEN": {"secret": "hub", "key": "token"}}
    assert (train["maxDuration"], train["nodePools"], train["largeShm"]) == ("24h", ["dgx"], True)
    assert train["ttlAfterFinished"] == "1h"
    assert train["volumes"] == [{"claim": "data", "mountPath": "/data"}]
    assert declared(folder, "projects/speech/jobs/half.yaml")["gpus"] == 0.5
    for said in (
        "not said: job vision/train: spec.template.spec.tolerations",
        "not said: job vision/train: volume h at /mnt",
        "not said: job vision/train: spec.template.spec.containers[0].env NODE",
        "not declared: job vision/nightly-1: a CronJob makes it anew each time: a declared job runs once",
        "not declared: job vision/done: it has ended",
    ):
        assert f"{said}\n" in result.stderr
    assert "# not said: spec.template.spec.tolerations\n" in (folder / "projects/vision/jobs/train.yaml").read_text()
    assert run("validate", folder).exit_code == 0
    assert run("fmt", "--check", folder).exit_code == 0


@pytest.mark.parametrize("name", ["projects.json", "workloads.json", "api.json", "queues.json", "kubectl.json"])
def test_a_second_time_there_is_nothing_to_declare(run: Run, folder: Path, name: str) -> None:
    kind = "kubectl" if name == "kubectl.json" else "runai"
    assert run("import", kind, KEPT / name, "--path", folder).exit_code == 0
    assert run("validate", folder).exit_code == 0
    before = contents(folder)
    result = run("import", kind, KEPT / name, "--path", folder)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "Nothing new to declare" in result.stderr
    assert contents(folder) == before


def test_what_the_api_prints_is_by_pool_where_the_cluster_has_the_pools(run: Run, folder: Path) -> None:
    (folder / "projects/platform/project.yaml").unlink()
    (folder / "projects/platform/jobs/hello.yaml").unlink()
    assert run("import", "runai", KEPT / "api.json", "--path", folder).exit_code == 0
    assert declared(folder, "projects/nlp/project.yaml") == {
        "quota": {"dgx": 2, "old": 1}, "limit": {"old": 2}, "overQuotaWeight": 2, "department": "research",
        "nodeAffinity": {"training": ["dgx", "old"], "interactive": ["dgx", "old"]}, "training": {"maxDuration": "90s"},
    }  # fmt: skip
    assert declared(folder, "departments/research.yaml") == {"quota": {"dgx": 3, "old": 1}}
    assert declared(folder, "projects/nlp/jobs/w.yaml") == {
        "type": "interactive", "image": "x:1", "gpuMemory": "4Gi", "suspend": True,
    }  # fmt: skip


def test_a_dry_run_writes_nothing(run: Run, folder: Path) -> None:
    before = contents(folder)
    result = run("import", "runai", KEPT / "projects.json", KEPT / "workloads.json", "--path", folder, "--dry-run")
    assert (result.exit_code, contents(folder)) == (0, before)
    assert f"+++ b/{folder}/projects/vision/jobs/llm.yaml" in result.stdout


def test_quotas_beyond_the_cluster_are_told_and_nothing_is_written(run: Run, folder: Path, tmp_path: Path) -> None:
    before = contents(folder)
    projects = [{"kind": "Project", "metadata": {"name": f"p-{n}"}, "spec": {"deservedGpus": 20}} for n in range(2)]
    (tmp_path / "many.json").write_text(json.dumps(projects))
    result = run("import", "runai", tmp_path / "many.json", "--path", folder)
    assert result.exit_code == 1
    assert "error GPU3009" in result.stderr
    assert "GPU6141: nothing is written: with what is imported, the declarations have 1 error more" in result.stderr
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"projects: []", "it is no JSON"),
        (b"[" * 200_000, "it is nested too deeply"),
        (b"[NaN]", "it is no JSON: NaN is no number"),
        (b"9" * 5000, "it is no JSON"),
        (b"\xff", "it is no JSON"),
        (b"[" + b"{}," * 20_001 + b"{}]", "it has more than 20000 objects"),
    ],
)
def test_what_is_no_such_json_is_told(run: Run, folder: Path, tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    result = run("import", "runai", tmp_path / "x.json", "--path", folder)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"GPU6140: {tmp_path}/x.json can't be imported: {why}" in result.stderr


def test_nothing_is_written_through_a_link(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (folder / "projects" / "vision").symlink_to(tmp_path / "outside")
    result = run("import", "kubectl", KEPT / "kubectl.json", "--path", folder)
    assert (result.exit_code, "GPU6108" in result.stderr) == (1, True), result.output
    assert not list((tmp_path / "outside").iterdir())
    assert not (folder / "projects" / "speech").exists()


def test_names_that_drive_a_terminal_are_told_escaped(run: Run, folder: Path, tmp_path: Path) -> None:
    job = {
        "kind": "TrainingWorkload",
        "metadata": {"name": "a\x1b[2J", "namespace": "runai-vision"},
        "spec": {"image": "x"},
    }
    wide = {**job, "metadata": {"name": "b", "namespace": "runai-vision"}, "spec": {"image": "x", "\u202e\n": "y"}}
    (tmp_path / "x.json").write_text(json.dumps([job, wide]))
    result = run("import", "runai", tmp_path / "x.json", "--path", folder)
    assert result.exit_code == 0
    assert "not declared: job vision/a\\x1b[2J: it has a name" in result.stderr
    assert "not said: job vision/b: \\u202e\\n\n" in result.stderr
    assert "# not said: \\u202e\\n\n" in (folder / "projects/vision/jobs/b.yaml").read_text()


@pytest.mark.parametrize("arguments", [(), ("--frob",), ("nothing.json",)])
def test_every_failure_has_the_exit_code_of_its_help(run: Run, folder: Path, arguments: tuple[str, ...]) -> None:
    """Also a mistake in the command line, and in a command of a group."""
    assert run("import", "runai", *arguments, "--path", folder).exit_code == 1


def test_what_pods_mount_and_pull_with_is_declared(run: Run, folder: Path, tmp_path: Path) -> None:
    names = ("data", "keys", "some", "settings", "scratch", "free")
    origins: tuple[dict[str, Any], ...] = (
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"secret": {"secretName": "ssh"}},
        {"secret": {"secretName": "ssh", "items": [{"key": "a", "path": "b"}]}},
        {"configMap": {"name": "settings"}},
        {"emptyDir": {"sizeLimit": "10Gi"}},
        {"emptyDir": {}},
    )
    pod = {
        "restartPolicy": "Never",
        "imagePullSecrets": [{"name": "registry"}, {"name": "registry"}],
        "containers": [
            {"name": "main", "image": "x", "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in names]}
        ],
        "volumes": [{"name": name, **origin} for name, origin in zip(names, origins, strict=True)],
    }
    job = {"kind": "Job", "metadata": {"name": "a", "namespace": "vision"}, "spec": {"template": {"spec": pod}}}
    (tmp_path / "x.json").write_text(json.dumps([{"kind": "Namespace", "metadata": {"name": "vision"}}, job]))
    result = run("import", "kubectl", tmp_path / "x.json", "--path", folder)
    assert result.exit_code == 0, result.output
    spec = yaml.safe_load((folder / "projects/vision/jobs/a.yaml").read_text())["spec"]
    assert spec["imagePullSecrets"] == ["registry"]
    assert spec["volumes"] == [
        {"claim": "data", "mountPath": "/data"},
        {"secret": "ssh", "mountPath": "/keys"},
        {"configMap": "settings", "mountPath": "/settings"},
        {"emptyDir": {"size": "10Gi"}, "mountPath": "/scratch"},
    ]
    assert [line for line in result.stderr.splitlines() if "volume" in line] == [
        "not said: job vision/a: volume some at /some",
        "not said: job vision/a: volume free at /free",
    ]


@pytest.mark.parametrize(
    ("spec", "became"),
    [
        ({"parallelism": 3}, "how many pods it takes is not said: declare a gang or a sweep by hand"),
        ({"completions": 2000}, "it has 2000 pods, and a sweep at most 1000, with names of at most 63 characters"),
        ({"parallelism": 0, "completions": 3}, "how many pods it takes is not said: declare a gang or a sweep by hand"),
        ({"completions": 3, "completionMode": "Indexed"}, {"completions": 3, "parallelism": 1}),
        ({"completions": 3, "parallelism": 9}, {"completions": 3}),
    ],
)
def test_a_job_of_several_pods_is_a_sweep_where_they_are_numbered(
    run: Run, folder: Path, tmp_path: Path, spec: dict[str, Any], became: Any
) -> None:
    pod = {"containers": [{"name": "main", "image": "x"}]}
    meta = {"name": "many", "namespace": "vision"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**spec, "template": {"spec": pod}}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}
    (tmp_path / "live.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [namespace, job]}))
    result = run("import", "kubectl", tmp_path / "live.json", "--path", folder)
    assert result.exit_code == 0, result.output
    if isinstance(became, str):
        assert f"not declared: job vision/many: {became}\n" in result.stderr
    else:
        assert declared(folder, "projects/vision/jobs/many.yaml")["sweep"] == became
