"""What jobs have that don't say otherwise: from the project and the cluster, in a stated order, each with its place."""

from __future__ import annotations

from dataclasses import replace
from textwrap import indent

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import CLUSTER, codes, job, project, tree_of

from gpuctl.compile import Compiled, compile_tree, expanded
from gpuctl.model.job import Job, SecretKey
from gpuctl.model.volumes import (
    ClaimVolume,
)
from gpuctl.views.expanded import expanded_text


def compiled(cluster: str = "{}", own: str = "{}", spec: str = "{image: x}", more: str = "") -> Compiled:
    """A cluster and a project with these defaults, and a job."""
    files: dict[str, str | bytes] = {
        "cluster.yaml": f"{CLUSTER}  defaults: {cluster}\n{more}",
        "projects/team-a/project.yaml": project("team-a", f"{{quota: 4, defaults: {own}}}"),
        "projects/team-a/train.yaml": job("train", spec),
    }
    return compile_tree(tree_of(files))


def made(cluster: str = "{}", own: str = "{}", spec: str = "{image: x}") -> Job:
    found = compiled(cluster, own, spec)
    assert found.declared is not None, found.diagnostics
    return found.declared.jobs[0]


def test_the_nearest_goes_first() -> None:
    cluster = "{all: {env: {A: c, B: c, C: c, D: c, E: c}}, training: {env: {B: ct, C: ct, D: ct, E: ct}}}"
    own = "{all: {env: {C: p, D: p, E: p}}, training: {env: {D: pt, E: pt}}, inference: {env: {A: never}}}"
    assert made(cluster, own, "{image: x, env: {E: j}}").container.env == {
        "A": "c", "B": "ct", "C": "p", "D": "pt", "E": "j",
    }  # fmt: skip


def test_security_is_filled_in_field_by_field_and_a_list_is_taken_whole() -> None:
    cluster = "{all: {imagePullSecrets: [c], security: {runAsUser: 1, runAsGroup: 2, fsGroup: 3}}}"
    run = made(cluster, "{all: {imagePullSecrets: [p1, p2]}}", "{image: x, security: {runAsGroup: 9}}").container
    assert (run.run_as.user, run.run_as.group, run.run_as.fs_group) == (1, 9, 3)
    assert run.pull_secrets == ("p1", "p2")
    assert made(cluster, spec="{image: x, imagePullSecrets: []}").container.pull_secrets == ()


def test_a_volume_at_the_same_path_is_the_jobs() -> None:
    cluster = "{all: {volumes: [{claim: common, mountPath: /data}, {claim: home, mountPath: /home}]}}"
    found = made(cluster, spec="{image: x, volumes: [{claim: mine, mountPath: /data}]}").container.volumes
    assert found == (
        ClaimVolume(claim="mine", mount_path="/data", read_only=False),
        ClaimVolume(claim="home", mount_path="/home", read_only=False),
    )


@pytest.mark.parametrize(
    ("spec", "cpu_milli", "mem_bytes"),
    [
        ("{image: x, gpus: 2}", 3000, 8 << 30),
        ("{image: x, gpus: 2, resources: {cpu: 1}}", 1000, 8 << 30),
        ("{image: x, gpus: 2, resources: {memory: 0}}", 3000, 0),
        ("{image: x}", 0, 0),
    ],
)
def test_cpu_and_memory_are_for_each_gpu(spec: str, cpu_milli: int, mem_bytes: int) -> None:
    found = made("{training: {cpuPerGpu: 1500m, memoryPerGpu: 4Gi}}", spec=spec)
    assert (found.cpu_milli, found.mem_bytes) == (cpu_milli, mem_bytes)


def test_a_default_that_says_nothing_changes_no_digest() -> None:
    assert made("{all: {}, training: {env: {}}}", "{all: {cpuPerGpu: null}}") == made()


def test_a_default_restarts_runs_as_the_same_words_in_the_job_would() -> None:
    assert made("{all: {env: {A: b}}}").digest == made(spec="{image: x, env: {A: b}}").digest != made().digest


def test_a_default_that_may_not_be_is_told_of_each_job_and_holds_up_its_project_alone() -> None:
    """The cluster's own file stays sound: a project could otherwise hold up all others by declaring a job."""
    found = compiled("{all: {security: {runAsUser: 0}}}", more="  security: {exceptions: {team-a: restricted}}\n")
    (told,) = found.diagnostics
    assert (told.code, told.span.file) == ("GPU3073", "projects/team-a/train.yaml")
    ((words, place),) = told.related
    assert (words, place.file) == ("the default is here", "cluster.yaml")
    assert told.source_line == "metadata: {name: train, project: team-a}"
    assert found.owners[told.span.file] == "team-a"


@pytest.mark.parametrize(
    ("defaults", "code"),
    [
        ("{all: {env: {NVIDIA_VISIBLE_DEVICES: all}}}", "GPU3047"),
        ("{all: {envFrom: [{secret: s, prefix: NVIDIA_}]}}", "GPU3049"),
        ("{all: {volumes: [{hostPath: /etc, mountPath: /etc}]}}", "GPU3070"),
        ("{training: {cpuPerGpu: 1000}}", "GPU3016"),
        ("{all: {security: {capabilities: {add: [SYS_ADMIN]}}}}", "GPU2007"),
        ("{all: {gpus: 1}}", "GPU2004"),
        ("{all: {labels: {gpuctl.dev/job: x}}}", "GPU2018"),
    ],
)
def test_a_default_can_say_nothing_that_a_job_could_not(defaults: str, code: str) -> None:
    for found in (compiled(defaults, spec="{image: x, gpus: 1}"), compiled(own=defaults, spec="{image: x, gpus: 1}")):
        assert code in codes(found)


WORDS = st.sampled_from(["a", "b", "c"])
PARTS = {
    "env": st.dictionaries(st.sampled_from(["A", "B", "C"]), WORDS | st.just("{secret: s, key: k}")),
    "imagePullSecrets": st.lists(WORDS, unique=True),
    "security": st.dictionaries(st.sampled_from(["runAsUser", "runAsGroup", "fsGroup"]), st.integers(0, 3)),
    "volumes": st.lists(WORDS, unique=True).map(lambda paths: [f"{{claim: {p}, mountPath: /{p}}}" for p in paths]),
    "cpuPerGpu": st.sampled_from(["1", "1500m"]),
    "memoryPerGpu": st.sampled_from(["1Gi", "1000"]),
    "largeShm": st.sampled_from(["true", "false"]),
    "labels": st.dictionaries(WORDS, WORDS),
}


def flow(value: object) -> str:
    """As YAML on one line; texts are YAML already."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(below)}" for key, below in value.items()) + "}"
    return "[" + ", ".join(map(flow, value)) + "]" if isinstance(value, list) else str(value)


LAYER = st.fixed_dictionaries({}, optional=PARTS)
DEFAULTS = st.fixed_dictionaries({}, optional={"all": LAYER, "training": LAYER, "interactive": LAYER}).map(flow)
SPEC = st.fixed_dictionaries(
    {
        "image": st.just("x"),
        "gpus": st.sampled_from(["0", "1", "0.5"]),
        "type": st.sampled_from(["training", "inference"]),
    },
    optional={name: part for name, part in PARTS.items() if not name.endswith("PerGpu")}
    | {"resources": st.sampled_from(["{}", "{cpu: 1}", "{memory: 1Gi}"])},
).map(flow)


@given(DEFAULTS, DEFAULTS, SPEC)
def test_what_is_shown_says_the_same_without_defaults(cluster: str, own: str, spec: str) -> None:
    """The job as `validate --expanded` prints it compiles to the same job where nothing has defaults."""
    found = compiled(cluster, own, spec)
    assert found.declared is not None, found.diagnostics
    (one,) = found.jobs
    text = expanded_text(expanded(one.declaration, one.filled))
    alone = compile_tree(
        tree_of({"cluster.yaml": CLUSTER, "p.yaml": project("team-a", "{quota: 4}"), "j.yaml": text})
    ).declared
    assert alone is not None, indent(text, "  ")
    assert replace(alone.jobs[0], span=found.declared.jobs[0].span) == found.declared.jobs[0]


def test_each_default_is_shown_with_its_file_and_line() -> None:
    found = compiled("{all: {env: {A: c}}}", "{training: {env: {B: {secret: s, key: k}}}}", "{image: x, env: {C: j}}")
    (one,) = found.jobs
    assert found.declared is not None
    assert found.declared.jobs[0].container.env["B"] == SecretKey(secret="s", key="k")
    line = CLUSTER.count("\n") + 1
    assert expanded_text(expanded(one.declaration, one.filled)) == (
        "---\n# projects/team-a/train.yaml:3\n"
        "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata:\n  name: train\n  project: team-a\nspec:\n  env:\n"
        f"    A: c  # cluster.yaml:{line}\n"
        "    B:  # projects/team-a/project.yaml:4\n      key: k\n      secret: s\n"
        "    C: j\n  image: x\n"
    )


NO_ROOT = """\
apiVersion: gpuctl.dev/v1
kind: Policy
metadata: {{name: no-root}}
spec: {{match: {{kind: Job}}, {rule}, message: no root}}
"""
RULES = {
    "schema": "schema: {properties: {spec: {properties: {security: {properties: {runAsUser: {minimum: 1}}}}}}}",
    "cel": 'cel: "object.spec.security.runAsUser != 0"',
}


def judged(rule: str, own: str, spec: str) -> Compiled:
    files: dict[str, str | bytes] = {
        "cluster.yaml": CLUSTER,
        "policies/no-root.yaml": NO_ROOT.format(rule=RULES[rule]),
        "projects/team-a/project.yaml": project("team-a", f"{{quota: 4, defaults: {own}}}"),
        "projects/team-a/train.yaml": job("train", spec),
    }
    return compile_tree(tree_of(files))


@pytest.mark.parametrize("rule", RULES)
def test_a_policy_judges_what_a_default_says_as_if_the_job_said_it(rule: str) -> None:
    (told,) = judged(rule, "{all: {security: {runAsUser: 0}}}", "{image: x}").diagnostics
    assert (told.code, told.span.file, told.source_line) == (
        "GPU4001", "projects/team-a/train.yaml", "metadata: {name: train, project: team-a}",
    )  # fmt: skip
    assert [(words, place.file) for words, place in told.related] == [
        ("the default is here", "projects/team-a/project.yaml"), ("the policy is here", "policies/no-root.yaml"),
    ]  # fmt: skip
    assert judged(rule, "{all: {security: {runAsUser: 0}}}", "{image: x, security: {runAsUser: 7}}").diagnostics == ()
    assert judged(rule, "{all: {security: {runAsUser: 7}}}", "{image: x}").diagnostics == ()
    (own,) = judged(rule, "{all: {security: {runAsUser: 7}}}", "{image: x, security: {runAsUser: 0}}").diagnostics
    assert "runAsUser" in own.source_line


def test_a_policy_that_asks_for_a_field_is_content_with_a_default() -> None:
    rule = "schema: {properties: {spec: {properties: {resources: {required: [cpu]}}, required: [resources]}}}"
    files: dict[str, str | bytes] = {
        "cluster.yaml": CLUSTER + "  defaults: {all: {cpuPerGpu: 2}}\n",
        "policies/cpu.yaml": NO_ROOT.format(rule=rule),
        "projects/team-a/project.yaml": project("team-a", "{quota: 4}"),
        "projects/team-a/train.yaml": job("train", "{image: x, gpus: 1}"),
    }
    assert compile_tree(tree_of(files)).diagnostics == ()
    del files["cluster.yaml"]
    assert codes(compile_tree(tree_of({**files, "cluster.yaml": CLUSTER}))) == ["GPU4001"]
