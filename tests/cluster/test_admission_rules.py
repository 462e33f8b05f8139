"""Policies as admission policies, on a real API server: the same verdict as the compiler's, on the same inputs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.error import HTTPError

import pytest
from controlplane.server import ControlPlane
from unattended import at_last

from gpuctl.adapters.kubernetes.paths import collection
from gpuctl.app.other_engine import waiting_manifests
from gpuctl.compile import compile_tree
from gpuctl.compile.declarations import ReadCache, collect
from gpuctl.install.guard import MAKERS
from gpuctl.install.installation import ACCOUNT
from gpuctl.install.rules import GitAlone, admission_rules
from gpuctl.k8s import kinds
from gpuctl.k8s.objects import ref_of
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body

HEAD = "apiVersion: gpuctl.dev/v1\n"
CLUSTER = (
    "kind: Cluster\nmetadata: {name: one}\nspec:\n"
    "  nodePools: [{name: p, nodes: [n1], gpusPerNode: 8, gpuMemory: 32Gi, gpuProduct: Tesla,"
    "\n    resourcesPerNode: {cpu: 8, memory: 64Gi}}]\n"
    "  gitSync: {image: elsewhere/git-sync}\n  security: {podSecurity: privileged, hostPaths: [/]}\n"
)


def spec_with(properties: str) -> str:
    return f"{{properties: {{spec: {{properties: {{{properties}}}}}}}}}"


def each_volume(properties: str) -> str:
    return spec_with(f"volumes: {{items: {{properties: {{{properties}}}}}}}")


RULES: Mapping[str, tuple[str, str]] = {
    "registries": ("", "['reg.example.com/', 'nvcr.io/'].exists(r, object.spec.image.startsWith(r))"),
    "version": ("", "object.spec.image.matches(':[^:/@]+$') && !object.spec.image.endsWith(':latest')"),
    "no-host-paths": (", except: [infra]", "object.spec.volumes.all(v, !has(v.hostPath))"),
    "scratch": ("", "object.spec.volumes.all(v, v.?hostPath.orValue('/scratch').startsWith('/scratch'))"),
    "mounts": (", projects: ['a*', in?ra]", "object.spec.volumes.all(v, v.mountPath != '/etc')"),
    "shells": ("", "size(object.spec.command) == 0 || !(object.spec.command[0] in ['sh', 'bash'])"),
    "debug": (", except: ['*b']", "!object.spec.args.exists(a, a == '--debug' || a.contains('verbose'))"),
    "folder": ("", "object.spec.?workingDir.orValue('/work').startsWith('/work')"),
    "always": ("", "object.spec.type != 'inference' || object.spec.imagePullPolicy == 'Always'"),
    "named": ("", "object.metadata.project != 'b' || object.metadata.name.startsWith('b-')"),
    "says-folder": (", projects: [says]", "object.spec.workingDir != '/root'"),
}
ALWAYS = "{properties: {spec: {required: [imagePullPolicy], properties: {imagePullPolicy: {const: Always}}}}}"
NOT_OF_B = "{properties: {project: {not: {const: b}}}}"
SCHEMAS: Mapping[str, tuple[str, str]] = {
    "registries": ("", spec_with("image: {pattern: '^(reg[.]example[.]com|nvcr[.]io)/'}")),
    "version": ("", spec_with("image: {allOf: [{pattern: ':[^:/@]+$'}, {not: {pattern: ':latest$'}}], maxLength: 60}")),
    "no-host-paths": (", except: [infra]", each_volume("hostPath: {type: 'null'}")),
    "scratch": ("", each_volume("hostPath: {pattern: ^/scratch}")),
    "mounts": (", projects: ['a*', in?ra]", each_volume("mountPath: {not: {const: /etc}}")),
    "shells": ("", spec_with("command: {not: {contains: {enum: [sh, bash]}}}")),
    "debug": (
        ", except: ['*b']",
        spec_with("args: {contains: {pattern: ^--debug$|verbose}, minContains: 0, maxContains: 0}"),
    ),
    "folder": ("", spec_with("workingDir: {oneOf: [{type: 'null'}, {pattern: ^/work, type: string}]}")),
    "always": ("", f"{{anyOf: [{spec_with('type: {not: {const: inference}}')}, {ALWAYS}]}}"),
    "named": ("", f"{{properties: {{metadata: {{anyOf: [{NOT_OF_B}, {{properties: {{name: {{pattern: ^b-}}}}}}]}}}}}}"),
    "says-folder": (
        ", projects: [says]",
        "{properties: {spec: {required: [workingDir], properties: {workingDir: {type: string, not: {const: /root}}}}}}",
    ),
}
"""Much the same as JSON Schemas."""
FORMS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "cel": RULES,
    "schema": {f"schema-{name}": rule for name, rule in SCHEMAS.items()},
}
NAMESPACES = {"cel": "gpu-", "schema": "schema-"}
IMAGE = "image: 'reg.example.com/x:1'"
HOST = "{hostPath: /data, mountPath: /data}"
SCRATCH = "{hostPath: /scratch/x, mountPath: /x}"
CLAIM = "{claim: c, mountPath: /c}"
INPUTS: tuple[tuple[str, str, str], ...] = tuple(
    (project, name, f"{{{spec}}}")
    for project, name, spec in (
        ("a", "j", IMAGE),
        *(
            ("a", "j", f"image: '{image}'")
            for image in (
                "reg.example.com/y", "reg.example.com/y:latest", "reg.example.com:5000/y:1",
                "nvcr.io/nvidia/pytorch:24.05",
                "nvcr.io.evil.net/x:1", "x", "x:latest",
                "reg.example.com/y:1@sha256:" + "0" * 64, "REG.example.com/y:2",
            )
        ),
        *(
            (project, "j", f"{IMAGE}, volumes: [{volumes}]")
            for project in ("a", "infra")
            for volumes in (
                "", CLAIM, HOST, SCRATCH, f"{CLAIM}, {HOST}", f"{SCRATCH}, {CLAIM}",
                "{newClaim: {size: 1Gi}, mountPath: /n}",
                "{claim: c, mountPath: /etc}", "{claim: c, mountPath: /etc/x, readOnly: true}",

                "{hostPath: /etc, mountPath: /etc}",
            )
        ),
        ("b", "b-j", f"{IMAGE}, volumes: [{{claim: c, mountPath: /etc}}]"),
        *(
            ("a", "j", f"{IMAGE}, {more}")
            for more in (
                "command: [sh, -c, x]", "command: [/bin/sh, -c, x]", "command: [python, sh]", "args: [sh]",
                "args: [--debug]",
                "args: [a, --verbose=2]", "command: [x, --debug]", "workingDir: /data/x", "workingDir: /root",
                "type: interactive, workingDir: /", "type: inference",
                "type: inference, imagePullPolicy: Always",
                "imagePullPolicy: Never", "largeShm: true, resources: {memory: 1Gi}", "env: {A: sh}",
                "workers: 2, gpus: 1",
                "type: inference, imagePullPolicy: Always, workingDir: /x, args: [--debug]",
            )
        ),
        ("b", "b-j", f"{IMAGE}, args: [--debug]"),
        ("b", "j", IMAGE),
        ("b", "b-j", IMAGE),
        ("says", "j", f"{IMAGE}, workingDir: /work"),
        ("says", "j", IMAGE),
    )
)  # fmt: skip


def policies(form: str) -> str:
    return "---\n".join(
        f"{HEAD}kind: Policy\nmetadata: {{name: {name}}}\nspec:\n  match: {{kind: Job{match}}}\n"
        f"  message: No\n  {form}: {'|' if form == 'cel' else ''}\n    {rule}\n"
        for name, (match, rule) in FORMS[form].items()
    )


def tree(project: str, name: str, spec: str, form: str = "") -> SourceTree:
    files = {
        "c/cluster.yaml": HEAD + CLUSTER,
        "c/p.yaml": f"{HEAD}kind: Project\nmetadata: {{name: {project}}}\nspec: {{quota: 8}}\n",
        "c/j.yaml": f"{HEAD}kind: Job\nmetadata: {{name: {name}, project: {project}}}\nspec: {spec}\n",
        **({"policies/p.yaml": policies(form)} if form else {}),
    }
    return SourceTree(cluster_dir="c", files={path: SourceFile(content=text.encode()) for path, text in files.items()})


@cache  # asked for each rule of a form, and by the tests
def broken(project: str, name: str, spec: str, form: str = "cel") -> frozenset[str]:
    """The policies that the compiler finds broken."""
    compiled = compile_tree(tree(project, name, spec, form))
    assert all(each.policy for each in compiled.diagnostics), compiled.diagnostics
    return frozenset(each.policy for each in compiled.diagnostics)


def rendered(project: str, name: str, spec: str) -> Body:
    """The workload that gpuctl makes of a job."""
    declared = compile_tree(tree(project, name, spec)).declared
    assert declared is not None
    workloads = {kinds.JOB[1], kinds.DEPLOYMENT[1]}
    (body,) = [each.body for each in waiting_manifests(declared).items if each.ref.kind in workloads]
    return body


@dataclass
class Guarded:
    """A control plane with the admission policies, one at a time in force."""

    plane: ControlPlane

    def refusal(self, body: Body, where: str) -> str:
        """The server's words; "" where it takes the object. `where`: a namespace, or a path for a dry run."""
        ref = ref_of(body)
        path = where if "/" in where else f"{collection((ref.api_version, ref.kind), where)}?dryRun=All"
        refused = self.plane.refused("POST", path, body)
        if refused is None:
            return ""
        code, said = refused
        assert code in {403, 422}, said
        return said


@pytest.fixture(scope="module")
def guarded(new_control_plane: Callable[[], ControlPlane]) -> Guarded:
    made = Guarded(new_control_plane())
    for form, prefix in NAMESPACES.items():
        for project in ("a", "b", "infra", "says"):
            labels = {"gpuctl.dev/managed": "true", "gpuctl.dev/project": project, "form": form}
            made.plane.call(
                "POST", "/api/v1/namespaces", {"metadata": {"name": f"{prefix}{project}", "labels": labels}}
            )
        for body in all_rules(form):
            path = collection((body["apiVersion"], body["kind"]), "")
            made.plane.call("POST", f"{path}?fieldValidation=Strict", body)
    left = {rule: (form, *probe) for form in FORMS for rule, probe in probes(form).items()}

    def hold() -> bool:
        for rule, probe in list(left.items()):
            if f"gpuctl-rule-{rule}" not in refusal_of(made, *probe):
                return False
            del left[rule]
        return True

    at_last(hold, lambda: left)
    return made


def all_rules(form: str) -> list[Body]:
    """Policies, and bindings that hold for the namespaces of that form alone; of CEL for those of none, too."""
    found = collect(tree("a", "j", "{image: x}", form), ReadCache()).policies
    rules = list(admission_rules(found, {}, MAKERS))
    assert not [each for each in rules if isinstance(each, GitAlone)]
    others = [{"key": "form", "operator": "NotIn", "values": [each for each in FORMS if each != form]}]
    if form != "cel":
        others.append({"key": "form", "operator": "Exists"})
    chosen = {"matchResources": {"namespaceSelector": {"matchExpressions": others}}}
    return [
        {**each, "spec": {**each["spec"], **chosen}} if "policyName" in each["spec"] else each
        for each in rules
        if not isinstance(each, GitAlone)
    ]


def probes(form: str) -> dict[str, tuple[str, str, str]]:
    """For each rule an input that breaks it alone."""
    return {rule: next(each for each in INPUTS if broken(*each, form) == {rule}) for rule in FORMS[form]}


def refusal_of(made: Guarded, form: str, project: str, name: str, spec: str) -> str:
    body, namespace = rendered(project, name, spec), f"{NAMESPACES[form]}{project}"
    return made.refusal({**body, "metadata": {**body["metadata"], "namespace": namespace}}, namespace)


@pytest.mark.parametrize("form", FORMS)
def test_there_are_fifty_inputs_and_each_rule_refuses_some_of_them(form: str) -> None:
    verdicts = [broken(*each, form) for each in INPUTS]
    assert len(INPUTS) >= 50
    assert frozenset[str]().union(*verdicts) == set(FORMS[form])
    assert sum(not each for each in verdicts) >= 15


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", INPUTS, ids=[" ".join(each) for each in INPUTS])
def test_the_servers_verdict_is_the_compilers(guarded: Guarded, given: tuple[str, str, str], form: str) -> None:
    wanted = broken(*given, form)
    said = refusal_of(guarded, form, *given)
    assert bool(said) is bool(wanted), (said, wanted)
    assert not wanted or any(f"'gpuctl-rule-{rule}'" in said for rule in wanted), (said, wanted)
    others = {rule for rule in FORMS[form] if rule not in wanted and f"'gpuctl-rule-{rule}'" in said}
    assert not others


def pod(**spec: Any) -> dict[str, Any]:
    made = {"name": "main", "image": "reg.example.com/x:1", **spec.pop("container", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "by-hand"}, "spec": {"containers": [made], **spec}}


def test_what_people_make_by_hand_is_judged_too(guarded: Guarded) -> None:
    """Without labels of gpuctl, and with containers of which gpuctl would make none."""
    assert guarded.refusal(pod(), "gpu-a") == ""
    assert "gpuctl-rule-no-host-paths" in guarded.refusal(
        pod(volumes=[{"name": "x", "emptyDir": {}}, {"name": "y", "hostPath": {"path": "/scratch"}}]), "gpu-a"
    )
    assert guarded.refusal(pod(volumes=[{"name": "y", "hostPath": {"path": "/scratch"}}]), "gpu-infra") == ""
    disguised = pod(volumes=[{"name": "shm", "hostPath": {"path": "/scratch"}}])
    assert "gpuctl-rule-no-host-paths" in guarded.refusal(disguised, "gpu-a")
    twice = [{"name": "y", "mountPath": "/y"}, {"name": "y", "mountPath": "/etc"}]
    mounted = pod(volumes=[{"name": "y", "emptyDir": {}}], container={"volumeMounts": twice})
    assert "gpuctl-rule-mounts" in guarded.refusal(mounted, "gpu-a")
    second = {"name": "init", "image": "elsewhere/x:1"}
    assert "gpuctl-rule-registries" in guarded.refusal(pod(initContainers=[second]), "gpu-a")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod(container={"image": "x:1"})["spec"]}
    labelled = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    once = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    workloads: Mapping[str, Any] = {
        "apps/v1 Deployment": labelled,
        "apps/v1 StatefulSet": {**labelled, "serviceName": "x"},
        "apps/v1 DaemonSet": labelled,
        "apps/v1 ReplicaSet": labelled,
        "v1 ReplicationController": {"selector": {"a": "b"}, "template": template},
        "batch/v1 Job": {"template": once},
        "batch/v1 CronJob": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": once}}},
    }
    for named, spec in workloads.items():
        version, kind = named.split()
        path = f"{'/apis' if '/' in version else '/api'}/{version}/namespaces/gpu-a/{kind.lower()}s?dryRun=All"
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": "by-hand"}, "spec": spec}
        assert "gpuctl-rule-registries" in guarded.refusal(body, path), kind


def test_the_checkout_that_gpuctl_adds_is_no_declaration_and_a_persons_of_its_name_is(guarded: Guarded) -> None:
    spec = f"{{{IMAGE}, type: inference, imagePullPolicy: Always, git: {{repository: 'https://x/y', path: /code}}}}"
    body = rendered("a", "j", spec)
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/gpu-a/rolebindings"
    subject = {"kind": "User", "name": ACCOUNT}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    guarded.plane.call("POST", roles, {"metadata": {"name": "gpuctl"}, "roleRef": role, "subjects": [subject]})
    path = "/apis/apps/v1/namespaces/gpu-a/deployments?dryRun=All"
    assert not broken("a", "j", spec)
    assert "gpuctl-rule-" in guarded.refusal(body, path)
    at_last(lambda: guarded.plane.refused("POST", path, body, user=ACCOUNT) is None)
    template = copy.deepcopy(body["spec"]["template"])
    template["spec"]["containers"][0]["image"] = "elsewhere/x:1"
    broken_by_gpuctl = {**body, "spec": {**body["spec"], "template": template}}
    said = guarded.plane.refused("POST", path, broken_by_gpuctl, user=ACCOUNT)
    assert said is not None, "for what gpuctl makes, a second lock"
    assert "gpuctl-rule-registries" in said[1]


def test_controllers_make_the_pods_of_a_job_that_keeps_the_rules(guarded: Guarded) -> None:
    made = {
        "metadata": {"name": "by-hand"},
        "spec": {"template": {"spec": {**pod()["spec"], "restartPolicy": "Never"}}},
    }
    guarded.plane.call("POST", "/apis/batch/v1/namespaces/gpu-b/jobs", made)
    at_last(lambda: guarded.plane.call("GET", "/api/v1/namespaces/gpu-b/pods")["items"])


def test_a_container_that_is_added_to_a_pod_is_judged(guarded: Guarded) -> None:
    guarded.plane.call("POST", "/api/v1/namespaces/gpu-a/pods", pod())
    added = {"spec": {"ephemeralContainers": [{"name": "look", "image": "elsewhere/x:1"}]}}
    path = "/api/v1/namespaces/gpu-a/pods/by-hand/ephemeralcontainers"
    with pytest.raises(HTTPError) as refused:
        guarded.plane.call("PATCH", path, added, media="application/strategic-merge-patch+json")
    with refused.value as error:
        assert "gpuctl-rule-registries" in str(json.loads(error.read())["message"])


def test_an_older_object_that_breaks_a_rule_can_be_changed_but_in_its_pods(guarded: Guarded) -> None:
    """It was there before the rule: here, before its namespace was a project's."""
    call = guarded.plane.call
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "gpu-old"}})
    path = "/apis/batch/v1/namespaces/gpu-old/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "elsewhere/x"}]}}
    call("POST", path, {"metadata": {"name": "old"}, "spec": {"suspend": True, "template": template}})
    labels = {"gpuctl.dev/managed": "true", "gpuctl.dev/project": "old"}
    media = "application/merge-patch+json"
    call("PATCH", "/api/v1/namespaces/gpu-old", {"metadata": {"labels": labels}}, media=media)
    changed = {"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}
    # The server takes it until its admission has heard of the namespace's labels.
    refused = at_last(lambda: guarded.plane.refused("PATCH", f"{path}/old?dryRun=All", changed, media=media))
    assert refused is not None
    assert refused[0] == 403
    call("PATCH", f"{path}/old", {"metadata": {"labels": {"x": "y"}}}, media=media)
    call("DELETE", f"{path}/old")
