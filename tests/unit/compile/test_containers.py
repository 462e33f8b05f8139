"""Containers of a job besides its own: what they add to a worker, what they may have, and that policies see them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import CLUSTER, HEAD, OPEN_CLUSTER, codes, job, project, tree_of

from gpuctl.compile import Compiled, compile_tree
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.k8s.objects import items, mapping
from gpuctl.k8s.requests import requests_of
from gpuctl.model.decision import Pending, Reason, RunRecord, Schedule
from gpuctl.model.job import Job, Mount, OwnAmounts, RunAs
from gpuctl.render import render

GIB = 1 << 30


def compiled(spec: str, *more: str, cluster: str = CLUSTER) -> Compiled:
    files: dict[str, str | bytes] = {"c.yaml": cluster, "p.yaml": project("team-a"), "j.yaml": job("j", spec)}
    return compile_tree(tree_of({**files, **{f"more-{at}.yaml": text for at, text in enumerate(more)}}))


SIZED = CLUSTER.replace("gpusPerNode: 4,", "gpusPerNode: 4, resourcesPerNode: {cpu: 80, memory: 512Gi},")


def the_job(spec: str) -> Job:
    found = compiled(spec, cluster=SIZED)
    assert found.declared is not None, found.diagnostics
    return found.declared.jobs[0]


def marked(found: Diagnostic) -> str:
    return found.source_line[found.span.column - 1 : found.span.end_column - 1]


def test_a_worker_asks_for_its_sidecars_too_and_for_an_init_container_where_that_is_more() -> None:
    found = the_job(
        "{image: x, gpus: 2, nodePools: [old], resources: {cpu: 4, memory: 8Gi},"
        " initContainers: [{name: a, image: y, gpus: 1, resources: {cpu: 16, memory: 1Gi}}],"
        " sidecars: [{name: b, image: y, beforeInit: true, resources: {cpu: 1, memory: 1Gi}},"
        " {name: c, image: y, gpus: 1, resources: {cpu: 1, memory: 1Gi}}]}"
    )
    assert (found.gpu_milli, found.cpu_milli, found.mem_bytes) == (3000, 17_000, 10 * GIB)
    assert found.container.own == OwnAmounts(cpu_milli=4000, mem_bytes=8 * GIB, gpus=2)
    assert found.pools == ("old",)


def test_a_part_of_a_gpu_is_the_jobs_own() -> None:
    found = the_job("{image: x, gpuMemory: 8Gi, sidecars: [{name: b, image: y, resources: {cpu: 1}}]}")
    assert (found.gpu_milli, found.cpu_milli) == (250, 1000)
    assert found.container.own == OwnAmounts(cpu_milli=0, mem_bytes=0)


def test_where_no_other_container_asks_for_more_nothing_is_counted_apart() -> None:
    small = the_job("{image: x, resources: {cpu: 4}, initContainers: [{name: a, image: y, resources: {cpu: 4}}]}")
    assert (small.cpu_milli, small.container.own) == (4000, None)


def test_a_container_has_the_users_and_rights_of_the_job_where_it_says_nothing_else() -> None:
    security = "security: {runAsUser: 5, readOnlyRootFilesystem: true, capabilities: {add: [CHOWN]}}"
    own = "security: {runAsUser: 7, readOnlyRootFilesystem: false, capabilities: {drop: [ALL]}}"
    found = the_job(f"{{image: x, {security}, sidecars: [{{name: a, image: y}}, {{name: b, image: y, {own}}}]}}")
    first, second = found.container.sidecars
    assert first.run_as == RunAs(read_only_root=True, added=("CHOWN",))
    assert second.run_as == RunAs(user=7, dropped=("ALL",))


def test_what_is_read_only_for_the_job_is_so_for_all_its_containers() -> None:
    volumes = "volumes: [{claim: c, mountPath: /c, readOnly: true}, {claim: d, mountPath: /d}]"
    found = the_job(
        f"{{image: x, {volumes}, initContainers: [{{name: a, image: y, mounts: [{{volume: /c, mountPath: /in}},"
        " {volume: /d}]}]}"
    )
    assert found.container.init_containers[0].mounts == (
        Mount(volume="/c", mount_path="/in", read_only=True),
        Mount(volume="/d", mount_path="/d"),
    )


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        ("initContainers: [{name: main, image: y}]", "GPU2018", "main"),
        ("sidecars: [{name: git-sync, image: y}]", "GPU2018", "git-sync"),
        ("sidecars: [{name: a, image: y}, {name: a, image: z}]", "GPU2021", "a"),
        ("initContainers: [{name: a, image: y}], sidecars: [{name: a, image: z}]", "GPU2021", "a"),
        ("sidecars: [{name: a, image: y, mounts: [{volume: /nowhere}]}]", "GPU3110", "/nowhere"),
        ("sidecars: [{name: a, image: y, mounts: [{volume: /d}, {volume: /e, mountPath: /d}]}]", "GPU2021", "/d"),
        ("sidecars: [{name: a, image: y, gpus: 1}]", "GPU3111", "1"),
        ("gpus: 0.5, initContainers: [{name: a, image: y, gpus: 1}]", "GPU3111", "1"),
        ("gpus: 1, nodePools: [dgx], sidecars: [{name: a, image: y, gpus: 1}]", "GPU3112", "1"),
        ("sidecars: [{name: a, image: y, env: {NVIDIA_VISIBLE_DEVICES: all}}]", "GPU3047", "NVIDIA_VISIBLE_DEVICES"),
        ("initContainers: [{name: a, image: y, envFrom: [{secret: s, prefix: NVIDIA_}]}]", "GPU3049", "NVIDIA_"),
        ("sidecars: [{name: a, image: y, security: {capabilities: {add: [SYS_ADMIN]}}}]", "GPU2007", "SYS_ADMIN"),
        ("sidecars: [{name: a, image: y, privileged: true}]", "GPU2004", "privileged"),
        ("initContainers: [{name: a, image: y, probes: {}}]", "GPU2004", "probes"),
    ],
)
def test_what_another_container_may_not_be(spec: str, code: str, words: str) -> None:
    found = compiled(f"{{image: x, volumes: [{{claim: d, mountPath: /d}}, {{claim: e, mountPath: /e}}], {spec}}}")
    assert [(one.code, marked(one)) for one in found.diagnostics] == [(code, words)]


def test_in_a_restricted_project_no_container_is_root() -> None:
    cluster = f"{CLUSTER}  security: {{podSecurity: restricted}}\n"
    security = "security: {runAsUser: 0, capabilities: {add: [CHOWN]}}"
    found = compiled(f"{{image: x, initContainers: [{{name: a, image: y, {security}}}]}}", cluster=cluster)
    assert [(one.code, marked(one)) for one in found.diagnostics] == [("GPU3073", "0"), ("GPU3074", "CHOWN")]


def test_its_texts_count_in_what_a_job_may_say() -> None:
    long = "x" * (600 << 10)
    found = compiled(f"{{image: x, args: [{long}], sidecars: [{{name: a, image: y, env: {{A: {long}}}}}]}}")
    assert codes(found) == ["GPU3060"]


def test_a_worker_that_fits_no_node_with_its_sidecars_is_a_mistake() -> None:
    assert codes(compiled("{image: x, resources: {cpu: 80}, nodePools: [dgx]}")) == []
    sidecar = "sidecars: [{name: a, image: y, resources: {cpu: 1}}]"
    found = compiled(f"{{image: x, resources: {{cpu: 80}}, nodePools: [dgx], {sidecar}}}")
    assert codes(found) == ["GPU3016"]


def policy(rule: str) -> str:
    return f"{HEAD}kind: Policy\nmetadata: {{name: rule}}\nspec:\n  match: {{kind: Job}}\n  message: No.\n  {rule}\n"


OTHER = "{image: good/x, sidecars: [{name: a, image: good/y}, {name: b, image: bad/z}]}"
SEEN: list[tuple[str, str, list[str]]] = [
    ("cel: object.spec.image.startsWith('good/')", OTHER, ["image: bad/z"]),
    ("schema: {properties: {spec: {properties: {image: {pattern: '^good/'}}}}}", OTHER, ["image: bad/z"]),
    (
        "schema: {properties: {spec: {properties: {volumes: {items: {not: {required: [hostPath]}}}}}}}",
        "{image: x, volumes: [{hostPath: /m, mountPath: /m}], sidecars: [{name: a, image: y, mounts: [{volume: /m}]}]}",
        ["hostPath", "{volume: /m}"],
    ),
    (
        "cel: \"!('FOO' in object.spec.env)\"",
        "{image: x, initContainers: [{name: a, image: y, env: {FOO: b}}]}",
        ["env: {FOO"],
    ),
    (
        "schema: {properties: {spec: {properties: {security: {properties: {runAsUser: {minimum: 1}}}}}}}",
        "{image: x, security: {runAsUser: 5}, sidecars: [{name: a, image: y, security: {runAsUser: 0}}]}",
        ["runAsUser: 0"],
    ),
    (
        "schema: {properties: {spec: {properties: {gpus: {maximum: 2}}}}}",
        "{image: x, gpus: 2, nodePools: [old], sidecars: [{name: a, image: y, gpus: 1}]}",
        ["gpus: 2"],
    ),
    ("cel: total.cpus <= 2.0", "{image: x, resources: {cpu: 2}, sidecars: [{name: a, image: y, resources: {cpu: 1}}]}",
     ["cpu: 2"]),
    ("cel: object.spec.image != 'x'", "{image: x, sidecars: [{name: a, image: y}]}", ["image: x"]),
    ("cel: size(object.spec.sidecars) == 1", "{image: x, sidecars: [{name: a, image: y}]}", []),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spec", "at"), SEEN)
def test_a_policy_holds_for_each_container(rule: str, spec: str, at: list[str]) -> None:
    found = compiled(spec, policy(rule), cluster=OPEN_CLUSTER)
    assert [one.code for one in found.diagnostics] == ["GPU4001"] * len(at)
    for one, words in zip(found.diagnostics, at, strict=True):
        assert one.source_line[one.span.column - 1 :].startswith(words)


@st.composite
def containers(draw: st.DrawFn, kind: str) -> str:
    several = []
    for at in range(draw(st.integers(0, 3))):
        cpu, memory, gpus = draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.integers(0, 2))
        first = f", beforeInit: {str(draw(st.booleans())).lower()}" if kind == "sidecar" else ""
        asked = f"resources: {{cpu: {cpu}, memory: {memory}Gi}}, gpus: {gpus}{first}"
        several.append(f"{{name: {kind}-{at}, image: y, {asked}}}")
    return f"[{', '.join(several)}]"


@given(containers("init"), containers("sidecar"), st.integers(0, 9), st.sampled_from(["", "git"]))
def test_what_is_charged_is_what_kubernetes_counts_of_the_pod(before: str, beside: str, cpu: int, git: str) -> None:
    checkout = ", git: {repository: 'https://x/y', path: /code}" if git else ""
    spec = (
        f"{{image: x, gpus: 1, nodePools: [big], resources: {{cpu: {cpu}, memory: 1Gi}}, initContainers: {before},"
        f" sidecars: {beside}{checkout}}}"
    )
    big = "  - {name: big, nodes: [b1], gpusPerNode: 16, resourcesPerNode: {cpu: 99, memory: 99Gi}}\n"
    found = compiled(spec, cluster=f"{CLUSTER}{big}  gitSync: {{image: g}}\n")
    assert found.declared is not None, found.diagnostics
    (one,) = found.declared.jobs
    told = Pending(reserved=None, job=one.id, reason=Reason(code="GPU5001"), record=RunRecord(queued_at_ms=0))
    made = render(found.declared, Schedule(at_ms=0, decisions=(told,)))
    (pod,) = (mapping(each.body, "spec", "template", "spec") for each in made.items if each.ref.kind == "Job")
    counted = requests_of(pod)
    assert (counted.gpus * 1000, counted.cpu_milli, counted.mem_bytes) == (
        one.gpu_milli, one.cpu_milli, one.mem_bytes,
    )  # fmt: skip
    named: list[Any] = [each["name"] for part in ("initContainers", "containers") for each in items(pod, part)]
    assert len(named) == len(set(named))


MANIFEST = (
    "{manifest: {apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{name: w, template: {spec:"
    " {template: {spec: {initContainers: [{name: i, image: bad/i}], containers: [{name: main, image: good/y, env:"
    " [{name: FOO, value: b}], securityContext: {runAsUser: 0}, volumeMounts: [{name: v, mountPath: /m}]}],"
    " volumes: [{name: v, hostPath: {path: /mnt}}]}}}}}]}}}"
)


@pytest.mark.parametrize(
    ("rule", "at"),
    [
        ("cel: object.spec.image.startsWith('good/')", ["image: bad/i"]),
        ("schema: {properties: {spec: {properties: {image: {pattern: '^good/'}}}}}", ["image: bad/i"]),
        ("cel: object.spec.image != ''", []),
        ("cel: \"!('FOO' in object.spec.env)\"", ["env: [{name: FOO"]),
        (
            "schema: {properties: {spec: {properties: {security: {properties: {runAsUser: {minimum: 1}}}}}}}",
            ["runAsUser: 0"],
        ),
        (
            "schema: {properties: {spec: {properties: {volumes: {items: {not: {required: [hostPath]}}}}}}}",
            ["{name: v, mountPath: /m}"],
        ),
    ],
)
def test_a_policy_holds_for_each_container_of_a_manifest(rule: str, at: list[str]) -> None:
    found = compiled(MANIFEST, policy(rule), cluster=OPEN_CLUSTER)
    assert [one.code for one in found.diagnostics] == ["GPU4001"] * len(at), found.diagnostics
    for one, words in zip(found.diagnostics, at, strict=True):
        assert one.source_line[one.span.column - 1 :].startswith(words)
