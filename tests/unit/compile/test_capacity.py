from __future__ import annotations

import pytest
from trees import CLUSTER, HEAD, codes, compiled_of, job, project, tree_of

from gpuctl.compile import compile_tree

RESEARCH = f"{HEAD}kind: Department\nmetadata: {{name: research}}\nspec: {{quota: {{dgx: 4, old: 1}}}}\n"


def of(project_spec: str, *others: str) -> list[str]:
    return codes(compiled_of(a=project("team-a", project_spec), b="---\n".join(others)))


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("{quota: 22}", []),
        ("{quota: 22.001}", ["GPU3009"]),
        ("{quota: {dgx: 16, old: 6}}", []),
        ("{quota: {dgx: 17}}", ["GPU3009"]),
        ("{quota: {dgx: 17, old: 7}}", ["GPU3009", "GPU3009"]),
        ("{quota: {h100: 1}}", ["GPU3007"]),
        ("{quota: {dgx: 4}, limit: {dgx: 2}}", ["GPU3013"]),
        ("{quota: {dgx: 4}, limit: {old: 2}}", []),
        ("{quota: {dgx: 1}, nodeAffinity: {training: [old], interactive: [old]}}", ["GPU3012"]),
        ("{quota: {dgx: 1}, nodeAffinity: {training: [old]}}", []),
        ("{quota: {dgx: 0}, nodeAffinity: {training: [old], interactive: [old]}}", []),
        ("{quota: 7, nodeAffinity: {training: [old], interactive: [old]}}", ["GPU3012"]),
        ("{limit: {dgx: 2}, quota: 4}", ["GPU3011"]),
        ("{nodeAffinity: {training: []}}", ["GPU2018"]),
    ],
)
def test_one_projects_quota(spec: str, found: list[str]) -> None:
    assert of(spec) == found


def test_quotas_of_a_department_by_pool() -> None:
    member = "{department: research, quota: {dgx: 4, old: 1}}"
    assert of(member, RESEARCH) == []
    assert of(member, RESEARCH, project("team-b", "{department: research, quota: {old: 0.5}}")) == ["GPU3010"]


def test_quotas_that_add_up_to_too_much_are_marked_at_what_a_change_touched() -> None:
    """All in one file, where the last by name exceeds the 22 GPUs, and the first was raised."""
    quotas = {"team-a": 4, "team-b": 8, "team-c": 9}
    base = {"c.yaml": CLUSTER, "p.yaml": "---\n".join(project(name, f"{{quota: {n}}}") for name, n in quotas.items())}
    raised = {**base, "p.yaml": base["p.yaml"].replace("quota: 4", "quota: 6")}
    for before, marked in ((None, "quota: 9"), (compile_tree(tree_of(base)), "quota: 6")):
        (found,) = compile_tree(tree_of(raised), before=before).diagnostics
        assert (found.code, marked in found.source_line) == ("GPU3009", True)
    more = {**base, "n.yaml": project("team-0", "{quota: 2}")}
    (found,) = compile_tree(tree_of(more), before=compile_tree(tree_of(base))).diagnostics
    assert (found.span.file, len(found.related)) == ("n.yaml", 3)


def test_a_sum_is_marked_at_the_nodes_where_a_change_took_some_away() -> None:
    base = {"c.yaml": CLUSTER, **{f"{n}.yaml": project(n, "{quota: 11}") for n in ("team-a", "team-b")}}
    known = compile_tree(tree_of(base))
    gone = "".join(line for line in CLUSTER.splitlines(keepends=True) if "name: old" not in line)
    for cluster, marked in (
        (CLUSTER.replace("nodes: [d1, d2]", "nodes: [d1]"), "name: dgx"),
        (CLUSTER.replace("gpusPerNode: 8", "gpusPerNode: 7"), "name: dgx"),
        (gone, "nodePools:"),
    ):
        (found,) = compile_tree(tree_of({**base, "c.yaml": cluster}), before=known).diagnostics
        assert (found.code, found.span.file, marked in found.source_line) == ("GPU3009", "c.yaml", True)
        assert [told for told, _ in found.related] == ["Project team-a has 11", "Project team-b has 11"]
    both = {**base, "c.yaml": gone, "team-a.yaml": project("team-a", "{quota: 12}")}
    (found,) = compile_tree(tree_of(both), before=known).diagnostics
    assert found.span.file == "team-a.yaml"
    fewer = CLUSTER.replace("nodes: [d1, d2]", "nodes: [d1]")
    for other in ({"team-a.yaml": project("team-a", "{quota: 4}")}, {"team-0.yaml": project("team-0", "{quota: 1}")}):
        (found,) = compile_tree(tree_of({**base, "c.yaml": fewer, **other}), before=known).diagnostics
        assert found.span.file == "c.yaml"


def test_a_sum_of_a_department_is_marked_at_its_quota_or_at_the_project_that_came() -> None:
    member = "{department: research, quota: {dgx: 2}}"
    base = {
        "c.yaml": CLUSTER,
        "d.yaml": RESEARCH,
        **{f"{name}.yaml": project(name, member) for name in ("team-a", "team-b")},
        "team-0.yaml": project("team-0", "{quota: {dgx: 2}}"),
    }
    known = compile_tree(tree_of(base))
    assert known.declared is not None
    lowered = {**base, "d.yaml": RESEARCH.replace("dgx: 4", "dgx: 3")}
    (found,) = compile_tree(tree_of(lowered), before=known).diagnostics
    assert (found.code, found.span.file) == ("GPU3010", "d.yaml")
    joined = {**base, "team-0.yaml": project("team-0", member)}
    (found,) = compile_tree(tree_of(joined), before=known).diagnostics
    assert (found.code, found.span.file) == ("GPU3010", "team-0.yaml")


def test_plain_and_by_pool_is_told_once_for_each_that_departs_from_the_usual_form() -> None:
    others = [project("team-b", "{quota: {dgx: 1}}"), project("team-c", "{quota: 1, limit: {dgx: 2}}")]
    assert of("{quota: 4}", *others) == ["GPU3011", "GPU3011"]
    assert of("{quota: 4}", *others, RESEARCH) == ["GPU3011", "GPU3011"]
    assert of("{quota: {dgx: 4}}", *others, RESEARCH) == ["GPU3011"]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("{gpus: 8}", []),
        ("{gpus: 9}", ["GPU3016"]),
        ("{gpus: 4, workers: 4}", []),
        ("{gpus: 4, workers: 5}", ["GPU3017"]),
        ("{gpus: 4, workers: 6, minWorkers: 4}", []),
        ("{gpus: 4, workers: 6, minWorkers: 5}", ["GPU3017"]),
        ("{gpus: 0.5, workers: 32}", []),
        ("{gpus: 0.6, workers: 17}", ["GPU3017"]),
        ("{gpus: 0.5, nodePools: [old]}", ["GPU3019"]),
        ("{gpuMemory: 16Gi, workers: 32}", []),
        ("{gpuMemory: 17Gi, workers: 17}", ["GPU3017"]),
        ("{gpuMemory: 33Gi}", ["GPU3021"]),
        ("{resources: {cpu: 81}}", ["GPU3016"]),
        ("{resources: {cpu: 1}, nodePools: [old]}", ["GPU3016"]),
        ("{gpus: 6, workers: 3, resources: {cpu: 40}}", ["GPU3017"]),
        ("{gpus: 4, preemptible: false}", []),
        ("{gpus: 2, workers: 3, preemptible: false}", ["GPU3015"]),
        ("{gpus: 2, workers: 3, minWorkers: 2, preemptible: false}", []),
        ("{gpus: 0.5, type: interactive, workers: 9}", ["GPU3015"]),
        ("{gpus: 0, type: interactive, workers: 99}", []),
    ],
)
def test_jobs_that_can_never_start(spec: str, found: list[str]) -> None:
    assert of("{quota: 4}", job("train", spec.replace("{", "{image: x, ", 1))) == found


@pytest.mark.parametrize(
    ("project_spec", "spec", "found"),
    [
        ("{quota: {old: 6}}", "{gpus: 6, preemptible: false}", ["GPU3015"]),
        ("{quota: {old: 6}}", "{gpus: 4, preemptible: false}", []),
        ("{quota: {dgx: 6}}", "{gpus: 6, preemptible: false}", []),
        ("{quota: {dgx: 2, old: 6}, limit: {dgx: 5}}", "{gpus: 6}", ["GPU3014"]),
        ("{quota: {dgx: 2, old: 6}, limit: {dgx: 5}}", "{gpus: 4}", []),
    ],
)
def test_a_quota_or_limit_counts_in_a_pool_with_room_only(project_spec: str, spec: str, found: list[str]) -> None:
    """Nodes of `old` have four GPUs, those of `dgx` eight."""
    files = {
        "c.yaml": CLUSTER.replace("sharing: dra", "sharing: device-plugin"),
        "p.yaml": project("team-a", project_spec),
        "j.yaml": job("train", spec.replace("{", "{image: x, ", 1)),
    }
    assert codes(compile_tree(tree_of(files))) == found


@pytest.mark.parametrize(("gpus", "found"), [("8", []), ("9", ["GPU3014"])])
def test_a_jobs_limit_is_that_of_the_domains_of_its_pools(gpus: str, found: list[str]) -> None:
    train = job("train", f"{{image: x, gpus: 1, workers: {gpus}, nodePools: [dgx]}}")
    assert of("{quota: {dgx: 1}, limit: {dgx: 8, old: 6}}", train) == found
    assert of("{quota: {dgx: 1}, limit: {old: 0}}", train) == []


@pytest.mark.parametrize(
    ("project_spec", "departments", "owner"),
    [
        ("{department: lab}", {"lab": "{limit: 7}"}, 'department "lab"'),
        ("{department: lab, limit: 6}", {"lab": "{limit: 7}"}, 'project "team-a"'),
        ("{department: lab}", {"lab": "{department: all, limit: 7}", "all": "{limit: 4}"}, 'department "all"'),
        ("{department: lab}", {"lab": "{limit: 8}"}, None),
        ("{department: lab, quota: {dgx: 1}}", {"lab": "{limit: {dgx: 7}}"}, 'department "lab"'),
        ("{department: lab, quota: {dgx: 1}}", {"lab": "{limit: {old: 1}}"}, None),
    ],
)
def test_a_job_is_within_the_limits_of_the_departments_above(
    project_spec: str, departments: dict[str, str], owner: str | None
) -> None:
    train = job("train", "{image: x, gpus: 1, workers: 8, nodePools: [dgx]}")
    meta = f"{HEAD}kind: Department\nmetadata: "
    above = [f"{meta}{{name: {name}}}\nspec: {spec}\n" for name, spec in departments.items()]
    found = compiled_of(a=project("team-a", project_spec), b="---\n".join([train, *above])).diagnostics
    assert [each.code for each in found] == ([] if owner is None else ["GPU3014"])
    assert all(str(owner) in each.message for each in found)


def test_another_limit_of_a_department_is_seen_beside_what_was_compiled_before() -> None:
    files = {
        "c.yaml": CLUSTER,
        "d.yaml": f"{HEAD}kind: Department\nmetadata: {{name: lab}}\nspec: {{limit: 8}}\n",
        "p.yaml": project("team-a", "{department: lab}"),
        "j.yaml": job("train", "{image: x, gpus: 8}"),
    }
    before = compile_tree(tree_of(files))
    lower = {**files, "d.yaml": files["d.yaml"].replace("limit: 8", "limit: 7")}
    assert codes(compile_tree(tree_of(lower), before=before)) == ["GPU3014"]
    assert codes(compile_tree(tree_of(files), before=compile_tree(tree_of(lower)))) == []


def test_what_one_node_lacks_of_several_things_together() -> None:
    pools = CLUSTER.replace("resourcesPerNode: {cpu: 80, memory: 512Gi}", "resourcesPerNode: {cpu: 4, memory: 512Gi}")
    pools = pools.replace("gpusPerNode: 4,", "gpusPerNode: 4, resourcesPerNode: {cpu: 80, memory: 1Gi},")
    train = job("train", "{image: x, gpus: 8, resources: {cpu: 8}}")
    (found,) = compile_tree(tree_of({"c.yaml": pools, "p.yaml": project("team-a"), "j.yaml": train})).diagnostics
    assert (found.code, found.span.column) == ("GPU3016", 7)
    assert "together" in found.message


@pytest.mark.parametrize(
    ("spec", "pools", "codes"),
    [
        ("{gpus: 1}", ["dgx"], []),
        ("{gpus: 1, nodePools: [dgx, old]}", ["dgx"], ["GPU3028"]),
        ("{gpus: 1, nodePools: [old]}", ["old"], []),
        ("{gpus: 0}", ["dgx", "old"], []),
    ],
)
def test_a_job_keeps_to_pools_that_hand_out_gpus_alike(spec: str, pools: list[str], codes: list[str]) -> None:
    train = job("train", spec.replace("{", "{image: x, ", 1))
    compiled = compile_tree(tree_of({"c.yaml": CLUSTER, "p.yaml": project("team-a"), "j.yaml": train}))
    assert [d.code for d in compiled.diagnostics] == codes
    assert compiled.declared is not None
    assert list(compiled.declared.jobs[0].pools) == pools
