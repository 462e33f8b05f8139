"""A job in team-a cannot mount or reach team-b's claims, secrets or namespace through anything a declaration may say.

For every field of a job there is an attempt: it is no declaration, or what comes of it lies in team-a's namespace and
names nothing elsewhere. On a real API server those run under the installed account and the guard, and it is the server
that says what their pods, and the account these run as, may have of team-b.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args
from urllib.error import HTTPError

import pytest
from attempt import THEIRS, Attempt
from attempts import HARMLESS, REFUSED, TAKEN
from controlplane.server import ControlPlane
from pydantic import BaseModel
from unattended import Site, at_last

from gpuctl.app.other_engine import waiting_manifests
from gpuctl.compile import compile_tree
from gpuctl.compile.spec_v1 import JobV1
from gpuctl.diag.diagnostic import Severity
from gpuctl.k8s import names
from gpuctl.model.manifest import Manifest
from gpuctl.model.source import SourceFile, SourceTree

OURS = "gpu-isle-team-a"
HEAD = "apiVersion: gpuctl.dev/v1\nkind: "
POOL = (
    "{name: p, selector: {matchLabels: {site: isle}}, nodes: [isle-1], gpusPerNode: 8, gpuMemory: 32Gi, "
    "gpuProduct: Tesla, resourcesPerNode: {cpu: 80, memory: 512Gi}}"
)
FILES = {
    "c/cluster.yaml": f"{HEAD}Cluster\nmetadata: {{name: isle}}\nspec:\n  nodePools: [{POOL}]\n"
    "  namespacePrefix: gpu-isle-\n  gitSync: {image: git-sync}\n  ingress: {host: gpus.example.com}\n"
    "  security: {hostPaths: [/mnt/data], nfs: [{server: files, path: /common}], exceptions: {team-a: privileged}}\n",
    "c/projects/team-a/project.yaml": f"{HEAD}Project\nmetadata: {{name: team-a}}\n"
    "spec: {quota: 4, access: [{group: people-of-a, role: edit}]}\n",
    "c/projects/team-b/project.yaml": f"{HEAD}Project\nmetadata: {{name: team-b}}\n"
    "spec: {quota: 4, access: [{group: people-of-b, role: edit}]}\n",
    "c/projects/team-b/train.yaml": f"{HEAD}Job\nmetadata: {{name: train, project: team-b}}\n"
    "spec: {image: x, gpus: 1, env: {T: {secret: hub, key: token}}, volumes: [{claim: data, mountPath: /data}]}\n",
}
FILES |= {
    "c/template.yaml": f"{HEAD}Template\nmetadata: {{name: common}}\n"
    "spec: {parameters: {image: {}}, job: {args: [{$parameter: image}]}}\n",
    "c/projects/team-b/template.yaml": f"{HEAD}Template\nmetadata: {{name: theirs, project: team-b}}\n"
    "spec: {parameters: {}, job: {gpus: 1}}\n",
}
CORE = f"/api/v1/namespaces/{THEIRS}"
SECRETS = ("secrets", "configmaps", "persistentvolumeclaims", "pods", "pods/log", "pods/exec", "services")
REVIEW = {"apiVersion": "authorization.k8s.io/v1"}

POD = frozenset({
    "affinity", "automountServiceAccountToken", "containers", "priorityClassName", "restartPolicy", "subdomain",
    "tolerations", "volumes", "imagePullSecrets", "hostAliases", "dnsPolicy",
    "terminationGracePeriodSeconds", "initContainers",
})  # fmt: skip
CONTAINER = frozenset({
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "name", "ports", "resources", "volumeMounts",
    "terminationMessagePolicy", "workingDir", "stdin", "tty", "lifecycle", "restartPolicy",
})  # fmt: skip
OTHERS = {
    "PersistentVolumeClaim": frozenset({"accessModes", "resources", "storageClassName"}),
    "Service": frozenset({"selector", "ports", "clusterIP", "publishNotReadyAddresses"}),
    "Ingress": frozenset({"rules"}),
}
"""What is in an object's spec, all of it: what names something does so in the object's own namespace."""


def files_with(attempt: Attempt) -> dict[str, str]:
    return FILES | {"c/projects/team-a/jobs/attempt.yaml": attempt.text}


def manifests(files: Mapping[str, str]) -> dict[str, Manifest]:
    tree = SourceTree(cluster_dir="c", files={path: SourceFile(content=text.encode()) for path, text in files.items()})
    compiled = compile_tree(tree)
    assert compiled.declared is not None, compiled.diagnostics
    return {str(item.ref): item for item in waiting_manifests(compiled.declared).items}


def fields_of(model: type[BaseModel], at: str = "") -> Iterator[str]:
    """Every field, by its path in the form."""
    for name, field in model.model_fields.items():
        path = f"{at}.{field.alias or name}".removeprefix(".")
        yield path
        for part in _models(field.annotation):
            yield from fields_of(part, path)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def test_there_is_an_attempt_for_every_field_that_names_something() -> None:
    fields = set(fields_of(JobV1))
    tried = {attempt.field for attempt in (*REFUSED.values(), *TAKEN.values())}
    assert fields - tried == HARMLESS
    assert tried <= fields


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_no_declaration(case: str) -> None:
    files = {path: SourceFile(content=text.encode()) for path, text in files_with(REFUSED[case]).items()}
    found = compile_tree(SourceTree(cluster_dir="c", files=files)).diagnostics
    assert "c/projects/team-a/jobs/attempt.yaml" in {x.span.file for x in found if x.severity is Severity.ERROR}


@pytest.mark.parametrize("job", TAKEN)
def test_what_comes_of_it_is_team_as(job: str) -> None:
    before, after = manifests(FILES), manifests(files_with(TAKEN[job]))
    assert {key: after[key] for key in before} == before
    made = [item for key, item in after.items() if key not in before]
    assert made
    for item in made:
        assert (item.ref.namespace, item.project) == (OURS, "team-a")
        assert item.body["metadata"]["namespace"] == OURS
        spec = item.body["spec"]
        if item.ref.kind in OTHERS:
            assert set(spec) <= OTHERS[item.ref.kind]
        else:
            assert item.ref.kind in {"Job", "Deployment"}
            assert_confined(spec["template"])
    paths = [path["path"] for item in made if item.ref.kind == "Ingress" for path in paths_of(item.body)]
    assert all(path.startswith(f"/team-a/{job}") for path in paths)


def paths_of(ingress: Mapping[str, Any]) -> list[Any]:
    return [path for rule in ingress["spec"]["rules"] for path in rule["http"]["paths"]]


def assert_confined(template: Mapping[str, Any]) -> None:
    """A pod template has nothing but what a run needs, and nothing of the node."""
    spec = template["spec"]
    assert set(spec) <= POD
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert set(container) <= CONTAINER
    assert_sources(spec)
    for first in spec.get("initContainers", ()):
        assert (first["image"] == "git-sync") == (first["name"] == "git-sync")
        own = CONTAINER - ({"command", "args"} if first["name"] == "git-sync" else set())
        assert set(first) <= own - {"lifecycle"} | {"securityContext"}
        assert first["env"][0] == {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
        assert all("nvidia.com" not in name for amounts in first.get("resources", {}).values() for name in amounts)
        assert_sources({"containers": [first]})


def assert_sources(spec: Mapping[str, Any]) -> None:
    """Volumes are objects of the namespace, folders of the pod's own, the folder for data and the share; variables are
    text, the pod's labels, and keys of objects of the namespace, in a whole object after a prefix."""
    for volume in spec.get("volumes", ()):
        assert set(volume) - {"name"} <= {
            "persistentVolumeClaim", "emptyDir", "hostPath", "nfs", "secret", "configMap", "projected",
        }  # fmt: skip
        assert all(set(each) <= {"secret", "downwardAPI"} for each in volume.get("projected", {}).get("sources", ()))
        assert volume.get("nfs") in (None, {"server": "files", "path": "/common"})
        assert set(volume.get("secret", {})) <= {"secretName", "defaultMode"}
        assert set(volume.get("configMap", {})) <= {"name", "defaultMode"}
        assert volume.get("hostPath", {}).get("path", "/mnt/data") == "/mnt/data"
        assert "/" not in volume.get("persistentVolumeClaim", {}).get("claimName", "")
    for source in spec["containers"][0].get("envFrom", ()):
        assert source.pop("prefix") in {"A_", "B_"}
        assert [set(named) for named in source.values()] == [{"name"}]
    for variable in spec["containers"][0].get("env", ()):
        source = variable.get("valueFrom", {})
        assert set(source) <= {"secretKeyRef", "fieldRef"}
        assert set(source.get("secretKeyRef", {})) <= {"name", "key"}
        assert source.get("fieldRef", {}).get("fieldPath", "metadata.labels").startswith("metadata.labels")


@pytest.fixture(scope="module")
def isle(plane_with_gpuctl: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All that is taken runs, as far as it can; team-b's job has its claim and its Secret."""
    site = Site(plane_with_gpuctl, tmp_path_factory.mktemp("isle"), "isle")
    site.files = {}
    site.plane.call("POST", "/api/v1/persistentvolumes", volume())
    site.commit(FILES, {f"c/projects/team-a/jobs/{job}.yaml": TAKEN[job].text for job in TAKEN})
    site.start()
    try:
        at_last(lambda: there(site, CORE), site.logs)
        site.plane.call("POST", f"{CORE}/secrets", {"metadata": {"name": "hub"}, "stringData": {"token": "theirs"}})
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        spec = {**asked, "storageClassName": "isle-b"}
        site.plane.call("POST", f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": spec})
        site.await_pods("train", project="team-b")
        at_last(lambda: jobs_of(pods(site)) == set(TAKEN), lambda: (jobs_of(pods(site)), site.logs()))
        yield site
    finally:
        site.leave()
        site.plane.call("DELETE", "/api/v1/persistentvolumes/isle-b")


def volume() -> Mapping[str, Any]:
    """Kept for team-b's claim, as its administrator does."""
    claim = {"namespace": THEIRS, "name": "data"}
    amounts = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    spec = {**amounts, "storageClassName": "isle-b", "claimRef": claim, "hostPath": {"path": "/none"}}
    return {"metadata": {"name": "isle-b"}, "spec": spec}


def there(site: Site, path: str) -> bool:
    try:
        return bool(site.plane.call("GET", path))
    except HTTPError as error:
        error.close()
        return False


def pods(site: Site, namespace: str = OURS) -> list[Any]:
    found: list[Any] = site.plane.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return found


def jobs_of(found: list[Any]) -> set[str]:
    return {pod["metadata"]["labels"][names.JOB_LABEL] for pod in found}


def test_no_pod_has_anything_of_the_node_or_of_an_account(isle: Site) -> None:
    for pod in pods(isle):
        spec = pod["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert {first["name"] for first in spec.get("initContainers", ())} <= {"git-sync", "x"}
        assert spec.get("imagePullSecrets", []) in ([], [{"name": "hub"}])
        assert spec["automountServiceAccountToken"] is False
        assert spec.get("serviceAccountName", "default") == "default"
        assert spec.get("securityContext", {}) == {}
        (container,) = spec["containers"]
        assert "securityContext" not in container
        assert_sources(spec)


def test_team_bs_claim_and_volume_are_team_bs(isle: Site) -> None:
    def refusals(job: str) -> list[str]:
        found = [pod for pod in pods(isle) if pod["metadata"]["labels"][names.JOB_LABEL] == job]
        return [each.get("message", "") for pod in found for each in pod["status"].get("conditions", [])]

    at_last(lambda: any('persistentvolumeclaim "data" not found' in told for told in refusals("claim")))
    at_last(lambda: any("unbound immediate PersistentVolumeClaims" in told for told in refusals("class")))
    bound = isle.plane.call("GET", "/api/v1/persistentvolumes/isle-b")
    claim = isle.plane.call("GET", f"{CORE}/persistentvolumeclaims/data")
    assert bound["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert {"claim", "class"}.isdisjoint(isle.pods("team-a"))


def test_the_account_that_pods_run_as_may_do_nothing_in_team_bs_namespace(isle: Site) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    account = f"/api/v1/namespaces/{OURS}/serviceaccounts/default/token"
    token = isle.plane.call("POST", account, request)["status"]["token"]
    for namespace in (THEIRS, names.SYSTEM_NAMESPACE, OURS):
        rules = {**REVIEW, "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
        told = isle.plane.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", rules, token=token)
        may = {resource for rule in told["status"]["resourceRules"] for resource in rule["resources"]}
        assert {each for each in may if not each.startswith("selfsubject")} == set()
    for what in ("secrets/hub", "secrets", "persistentvolumeclaims/data", "pods", ""):
        with pytest.raises(HTTPError) as refused:
            isle.plane.call("GET", f"{CORE}/{what}".rstrip("/"), token=token)
        refused.value.close()
        assert refused.value.code == 403


def test_the_people_of_team_a_may_do_nothing_there_either(isle: Site) -> None:
    """What `access` grants is in the project's own namespace."""

    def allowed(namespace: str, verb: str, resource: str) -> bool:
        kind, _, sub = resource.partition("/")
        what = {"namespace": namespace, "verb": verb, "resource": kind, "subresource": sub}
        spec = {"user": "ann", "groups": ["people-of-a", "system:authenticated"], "resourceAttributes": what}
        body = {**REVIEW, "kind": "SubjectAccessReview", "spec": spec}
        told = isle.plane.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return bool(told["status"]["allowed"])

    at_last(lambda: allowed(OURS, "get", "secrets"))
    for resource in SECRETS:
        for verb in ("get", "list", "watch", "create", "patch", "delete"):
            assert not allowed(THEIRS, verb, resource)
            assert not allowed(names.SYSTEM_NAMESPACE, verb, resource)


def test_no_request_of_a_pods_namespace_leaves_it(isle: Site) -> None:
    """Services of team-a have no addresses but of its own pods, and its Ingresses no path of team-b's."""
    for service in isle.plane.call("GET", f"/api/v1/namespaces/{OURS}/services")["items"]:
        spec = service["spec"]
        assert (spec["type"], spec["selector"][names.PROJECT_LABEL]) == ("ClusterIP", "team-a")
        assert not {"externalIPs", "externalName"} & set(spec)
    ingresses = isle.plane.call("GET", f"/apis/networking.k8s.io/v1/namespaces/{OURS}/ingresses")["items"]
    assert ingresses
    assert all(path["path"].startswith("/team-a/") for ingress in ingresses for path in paths_of(ingress))
