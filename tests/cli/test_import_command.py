"""`gpuctl import`: what is declared of another system's JSON, what is told, and that nothing else changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml
from commands import ROOT, Run

KEPT = ROOT / "tests" / "fuzz" / "corpus" / "import"
POOLS = ("name=dgx,nodes=dgx1-[1-3],gpus=8,memory=32Gi,cpu=80,ram=512Gi,sharing=dra",
         "name=old,nodes=o-1,gpus=4,memory=16Gi,cpu=40,ram=128Gi")  # fmt: skip


TAINTS = "spec.template.spec.tolerations of all taints: the Cluster declares them for each pool"
SECOND = "spec.template.spec.containers[1]: it is a sidecar now"


@pytest.fixture(scope="module")
def begun(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository as `init` begins it, of which tests get copies: most of its time goes into the JSON Schema."""
    top = tmp_path_factory.mktemp("begun")
    options = [word for pool in POOLS for word in ("--pool", pool)]
    assert run("init", top, "--cluster", "prod", "--project", "platform", *options).exit_code == 0
    project = top / "clusters" / "prod" / "projects" / "platform" / "project.yaml"
    project.write_text(project.read_text().replace("quota: 8", "quota: 0"))
    return top


@pytest.fixture
def folder(begun: Path, tmp_path: Path) -> Path:
    """A cluster of two pools whose first project has no quota."""
    return Path(copytree(begun, tmp_path, dirs_exist_ok=True)) / "clusters" / "prod"


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
        "projects/vision/jobs/two.yaml",
    }  # fmt: skip
    assert declared(folder, "projects/vision/project.yaml") == {"quota": 8}
    assert declared(folder, "projects/vision/jobs/gang.yaml") == {
        "image": "registry.example.com/train:1", "imagePullPolicy": "IfNotPresent", "gpus": 2, "workers": 4,
        "resources": {"cpu": 4, "memory": "32Gi"}, "retries": 6, "suspend": True, "labels": {"a": "b"},
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
        f"not said: job vision/train: {TAINTS}",
        f"not said: job vision/two: that the job waits for {SECOND}, and ends with the job's own container",
        "not said: job vision/train: volume h at /mnt",
        "not said: job vision/train: spec.template.spec.containers[0].env NODE",
        "not declared: job vision/nightly-1: a CronJob makes it anew each time: a declared job runs once",
        "not declared: job vision/done: it has ended",
    ):
        assert f"{said}\n" in result.stderr
    assert (
        "# not said: spec.template.spec.tolerations of all taints"
        in (folder / "projects/vision/jobs/train.yaml").read_text()
    )
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
        {"projected": {"sources": [{"secret": "ssh", "items": {"a": "b"}}]}, "mountPath": "/some"},
        {"configMap": "settings", "mountPath": "/settings"},
        {"emptyDir": {"size": "10Gi"}, "mountPath": "/scratch"},
        {"emptyDir": {"size": "10Gi"}, "mountPath": "/free"},
    ]
    (line,) = [line for line in result.stderr.splitlines() if "volume" in line]
    assert line.endswith(": not said: job vision/a: that volume free has no limit: it gets 10Gi")


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


MAIN = {
    "name": "main", "image": "train:1", "imagePullPolicy": "Always", "command": ["python"], "args": ["train.py"],
    "workingDir": "/code", "tty": True, "stdin": True,
    "env": [{"name": "EPOCHS", "value": "90"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "t"}}}],
    "envFrom": [{"prefix": "HUB_", "secretRef": {"name": "hub"}}],
    "resources": {"limits": {"memory": "32Gi", "nvidia.com/gpu": "2"},
                  "requests": {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "2"}},
    "volumeMounts": [{"name": "d", "mountPath": "/data", "readOnly": True}, {"name": "all", "mountPath": "/etc/all"},
                     {"name": "run", "mountPath": "/run/shared"}],
    "livenessProbe": {"exec": {"command": ["alive"]}, "periodSeconds": 20, "timeoutSeconds": 2, "failureThreshold": 5},
    "lifecycle": {"preStop": {"exec": {"command": ["save"]}}},
    "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
}  # fmt: skip
FETCH = {
    "name": "fetch", "image": "tools:1", "imagePullPolicy": "IfNotPresent", "command": ["fetch"],
    "volumeMounts": [{"name": "run", "mountPath": "/out"}], "resources": {"requests": {"cpu": "6"}},
}  # fmt: skip
PROXY = {
    "name": "proxy", "image": "proxy:1", "imagePullPolicy": "IfNotPresent", "restartPolicy": "Always",
    "env": [{"name": "UP", "value": "x"}], "securityContext": {"runAsUser": 7},
    "startupProbe": {"tcpSocket": {"port": 3128}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 60},
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "restartPolicy": "Never", "terminationGracePeriodSeconds": 120, "dnsPolicy": "Default",
    "imagePullSecrets": [{"name": "registry"}], "hostAliases": [{"ip": "10.0.0.7", "hostnames": ["data"]}],
    "securityContext": {"runAsUser": 1000, "fsGroup": 2000, "supplementalGroups": [5]},
    "initContainers": [PROXY, FETCH], "containers": [MAIN],
    "volumes": [
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "all", "projected": {"sources": [
            {"secret": {"name": "hub", "items": [{"key": "t", "path": "hub/t"}]}}, {"configMap": {"name": "settings"}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}},
        {"name": "run", "emptyDir": {"sizeLimit": "1Gi"}},
    ],
}  # fmt: skip


def imported_pod(run: Run, folder: Path, tmp_path: Path, kind: str, pod: Any, **spec: Any) -> tuple[Any, list[str]]:
    """The pod of what is declared of an object with that pod, as it is rendered; and what was told."""
    meta = {"name": "a", "namespace": "vision"}
    template = {"metadata": {"labels": {"app": "train"}}, "spec": pod}
    body = {"kind": kind, "metadata": meta, "spec": {**spec, "template": template}}
    quota = {"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"requests.nvidia.com/gpu": "8"}}}
    (tmp_path / "x.json").write_text(json.dumps([quota, body]))
    result = run("import", "kubectl", tmp_path / "x.json", "--path", folder)
    assert result.exit_code == 0, result.output
    told = [line for line in result.stderr.splitlines() if "not said: " in line or line.startswith("not ")]
    rendered = yaml.safe_load_all(run("render", folder).stdout)
    (made,) = [each for each in rendered if each["kind"] == kind and each["metadata"]["namespace"] == "gpu-vision"]
    return made["spec"]["template"], told


def said(theirs: Any, ours: Any) -> bool:
    """Whether all that one says is said by the other: entries of lists in order, others may stand between."""
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and all(said(value, ours.get(key)) for key, value in theirs.items())
    if isinstance(theirs, list):
        rest = iter(ours or [])
        return all(any(said(one, other) for other in rest) for one in theirs)
    return bool(theirs == ours)


def test_a_job_of_kubernetes_becomes_one_without_a_loss(run: Run, folder: Path, tmp_path: Path) -> None:
    selected = {**WHOLE, "nodeSelector": {"gpuctl.dev/pool": "old"}}
    made, told = imported_pod(run, folder, tmp_path, "Job", selected, backoffLimit=3)
    assert told == []
    assert made["metadata"]["labels"]["app"] == "train"
    pod = made["spec"]
    names = {each["name"]: f"volume-{at}" for at, each in enumerate(WHOLE["volumes"])}
    wanted = json.loads(json.dumps(WHOLE))
    for each in (*wanted["containers"], *wanted["initContainers"], {"volumeMounts": wanted["volumes"]}):
        for mount in each.get("volumeMounts", ()):
            mount["name"] = names[mount["name"]]
    assert said(wanted, pod), pod
    proxy, fetch = pod["initContainers"]
    assert "readOnlyRootFilesystem" not in proxy["securityContext"]
    assert "capabilities" not in fetch.get("securityContext", {})


@pytest.mark.parametrize(
    ("limits", "retries", "lost"),
    [
        ({"backoffLimitPerIndex": 3, "maxFailedIndexes": 0, "backoffLimit": 2**31 - 1}, (None, 3), []),
        ({"backoffLimitPerIndex": 3, "maxFailedIndexes": 1, "backoffLimit": 5}, (5, 3), ["spec.maxFailedIndexes"]),
        ({"backoffLimit": 5}, (5, None), []),
    ],
)
def test_a_gangs_retries_are_those_of_all_pods_and_of_each(  # noqa: PLR0917 - the fixtures
    run: Run, folder: Path, tmp_path: Path, limits: Any, retries: tuple[int | None, int | None], lost: list[str]
) -> None:
    gang = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    _, told = imported_pod(run, folder, tmp_path, "Job", WHOLE, **gang, **limits)
    spec = declared(folder, "projects/vision/jobs/a.yaml")
    assert (spec.get("retries"), spec.get("retriesPerWorker")) == retries
    assert [each.rpartition(": ")[2] for each in told] == lost


def test_a_deployment_becomes_a_service(run: Run, folder: Path, tmp_path: Path) -> None:
    main = {
        "name": "web", "image": "chat:1", "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
    }  # fmt: skip
    pod = {"restartPolicy": "Always", "containers": [main]}
    made, told = imported_pod(
        run, folder, tmp_path, "Deployment", pod, replicas=3, selector={"matchLabels": {"a": "b"}}
    )
    assert told == []
    assert made["spec"]["containers"][0]["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    spec = declared(folder, "projects/vision/jobs/a.yaml")
    assert (spec["type"], spec["workers"], spec["expose"]) == ("inference", 3, [{"port": 8000, "via": "service"}])


def test_a_deployment_that_is_scaled_to_none_is_suspended(run: Run, folder: Path, tmp_path: Path) -> None:
    """It became a service of one worker, which would start."""
    pod = {"containers": [{"name": "main", "image": "x"}]}
    _, told = imported_pod(run, folder, tmp_path, "Deployment", pod, replicas=0)
    spec = declared(folder, "projects/vision/jobs/a.yaml")
    assert (told, spec["suspend"], "workers" in spec) == ([], True, False)


LOST: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"hostNetwork": True}, {}, "spec.template.spec.hostNetwork"),
    ({"tolerations": [{"key": "x", "operator": "Exists"}]}, {}, "spec.template.spec.tolerations of x"),
    ({"terminationGracePeriodSeconds": 900}, {}, "spec.template.spec.terminationGracePeriodSeconds 900"),
    ({"dnsPolicy": "None"}, {}, "spec.template.spec.dnsPolicy None"),
    ({"serviceAccountName": "me"}, {}, "spec.template.spec.serviceAccountName"),
    ({"securityContext": {"runAsNonRoot": True}}, {}, "spec.template.spec.securityContext.runAsNonRoot"),
    ({"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/p"}}]},
     {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "volume v at /v"),
    ({"volumes": [{"name": "v", "csi": {"driver": "d"}}]},
     {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "volume v at /v"),
    ({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
     {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "volume v at /v"),
    ({}, {"envFrom": [{"secretRef": {"name": "hub"}}]},
     "spec.template.spec.containers[0].envFrom of hub, without a prefix"),
    ({}, {"securityContext": {"privileged": True}}, "spec.template.spec.containers[0].securityContext.privileged"),
    ({}, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
     "spec.template.spec.containers[0].securityContext.capabilities.add of SYS_ADMIN"),
    ({}, {"livenessProbe": {"grpc": {"port": 1}}}, "spec.template.spec.containers[0].livenessProbe"),
    ({}, {"lifecycle": {"postStart": {"exec": {"command": ["x"]}}}},
     "spec.template.spec.containers[0].lifecycle.postStart"),
    ({"initContainers": [{"name": "i", "image": "y", "restartPolicy": "Always"}], "securityContext": {}},
     {"securityContext": {"runAsUser": 5}}, "spec.template.spec.initContainers[0].securityContext without runAsUser"),
]  # fmt: skip


@pytest.mark.parametrize("lost", LOST, ids=[told for *_, told in LOST])
def test_what_a_job_can_not_have_is_told_at_its_place(
    run: Run, folder: Path, tmp_path: Path, lost: tuple[dict[str, Any], dict[str, Any], str]
) -> None:
    pod, container, told = lost
    whole = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", **container}], **pod}
    _, lines = imported_pod(run, folder, tmp_path, "Job", whole)
    assert len(lines) == 1
    place, _, said = lines[0].partition(": not said: job vision/a: ")
    assert said.startswith(told)
    file, line, column = place.rsplit(":", 2)
    text = Path(file).read_text().splitlines()[int(line) - 1][int(column) - 1 :]
    # An entry of a list begins with a brace, a field with its name; what has no field, with the job itself.
    field = re.match(r"[\w.\[\]]*", told)[0] if told.startswith("spec.") else ""  # type: ignore[index]
    assert text.startswith(("{", f'"{field.rpartition(".")[2]}"')), (text, told)
    assert text.startswith('"') or field.endswith(("]", "securityContext")) or not field  # some have no such field


def a_job(name: str, namespace: str, env: Any = (), **labels: str) -> dict[str, Any]:
    container = {"name": "main", "image": "train:1", "env": [{"name": key, "value": text} for key, text in env]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def list_of(path: Path, *objects: Any) -> Path:
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    return path


def test_a_job_of_another_namespace_is_not_declared_for_a_project(run: Run, folder: Path, tmp_path: Path) -> None:
    """Its label is the tenant's to write; in the project it would have the Secrets and claims of another team."""
    theirs, forged = a_job("train", "runai-vision"), a_job("forged", "runai-mallory", project="vision")
    beside = a_job("beside", "gpu-lab", **{"runai/queue": "vision"})
    file = list_of(tmp_path / "list.json", theirs, forged, beside, a_job("own", "runai-mallory"))
    result = run("import", "runai", file, "--path", folder)
    assert result.exit_code == 0, result.output
    jobs = {path.name for path in (folder / "projects" / "vision" / "jobs").iterdir()}
    assert jobs == {"train.yaml"}
    assert (folder / "projects" / "mallory" / "jobs" / "own.yaml").exists()
    for said in (
        "not declared: job vision/forged: it stands in namespace runai-mallory, which is that of project mallory",
        "not declared: job vision/beside: it stands in namespace gpu-lab, which is that of project lab",
    ):
        assert f"{said}\n" in result.stderr


def test_of_several_namespaces_of_one_project_its_own_is_declared(run: Run, folder: Path, tmp_path: Path) -> None:
    file = list_of(
        tmp_path / "list.json",
        *(a_job("train", "gpu-vision"), a_job("other", "vision"), a_job("third", "runai-vision")),
        *(a_job("x", "one", **{"runai/queue": "nlp"}), a_job("y", "two", **{"runai/queue": "nlp"})),
    )
    results = [run("import", way, file, "--path", folder, "--dry-run") for way in ("kubectl", "runai")]
    for result in results:
        assert result.exit_code == 0, result.output
        assert "jobs/train.yaml" in result.stdout
        assert not {"jobs/other.yaml", "jobs/third.yaml"} & set(re.findall(r"jobs/\w+\.yaml", result.stdout))
        assert "job vision/other: project vision would have several namespaces: gpu-vision, runai-vision" in (
            result.stderr
        )
    assert "not declared: job nlp/x: project nlp would have several namespaces: one, two\n" in results[1].stderr


def test_what_looks_like_a_secret_is_not_written_into_git(run: Run, folder: Path, tmp_path: Path) -> None:
    secrets = {
        "HF_TOKEN": "hf_kept", "aws_secret_access_key": "kept", "PASSWORD": "kept", "WANDB_API_KEY": "kept",
        "DB": "postgres://me:kept@db/x", "PEM": "-----BEGIN RSA PRIVATE KEY-----kept",
    }  # fmt: skip
    plain = {"TOKENIZERS_PARALLELISM": "false", "URL": "https://example.com/a:b", "TOKEN": "$(OTHER)", "KEY": "a"}
    file = list_of(tmp_path / "list.json", a_job("train", "vision", [*secrets.items(), *plain.items()]))
    result = run("import", "kubectl", file, "--path", folder)
    assert result.exit_code == 0, result.output
    assert declared(folder, "projects/vision/jobs/train.yaml")["env"] == plain
    assert "kept" not in result.output + (folder / "projects/vision/jobs/train.yaml").read_text()
    assert all(f"env {name}: it looks like a secret" in result.stderr for name in secrets)


def test_a_queue_of_kai_keeps_its_priority_and_a_quota_without_end_is_told(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    def queue(name: str, quota: int, **spec: object) -> dict[str, object]:
        resources = {"gpu": {"quota": quota, "limit": -1, "overQuotaWeight": 1}}
        return {"kind": "Queue", "metadata": {"name": name}, "spec": {"resources": resources, **spec}}

    queues = [
        queue("research", -1, priority=120),
        queue("first", 2, parentQueue="research", priority=110),
        queue("usual", 2, parentQueue="research", priority=100),
        queue("last", 2, parentQueue="research", priority=50),
        queue("any", -1, parentQueue="research"),
    ]
    file = tmp_path / "queues.json"
    file.write_text(json.dumps({"items": queues}))
    result = run("import", "runai", file, "--path", folder)
    assert result.exit_code == 0, result.output
    found = {name: declared(folder, f"projects/{name}/project.yaml") for name in ("first", "usual", "last", "any")}
    assert {name: spec.get("priority", 0) for name, spec in found.items()} == {
        "first": 10, "usual": 0, "last": -50, "any": 0,
    }  # fmt: skip
    told = [line.partition("not said: ")[2] for line in result.stderr.splitlines() if "not said: " in line]
    assert told == ["department research: spec.priority", "project any: its quota, which has no end"]
