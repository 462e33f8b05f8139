"""READINGS: compiling with what was read before gives what compiling from nothing gives, whatever was edited."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trees import CLUSTER, HEAD, job, project, tree_of

from gpuctl.compile import CompileCache, compile_tree
from gpuctl.compile.stored import restored, stored
from gpuctl.model.ids import Revision
from gpuctl.model.source import SourceFault, SourceFile, SourceTree

POLICY = HEAD + (
    "kind: Policy\nmetadata: {name: names}\nspec:\n  message: no\n  match: {kind: Job}\n"
    "  schema: {properties: {spec: {properties: {image: {const: x}}}}}\n"
)
DEPARTMENT = f"{HEAD}kind: Department\nmetadata: {{name: d}}\nspec: {{quota: 8}}\n"
BAD = ["a: [", "--- 1", "\t", "", "kind: Project\nname: team-c\n  x"]
CLUSTERS = [CLUSTER, CLUSTER.replace("gpus: 2", "gpus: 12"), CLUSTER.replace("old", "new"),
            f"{CLUSTER}  namespacePrefix: x-\n",
            CLUSTER.replace("sharing: dra", "sharing: device-plugin")]  # fmt: skip
TEAMS = ["team-a", "team-b"]
QUOTAS = ["{quota: 4}", "{quota: 8, department: d}", "{quota: {dgx: 4}}",
          "{quota: {dgx: 4, old: 0}, limit: {dgx: 4}}",
          "{quota: 4, nodeAffinity: {training: [old]}}", "{quota: 2, training: {maxDuration: 8h}}",
          "{quota: 4, limit: 2}", "{}", "{quota: [}"]  # fmt: skip
JOBS = ["{image: x, gpus: 1}", "{image: y, gpus: 1}", "{image: x, gpus: 0.5}", "{image: x, gpus: 9}",
        "{image: x, type: interactive, gpus: 3}", "{image: x, gpus: 1, workers: 6, preemptible: false}",
        "{image: x, gpus: 1, nodePools: [old]}", "{image: x, gpus: 1, maxDuration: 9h}",
        "{image: x, gpsu: 2}", "{template: {name: t}}", "{template: {name: t, with: {gpus: 2}}, priority: 3}",
        "{template: {name: t, with: {gpus: 9}}}", "{template: {name: t, with: {x: 9}}, gpsu: 3}",
        "{template: {name: s}, image: y}"]  # fmt: skip
TEMPLATES = ["{parameters: {}, job: {image: x}}",
             "{parameters: {gpus: {type: number, default: 1}}, job: {gpus: {$parameter: gpus}}}",
             "{parameters: {gpus: {type: number}}, job: {image: y, gpus: {$parameter: gpus}}}",
             "{parameters: {}, job: {image: y, gpsu: 1}}", "{job: ["]  # fmt: skip


def declared_template(metadata: str, spec: str) -> str:
    return f"{HEAD}kind: Template\nmetadata: {metadata}\nspec: {spec}\n"


PLACES = {
    "k/cluster.yaml": st.sampled_from(CLUSTERS),
    "k/policies/p.yaml": st.sampled_from([POLICY, POLICY.replace("const: x", "minLength: 2")]),
    "k/d.yaml": st.just(DEPARTMENT),
    "k/t.yaml": st.builds(declared_template, st.sampled_from(["{name: t}", "{name: s}"]), st.sampled_from(TEMPLATES)),
    **{
        f"k/projects/{team}/t.yaml": st.builds(
            declared_template,
            st.sampled_from([f"{{name: t, project: {other}}}" for other in TEAMS]),
            st.sampled_from(TEMPLATES),
        )
        for team in TEAMS
    },
    "k/more.yaml": st.builds(project, st.just("taem-c"), st.sampled_from(QUOTAS)),
    **{f"k/projects/{team}/project.yaml": st.builds(project, st.just(team), st.sampled_from(QUOTAS)) for team in TEAMS},
    **{
        f"k/projects/{team}/{number}.yaml": st.builds(
            job, st.sampled_from(["j-1", "j-2"]), st.sampled_from(JOBS), st.sampled_from([team, team, "team-c"])
        )
        for team in TEAMS
        for number in range(2)
    },
}
"""What may be written where, most of it right."""


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, SourceFile | None]:
    path = draw(st.sampled_from(sorted(PLACES)))
    how = draw(st.integers(0, 11))
    if how == 0:
        return path, None
    if how == 1:
        return path, SourceFile(content=b"", fault=draw(st.sampled_from(list(SourceFault))))
    text = draw(st.sampled_from(BAD)) if how == 2 else draw(PLACES[path])
    if how == 3:
        text += "---\n" + draw(PLACES[draw(st.sampled_from(sorted(PLACES)))])
    return path, SourceFile(content=text.encode(), revision=Revision(str(how % 2)))


START = tree_of(
    {
        "k/cluster.yaml": CLUSTERS[1],
        "k/policies/p.yaml": POLICY,
        "k/projects/team-a/project.yaml": project("team-a"),
        "k/projects/team-a/1.yaml": job("j-1"),
        "k/projects/team-b/project.yaml": project("team-b"),
        "k/projects/team-b/1.yaml": job("j-1", owner="team-b"),
        "k/projects/team-b/0.yaml": job("j-0", "{image: x, gpus: 9}", owner="team-b"),
        "k/t.yaml": declared_template("{name: t}", TEMPLATES[0]),
        "k/projects/team-b/2.yaml": job("j-2", "{template: {name: t}}", owner="team-b"),
    },
    "k",
)


def edited(tree: SourceTree, edits: dict[str, SourceFile | None]) -> SourceTree:
    files = {path: file for path, file in {**tree.files, **edits}.items() if file is not None}
    return replace(tree, files=files)


def at(path: str, text: str) -> tuple[str, SourceFile]:
    return f"k/projects/{path}.yaml", SourceFile(content=text.encode())


@example(  # whether quotas count by pool is decided by the first project that has one
    [
        at("team-a/project", project("team-a", "{}")),
        at("team-b/project", project("team-b", "{quota: {dgx: 4}}")),
        at("team-b/0", job("j-0", "{image: x, type: interactive, gpus: 3}", "team-b")),
        at("team-a/project", project("team-a")),
    ]
)
@given(st.lists(edits(), min_size=1, max_size=12))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_what_was_read_before_changes_nothing(commits: list[tuple[str, SourceFile | None]]) -> None:
    cache, tree = CompileCache(), START
    assert compile_tree(tree, cache) == compile_tree(tree)
    for path, file in commits:
        tree = edited(tree, {path: file})
        assert compile_tree(tree, cache) == compile_tree(tree)
    kept = restored(stored(cache)) or CompileCache()  # as another process gets it
    assert compile_tree(START, cache) == compile_tree(START, kept) == compile_tree(START)


def test_only_what_changed_is_made_anew() -> None:
    cache = CompileCache()
    first = compile_tree(START, cache).declared
    changed = {"k/projects/team-a/2.yaml": SourceFile(content=job("j-2").encode())}
    second = compile_tree(edited(START, dict(changed)), cache).declared
    assert first is not None
    assert second is not None
    before = {one.id: one for one in first.jobs}
    assert [one.id.name for one in second.jobs if one is not before.get(one.id)] == ["j-2"]

    wider = {"k/projects/team-a/project.yaml": SourceFile(content=project("team-a", "{quota: 5}").encode())}
    third = compile_tree(edited(START, {**changed, **wider}), cache).declared
    assert third is not None
    of_before = {id(one) for one in second.jobs}
    assert [str(one.id) for one in third.jobs if id(one) in of_before] == ["team-b/j-0", "team-b/j-1", "team-b/j-2"]

    text = declared_template("{name: t}", "{parameters: {}, job: {image: x, runIndex: 3}}")
    other = {"k/t.yaml": SourceFile(content=text.encode())}
    fourth = compile_tree(edited(START, {**changed, **wider, **other}), cache).declared
    assert fourth is not None
    of_before = {id(one) for one in third.jobs}
    assert [str(one.id) for one in fourth.jobs if id(one) not in of_before] == ["team-b/j-2"]
