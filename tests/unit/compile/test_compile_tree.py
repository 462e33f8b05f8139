from __future__ import annotations

from pathlib import Path

import pytest
from trees import CLUSTER, HEAD, codes, compiled_of, job, project, tree, tree_of

from gpuctl.adapters.files import read_tree
from gpuctl.compile import Compiled, compile_tree, fields_of_a_new_run
from gpuctl.compile.spec_v1 import JobSpec
from gpuctl.diag.diagnostic import Severity, has_errors
from gpuctl.model import job as model
from gpuctl.model.declared import WHOLE_CLUSTER, Allowance, Declared
from gpuctl.model.ids import DomainName, JobId, ProjectName
from gpuctl.model.source import SourceFault, SourceFile, SourceTree

ROOT = Path(__file__).parents[3]


def declared(compiled: Compiled) -> Declared:
    assert compiled.declared is not None, compiled.diagnostics
    return compiled.declared


def the_job(spec: str, owner: str = "{quota: 4}") -> model.Job:
    (found,) = declared(compiled_of(a=project("team-a", owner), b=job("train", spec))).jobs
    return found


def test_the_example_declares_the_reports_thirteen_jobs() -> None:
    found = declared(compile_tree(read_tree(str(ROOT / "clusters" / "tr4858"))))
    assert {p.name: p.allowances[WHOLE_CLUSTER].quota_milli for p in found.projects} == {
        "team-a": 4000, "team-b": 2000, "team-c": 2000, "team-d": 8000,
    }  # fmt: skip
    assert len(found.jobs) == 13
    assert sum(job.total_gpu_milli for job in found.jobs) == 16_000
    assert found.cluster.pool(found.jobs[0].pools[0]).gpu_milli == 16_000


def test_every_default_is_explicit() -> None:
    found = declared(compiled_of(a=project("team-a", "{}"), b=job("train", "{image: x}")))
    assert found.cluster.namespace_prefix == "gpu-"
    assert found.cluster.pools[0].match_labels == {"gpuctl.dev/pool": "dgx"}
    assert found.cluster.scheduling.starvation_guard_ms == 600_000
    assert [node.gpus for node in found.cluster.pools[1].nodes] == [4, 2]
    assert found.projects[0].namespace == "gpu-team-a"
    assert found.projects[0].allowances == {WHOLE_CLUSTER: Allowance(quota_milli=0, limit_milli=None, weight=0)}
    (train,) = found.jobs
    assert (train.type, train.preemptible, train.workers, train.min_workers) == (model.JobType.TRAINING, True, 1, 1)
    assert train.pools == ("dgx", "old")
    assert (train.span.file, train.span.line, train.span.column) == ("b.yaml", 3, 18)


@pytest.mark.parametrize(("kind", "preemptible"), [("training", True), ("interactive", False), ("inference", False)])
def test_only_training_is_preemptible_unless_it_says_so(kind: str, *, preemptible: bool) -> None:
    assert the_job(f"{{image: x, gpus: 1, type: {kind}}}").preemptible is preemptible
    assert the_job(f"{{image: x, gpus: 1, type: {kind}, preemptible: true}}").preemptible


def test_the_tightest_duration_holds_and_only_interactive_work_idles_out() -> None:
    limits = "{quota: 4, interactive: {maxDuration: 8h, idleTimeout: 1h}, training: {maxDuration: 7d}}"
    interactive = the_job("{image: x, type: interactive, maxDuration: 2h}", limits)
    assert (interactive.max_duration_ms, interactive.idle_timeout_ms) == (7_200_000, 3_600_000)
    training = the_job("{image: x}", limits)
    assert (training.max_duration_ms, training.idle_timeout_ms) == (604_800_000, None)
    assert the_job("{image: x, type: inference}", limits).max_duration_ms is None


def test_pools_are_narrowed_by_affinity_choice_and_need() -> None:
    affinity = "{quota: 4, nodeAffinity: {training: [old, dgx], interactive: [dgx]}}"
    assert the_job("{image: x}", affinity).pools == ("old", "dgx")
    assert the_job("{image: x, type: interactive}", affinity).pools == ("dgx",)
    assert the_job("{image: x, type: inference}", affinity).pools == ("old", "dgx")
    assert the_job("{image: x, nodePools: [old]}", affinity).pools == ("old",)
    assert the_job("{image: x, gpus: 0.5}", affinity).pools == ("dgx",)


def test_a_request_by_memory_is_charged_on_the_smallest_device_it_may_get() -> None:
    found = the_job("{image: x, gpuMemory: 8Gi}")
    assert (found.gpu_mem_bytes, found.gpu_milli, found.pools) == (8 << 30, 250, ("dgx",))


def test_quotas_by_pool_make_a_domain_of_each() -> None:
    spec = "{quota: {dgx: 4}, limit: {dgx: 8}, overQuotaWeight: 2, nodeAffinity: {training: [dgx], interactive: [dgx]}}"
    found = declared(compiled_of(a=project("team-a", spec), b=project("team-b", "{quota: {old: 1.5}}")))
    assert [domain.name for domain in found.domains] == ["dgx", "old"]
    assert found.projects[0].allowances == {
        DomainName("dgx"): Allowance(quota_milli=4000, limit_milli=8000, weight=2000)
    }
    assert found.projects[1].allowances == {
        DomainName("dgx"): Allowance(quota_milli=0, limit_milli=None, weight=0),
        DomainName("old"): Allowance(quota_milli=1500, limit_milli=None, weight=1500),
    }


def test_a_department_without_a_quota_has_what_its_members_have() -> None:
    departments = "".join(
        f"---\n{HEAD}kind: Department\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        for name, spec in (("all", "{}"), ("vision", "{department: all}"), ("own", "{quota: 0}"))
    )
    found = declared(
        compiled_of(
            a=project("team-a", "{quota: 4, department: vision}"),
            b=project("team-b", "{quota: 2, department: all}"),
            d=departments,
        )
    )
    assert {d.name: (d.parent, d.allowances[WHOLE_CLUSTER].quota_milli) for d in found.departments} == {
        "all": (None, 6000),
        "vision": ("all", 4000),
        "own": (None, 0),
    }
    assert {d.name for d in found.departments if d.has_own_quota} == {"own"}


MANIFEST = """{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [{name: w, template: {spec:
 {template: {spec: {containers: [{name: main, image: y}]}}}}}]}}""".replace("\n", "")
CHANGES_NOTHING = ["gpus: 1.0", 'gpus: "1"', "priority: 5", "maxDuration: 1h", "suspend: true", "retries: 3",
                   "nodePools: [dgx]", "preemptible: false", "pauseGrace: 2m", "after: [validate]",
                   "ttlAfterFinished: 1d", "checkpointEvery: 30m",
                   "expose: [{port: 80}]", "resources: {cpu: 0}"]  # fmt: skip
IS_A_NEW_RUN = ["gpus: 2", "image: y", "runIndex: 2", "workers: 2", "env: {A: b}", "args: [x]", "command: [x]",
                "type: inference", "workingDir: /w", "largeShm: true", "imagePullPolicy: Never",
                "resources: {cpu: 1}", "volumes: [{claim: c, mountPath: /c}]", "workers: 2\nminWorkers: 1",
                "gpus: 0\ngpuMemory: 8Gi", "imagePullSecrets: [registry]",
                "envFrom: [{secret: s, prefix: S_}]", "security: {runAsUser: 1000}", "labels: {a: b}",
                "annotations: {a: b}", "retriesPerWorker: 2",
                "git: {repository: 'https://x/y', path: /code}", "tty: true", "preStop: [x]", "dnsPolicy: Default",
                "framework: pytorch", "success: any", "sweep: {completions: 1}",
                "type: inference\nworkers: 3\nminWorkers: 1\nscaling: {metric: requests, target: 1}",
                "probes: {liveness: {tcp: {port: 80}}}",
                "initContainers: [{name: a, image: x}]", "sidecars: [{name: a, image: x}]",
                "hostAliases: [{ip: 10.0.0.7, hostnames: [a]}]", f"manifest: {MANIFEST}"]  # fmt: skip


def _job(fields: str) -> model.Job:
    given = {"image": "x", "gpus": "1"}
    extra = [line for line in fields.split("\n") if line]
    given = {} if "manifest" in fields else given
    kept = [f"{key}: {value}" for key, value in given.items() if not any(e.startswith(f"{key}:") for e in extra)]
    resources = "resourcesPerNode: {cpu: 8, memory: 8Gi}, "
    cluster = CLUSTER.replace("{name: old, ", f"{{name: old, {resources}") + "  gitSync: {image: x}\n"
    files: dict[str, str | bytes] = {
        "c.yaml": cluster, "p.yaml": project("team-a"), "j.yaml": job("train", f"{{{', '.join([*kept, *extra])}}}"),
        "v.yaml": job("validate", "{image: x}"),
    }  # fmt: skip
    return declared(compile_tree(tree_of(files))).jobs[0]


@pytest.mark.parametrize("field", CHANGES_NOTHING)
def test_what_needs_no_restart_is_the_same_run(field: str) -> None:
    assert _job(field).digest == _job("").digest


def test_every_field_of_a_job_is_one_or_the_other() -> None:
    """So that a field is not declared and then lost on its way to the values of `model`."""
    lines = [line for change in (*CHANGES_NOTHING, *IS_A_NEW_RUN) for line in change.split("\n")]
    fields = {field.alias or name for name, field in JobSpec.model_fields.items()} - {"template"}
    assert fields == {line.partition(":")[0] for line in lines}


def test_each_change_that_needs_a_restart_is_another_run() -> None:
    digests = {_job(field).digest for field in ["", *IS_A_NEW_RUN]}
    assert len(digests) == 1 + len(IS_A_NEW_RUN)
    assert all(len(digest) == 8 for digest in digests)


def test_digests_never_change_between_versions() -> None:
    """A digest of another value would start every job in every cluster anew."""
    assert _job("").digest == "fc89a3c0"


def test_the_order_of_files_means_nothing() -> None:
    files = dict(tree(a=project("team-a"), b=job("x"), c=job("x"), d=job("y", owner="team-b"), e="a: [").files)
    forward = compile_tree(SourceTree(cluster_dir=".", files=files))
    backward = compile_tree(SourceTree(cluster_dir=".", files=dict(reversed(files.items()))))
    assert forward == backward
    assert codes(forward) == ["GPU3003", "GPU3004", "GPU1001"]


def test_a_mistake_in_one_document_hides_none_in_others() -> None:
    found = compiled_of(
        a=project("team-a"),
        b="a: [\n---\n" + job("one", "{image: x, gpus: 0.0005}"),
        c=job("two", "{image: x, gpu: 1}") + "---\n" + job("three", "{}"),
        d=b"\xff".decode("latin-1") + "kind: Job\n",
    )
    assert codes(found) == ["GPU1001", "GPU2012", "GPU2004", "GPU2005", "GPU2005"]
    assert found.declared is None


@pytest.mark.parametrize("broken", [project("team-a", "{quota: -1}"), project("team-a", "{quota: [}")])
def test_a_broken_project_is_not_reported_as_missing_by_its_jobs(broken: str) -> None:
    found = compiled_of(a=broken, b=job("train"))
    assert {diagnostic.span.file for diagnostic in found.diagnostics} == {"a.yaml"}


def test_a_broken_cluster_is_not_reported_as_missing() -> None:
    broken = tree_of({"c.yaml": CLUSTER.replace("nodePools:", "nodePools: ["), "p.yaml": project("team-a")})
    assert codes(compile_tree(broken)) == ["GPU1001"]


def test_a_file_that_cannot_be_read_does_not_make_its_project_unknown() -> None:
    files = dict(tree_of({"c.yaml": CLUSTER, "projects/team-a/jobs/j.yaml": job("train")}).files)
    files["projects/team-a/project.yaml"] = SourceFile(content=b"", fault=SourceFault.DANGLING)
    assert codes(compile_tree(SourceTree(cluster_dir=".", files=files))) == ["GPU1018"]


def test_a_file_that_is_passed_over_holds_nothing_up() -> None:
    files = dict(tree_of({"c.yaml": CLUSTER, "p.yaml": project("team-a"), "j.yaml": job("train")}).files)
    files["projects/team-a/jobs/Old.YAML"] = SourceFile(content=b"", fault=SourceFault.MISNAMED)
    compiled = compile_tree(SourceTree(cluster_dir=".", files=files))
    assert [(one.code, one.severity) for one in compiled.diagnostics] == [("GPU1026", Severity.WARNING)]
    assert compiled.declared is not None
    assert [str(one.id) for one in compiled.declared.jobs] == ["team-a/train"]


@pytest.mark.parametrize(("name", "code"), [("team-b", "GPU3008"), ("team_a", "GPU2010")])
def test_a_project_under_another_name_in_its_folder_is_told_once(name: str, code: str) -> None:
    jobs = {f"projects/team-a/jobs/{each}.yaml": job(each) for each in ("x", "y")}
    files = {"c.yaml": CLUSTER, "projects/team-a/project.yaml": project(name), **jobs}
    assert codes(compile_tree(tree_of(files))) == [code]


@pytest.mark.parametrize("stray", [job("x", owner="team-b"), job("x", owner="team-e"), project("team-b")])
def test_a_declaration_in_anothers_folder_is_told_once_with_where_it_is_first(stray: str) -> None:
    files = {
        "c.yaml": CLUSTER,
        "projects/team-a/stray.yaml": stray,
        "projects/team-a/project.yaml": project("team-a"),
        "projects/team-b/all.yaml": project("team-b") + "---\n" + job("x", owner="team-b"),
    }
    (told,) = compile_tree(tree_of(files)).diagnostics
    assert (told.code, told.span.file) == ("GPU3008", "projects/team-a/stray.yaml")
    assert [place.file for _, place in told.related] == ["projects/team-b/all.yaml"] * ("team-b" in stray)


def test_a_job_in_its_folder_means_no_other_project() -> None:
    files = {"c.yaml": CLUSTER, "projects/team-a/x.yaml": job("x"), "projects/team-b/b.yaml": project("team-b")}
    (told,) = compile_tree(tree_of(files)).diagnostics
    assert (told.code, told.help) == ("GPU3004", "declare the project, or name another")


def test_whose_a_file_is() -> None:
    files: dict[str, str | bytes] = {
        "k/cluster.yaml": CLUSTER,
        "k/projects/team-a/a.yaml": project("team-a"),
        "k/projects/team-a/broken.yaml": "a: [",
        "k/team-b.yaml": project("team-b") + "---\n" + job("x", owner="team-b"),
        "k/broken-b.yaml": job("y", "{image: [x}", owner="team-b"),
        "k/both.yaml": project("team-c") + "---\n" + job("z", owner="team-b"),
        "k/empty.yaml": "",
        "policies/p.yaml": "a: [",
    }
    owners = compile_tree(tree_of(files, "k")).owners
    assert owners == {
        "k/cluster.yaml": None,
        "k/projects/team-a/a.yaml": "team-a",
        "k/projects/team-a/broken.yaml": "team-a",
        "k/team-b.yaml": "team-b",
        "k/broken-b.yaml": "team-b",
        "k/both.yaml": None,
        "k/empty.yaml": None,
        "policies/p.yaml": None,
    }


def test_files_of_any_path_compile_together() -> None:
    example = read_tree(str(ROOT / "clusters" / "tr4858"))
    extra = {"inline:given/0": SourceFile(content=job("extra", owner="team-d").encode())}
    found = declared(compile_tree(SourceTree(cluster_dir=example.cluster_dir, files={**example.files, **extra})))
    assert JobId(ProjectName("team-d"), "extra") in {job.id for job in found.jobs}


def test_overcommitted_quotas_warn_where_the_cluster_says_so() -> None:
    over = project("team-a", "{quota: 400}")
    allowed = CLUSTER + "  scheduling: {overcommitQuota: true}\n"
    assert has_errors(compile_tree(tree_of({"c.yaml": CLUSTER, "p.yaml": over})).diagnostics)
    found = compile_tree(tree_of({"c.yaml": allowed, "p.yaml": over}))
    assert [(d.code, d.severity) for d in found.diagnostics] == [("GPU3009", Severity.WARNING)]
    assert found.declared is not None


def test_nothing_is_said_of_capacity_where_nodes_are_not_declared() -> None:
    unknown = CLUSTER.replace("nodes: [d1, d2], ", "")
    wide = {"p.yaml": project("team-a", "{quota: 400}"), "j.yaml": job("train", "{image: x, gpus: 64, workers: 9}")}
    assert codes(compile_tree(tree_of({"c.yaml": unknown, **wide}))) == []


def test_two_clusters_of_one_folder_name_the_first() -> None:
    (found,) = compile_tree(tree_of({"a.yaml": CLUSTER, "b.yaml": CLUSTER})).diagnostics
    assert (found.code, found.span.file) == ("GPU3002", "b.yaml")
    assert found.related[0][1].file == "a.yaml"


@pytest.mark.parametrize("field", IS_A_NEW_RUN)
def test_what_makes_a_run_another_one_is_named_as_it_is_written(field: str) -> None:
    before, after = _job(""), _job(field)
    changed = {name.partition(".")[0] for name in fields_of_a_new_run(before, after)}
    assert changed
    assert changed <= {line.partition(":")[0] for line in field.split("\n")}
