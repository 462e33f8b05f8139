"""The container, its environment and its volumes; gangs and inference."""

from dataclasses import replace
from typing import Any

import pytest
from sample import admit, bodies, declared, job, pending, pool, rendered, run_body

from gpuctl.k8s import names
from gpuctl.model.declared import IngressSettings, PodSecurity, Security, Sharing
from gpuctl.model.job import (
    Container,
    Expose,
    ExposeVia,
    GitCheckout,
    JobType,
    RunAs,
    SecretKey,
)
from gpuctl.model.taints import Toleration
from gpuctl.model.volumes import (
    ClaimVolume,
    HostPathVolume,
    NewClaimVolume,
)


def pod_of(container: Container, **fields: Any) -> Any:
    one = job(container=container, **fields)
    return run_body(declared(one), pending(one))["spec"]["template"]["spec"]


def test_the_container_is_what_was_declared_and_nothing_else() -> None:
    spec = pod_of(Container(image="i", command=("run",), args=("--x", "1"), working_dir="/workload", retries=2))
    assert spec["containers"] == [
        {
            "name": "main",
            "image": "i",
            "imagePullPolicy": "IfNotPresent",
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "command": ["run"],
            "args": ["--x", "1"],
            "workingDir": "/workload",
            "resources": {"claims": [{"name": "gpu"}]},
        }
    ]
    assert spec["restartPolicy"] == "Never"
    assert spec["priorityClassName"] == "gpuctl-no-preempt"
    assert spec["automountServiceAccountToken"] is False
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert "nodeName" not in spec


def test_retries_and_replacement() -> None:
    one = job(container=Container(image="i", retries=3))
    spec = run_body(declared(one), pending(one))["spec"]
    assert spec["backoffLimit"] == 3
    assert spec["podReplacementPolicy"] == "Failed"


def test_environment_is_sorted_with_secrets_by_reference() -> None:
    spec = pod_of(Container(image="i", env={"TOKEN": SecretKey(secret="hub", key="token"), "EPOCHS": "90"}))
    assert spec["containers"][0]["env"] == [
        {"name": "EPOCHS", "value": "90"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
    ]


def test_volumes_and_shared_memory() -> None:
    volumes = (
        ClaimVolume(claim="test", mount_path="/a", read_only=True),
        NewClaimVolume(size_bytes=100 * 2**30, storage_class="ontap", mount_path="/b"),
        HostPathVolume(host_path="/mnt", mount_path="/c"),
        NewClaimVolume(size_bytes=2**30, storage_class=None, mount_path="/d"),
    )
    one = job(container=Container(image="i", volumes=volumes, large_shm=True))
    manifests = bodies(rendered(declared(one), pending(one)))
    spec = manifests["Job a-1-g-0badcafe"]["spec"]["template"]["spec"]
    assert spec["volumes"] == [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "test"}},
        {"name": "volume-1", "persistentVolumeClaim": {"claimName": "pvc-a-1-g-0"}},
        {"name": "volume-2", "hostPath": {"path": "/mnt"}},
        {"name": "volume-3", "persistentVolumeClaim": {"claimName": "pvc-a-1-g-1"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = spec["containers"][0]["volumeMounts"]
    assert mounts[0] == {"name": "volume-0", "mountPath": "/a", "readOnly": True}
    assert mounts[-1] == {"name": "shm", "mountPath": "/dev/shm"}
    claim = manifests["PersistentVolumeClaim pvc-a-1-g-0"]["spec"]
    assert claim == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "100Gi"}},
        "storageClassName": "ontap",
    }
    assert "storageClassName" not in manifests["PersistentVolumeClaim pvc-a-1-g-1"]["spec"]


@pytest.mark.parametrize("level", PodSecurity)
def test_pods_say_of_themselves_what_their_namespaces_level_wants_said(level: PodSecurity) -> None:
    one = job(container=Container(image="i"))
    made = run_body(declared(one, security=Security(pod_security=level)), pending(one))
    spec = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    if level is PodSecurity.RESTRICTED:
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    else:
        assert "securityContext" not in {*spec, *container}


def test_a_gangs_workers_find_each_other() -> None:
    one = job(workers=2, container=Container(image="i", env={"MASTER_PORT": "1"}, expose=()))
    manifests = bodies(rendered(declared(one), admit(one, ("dgx1-1", (0,)), ("dgx1-2", (0,)))))
    body = manifests["Job a-1-g-0badcafe"]["spec"]
    assert (body["completionMode"], body["completions"], body["parallelism"]) == ("Indexed", 2, 2)
    spec = body["template"]["spec"]
    env = {variable["name"]: variable.get("value") for variable in spec["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == "a-1-g-0badcafe-0.a-1-g-0badcafe.gpu-team-a.svc"
    assert env["MASTER_PORT"] == "1"
    assert {"NODE_RANK", "WORLD_SIZE"} <= set(env)
    assert spec["subdomain"] == "a-1-g-0badcafe"
    service = manifests["Service a-1-g-0badcafe"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert service["selector"].items() <= body["template"]["metadata"]["labels"].items()
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [["dgx1-1"], ["dgx1-2"]]


def test_an_elastic_gang_is_let_go_with_the_workers_it_got() -> None:
    one = job(workers=4, min_workers=2)
    body = run_body(declared(one), admit(one, ("dgx1-1", (0,)), ("dgx1-1", (1,))))["spec"]
    assert (body["completions"], body["parallelism"]) == (2, 2)
    assert body["template"]["metadata"]["labels"][names.WORKERS_LABEL] == "2"
    assert run_body(declared(one), pending(one))["spec"]["completions"] == 4


def test_inference_is_a_deployment_scaled_by_its_decision() -> None:
    one = job(type=JobType.INFERENCE, workers=2, preemptible=False)
    cluster = declared(one, pools=(pool(sharing=Sharing.DEVICE_PLUGIN),))
    running = run_body(cluster, admit(one, ("dgx1-1", (0,)), ("dgx1-1", (1,))))
    assert running["kind"] == "Deployment"
    assert running["spec"]["replicas"] == 2
    assert running["spec"]["strategy"] == {"type": "Recreate"}
    labels = running["spec"]["template"]["metadata"]["labels"]
    assert running["spec"]["selector"]["matchLabels"].items() <= labels.items()
    waiting = run_body(cluster, pending(one))
    assert waiting["spec"]["replicas"] == 0
    assert waiting["spec"]["selector"] == running["spec"]["selector"]
    assert "restartPolicy" not in running["spec"]["template"]["spec"]


def expose(*ports: tuple[int, ExposeVia]) -> Container:
    return Container(image="i", expose=tuple(Expose(port=port, via=via) for port, via in ports))


def test_one_published_port_has_the_jobs_url() -> None:
    one = job(container=expose((8888, ExposeVia.INGRESS)))
    manifests = bodies(rendered(declared(one), pending(one)))
    spec = manifests["Ingress a-1-g"]["spec"]
    backend = {"service": {"name": "a-1-g", "port": {"name": "port-8888"}}}
    path = {"path": "/team-a/a-1-g", "pathType": "Prefix", "backend": backend}
    assert spec == {"ingressClassName": "nginx", "rules": [{"http": {"paths": [path]}}]}
    service = manifests["Service a-1-g"]["spec"]
    assert service["ports"] == [{"name": "port-8888", "port": 8888, "targetPort": 8888, "protocol": "TCP"}]
    labels = manifests["Job a-1-g-0badcafe"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert names.RUN_LABEL not in service["selector"]


def test_several_ports_have_a_url_each_under_a_host_name() -> None:
    one = job(container=expose((8888, ExposeVia.INGRESS), (6006, ExposeVia.INGRESS), (22, ExposeVia.SERVICE)))
    cluster = declared(one)
    ingress = cluster.cluster.ingress
    assert ingress is not None
    named = replace(cluster, cluster=replace(cluster.cluster, ingress=replace(ingress, host="gpu.acme.org")))
    manifests = bodies(rendered(named, pending(one)))
    (rule,) = manifests["Ingress a-1-g"]["spec"]["rules"]
    assert rule["host"] == "gpu.acme.org"
    assert [path["path"] for path in rule["http"]["paths"]] == ["/team-a/a-1-g/6006", "/team-a/a-1-g/8888"]
    assert [port["port"] for port in manifests["Service a-1-g"]["spec"]["ports"]] == [22, 6006, 8888]


def test_each_project_may_have_an_origin_of_its_own() -> None:
    one = job(container=expose((8888, ExposeVia.INGRESS)))
    cluster = declared(one)
    ingress = IngressSettings(host="gpu.acme.org", class_name=None, host_per_project=True)
    apart = replace(cluster, cluster=replace(cluster.cluster, ingress=ingress))
    (rule,) = bodies(rendered(apart, pending(one)))["Ingress a-1-g"]["spec"]["rules"]
    assert rule["host"] == "team-a.gpu.acme.org"


def test_a_cluster_without_ingress_settings_leaves_the_choice_to_the_cluster() -> None:
    one = job(container=expose((8888, ExposeVia.INGRESS)))
    cluster = declared(one)
    bare = replace(cluster, cluster=replace(cluster.cluster, ingress=None))
    assert bodies(rendered(bare, pending(one)))["Ingress a-1-g"]["spec"].keys() == {"rules"}


def test_a_forwarded_port_needs_no_object() -> None:
    one = job(container=expose((8888, ExposeVia.PORT_FORWARD)))
    manifests = bodies(rendered(declared(one), pending(one)))
    assert not [name for name in manifests if name.startswith(("Service", "Ingress"))]


def test_a_gang_is_spoken_to_through_its_first_worker() -> None:
    one = job(workers=2, container=expose((8888, ExposeVia.SERVICE)))
    manifests = bodies(rendered(declared(one), pending(one)))
    assert manifests["Service a-1-g"]["spec"]["selector"][names.WORKER_INDEX_LABEL] == "0"


def test_a_service_name_is_a_label_that_begins_with_a_letter_and_is_the_jobs_own() -> None:
    assert names.service_name("a-1-g") == "a-1-g"
    made = [names.service_name(name) for name in ("1-g", "a.b", "a-b", "x" * 63 + "-y")]
    assert len(set(made)) == 4
    assert all(name[0].isalpha() and "." not in name and len(name) <= 63 for name in made)


def test_pods_tolerate_what_each_pool_declares_that_their_job_may_run_in() -> None:
    first, second = Toleration(key="dedicated", value="ml", effect="NoSchedule"), Toleration(key="spot")
    pools = tuple(
        replace(pool(name), tolerations=tolerated)
        for name, tolerated in (("dgx1", (first,)), ("dgx2", (second, first)), ("a100", (Toleration(key="other"),)))
    )
    one = job(pools=(pools[0].name, pools[1].name))
    spec = run_body(declared(one, pools=pools), pending(one))["spec"]["template"]["spec"]
    assert spec["tolerations"][2:] == [
        {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]


@pytest.mark.parametrize(("user", "mode"), [(None, 0o444), (1000, 0o444), (0, 0o400)])
def test_the_key_for_git_is_seen_by_git_sync_alone_in_a_form_that_ssh_takes(user: int | None, mode: int) -> None:
    git = GitCheckout(repository="ssh://git@x/y.git", revision="v1", path="/code", secret="deploy", size_bytes=1 << 30)
    spec = pod_of(Container(image="x", git=git, run_as=RunAs(user=user)))
    (volume,) = [each for each in spec["volumes"] if "secret" in each]
    assert volume["secret"]["defaultMode"] == mode
    (sync,), (main,) = spec["initContainers"], spec["containers"]
    assert volume["name"] in {mount["name"] for mount in sync["volumeMounts"]}
    assert volume["name"] not in {mount["name"] for mount in main["volumeMounts"]}
