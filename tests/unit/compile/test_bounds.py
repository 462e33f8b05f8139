"""Whatever number is declared, no loop, list or text of that size is made of it; and what is long ends somewhere."""

from __future__ import annotations

import time
from typing import Any

import pytest
from trees import CLUSTER, HEAD, codes, compiled_of, job, project, tree_of

from gpuctl.compile import compile_tree, parse_documents
from gpuctl.compile.declarations import Declaration, ReadCache, collect
from gpuctl.compile.document import MAX_MISTAKES, MOST_TOLD
from gpuctl.compile.fit import MOST_JOBS, Fitted, fit_jobs
from gpuctl.compile.quota import quota_domains
from gpuctl.compile.resolve import resolve
from gpuctl.diag.diagnostic import Severity
from gpuctl.model.memo import Memo
from gpuctl.model.units import MOST_NODE_GPUS

HUGE = ["2147483648", "9223372036854775808", "9" * 17, "9" * 5000, "'" + "9" * 5000 + "'", "1e17", "1e999999",
        "'1e999999'", "0x7fffffffffffffff", "0o777777777777777777777"]  # fmt: skip
LONG = ["999999999d", "9" * 9 + "d" + "9" * 9 + "h", "9" * 5000 + "d", "1e30d", "100000000000000000s"]
LARGE = [
    "9223372036854775808",
    "9" * 5000,
    "1e999999",
    "0x7fffffffffffffff",
    "999999999999Pi",
    "'" + "9" * 5000 + "Gi'",
    "1e999999Gi",
]


def cluster(pool: str = "", **spec: str) -> str:
    rest = "".join(f"  {field}: {value}\n" for field, value in spec.items())
    return (
        f"{HEAD}kind: Cluster\nmetadata: {{name: c}}\nspec:\n  nodePools: [{{name: dgx, nodes: [d1], {pool}}}]\n{rest}"
    )


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("gpusPerNode: {}", [*HUGE, str(MOST_NODE_GPUS + 1)]),
        ("gpusPerNode: 8, nodes: [{{name: d2, gpus: {}}}]", HUGE),
        ("gpusPerNode: 8, mig: {{1g.5gb: {}}}", HUGE),
        ("gpusPerNode: 8, gpuSlots: {}", HUGE),
        ("resourcesPerNode: {{cpu: {}}}", [*HUGE, "2147483648000m"]),
        ("resourcesPerNode: {{memory: {}}}", LARGE),
        ("gpuMemory: {}", LARGE),
    ],
)
def test_what_a_node_has_is_bounded(field: str, values: list[str]) -> None:
    for value in values:
        found = compile_tree(tree_of({"c.yaml": cluster(field.format(value).replace("nodes: [d1], ", ""))}))
        assert found.declared is None, value
        assert {d.span.file for d in found.diagnostics} == {"c.yaml"}


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("{{image: x, gpus: {}}}", [*HUGE, "1025"]),
        ("{{image: x, workers: {}}}", HUGE),
        ("{{image: x, minWorkers: {}}}", HUGE),
        ("{{image: x, retries: {}}}", HUGE),
        ("{{image: x, priority: {}}}", HUGE),
        ("{{image: x, runIndex: {}}}", HUGE),
        ("{{image: x, gpuMemory: {}}}", LARGE),
        ("{{image: x, resources: {{cpu: {}}}}}", HUGE),
        ("{{image: x, resources: {{memory: {}}}}}", LARGE),
        ("{{image: x, volumes: [{{newClaim: {{size: {}}}, mountPath: /m}}]}}", LARGE),
        ("{{image: x, maxDuration: {}}}", LONG),
        ("{{image: x, expose: [{{port: {}}}]}}", HUGE),
    ],
)
def test_what_a_job_asks_for_is_bounded(spec: str, values: list[str]) -> None:
    for value in values:
        found = compiled_of(p=project("team-a", "{quota: 4}"), j=job("j", spec.format(value)))
        assert found.declared is None, value
        assert {d.span.file for d in found.diagnostics} == {"j.yaml"}


def test_what_a_project_is_given_is_bounded() -> None:
    for field, values in (
        ("quota", [*HUGE, "1000001"]), ("limit", HUGE), ("overQuotaWeight", HUGE), ("priority", HUGE),
        ("training: {maxDuration", LONG), ("interactive: {idleTimeout", LONG),
    ):  # fmt: skip
        for value in values:
            spec = f"{{{field}: {value}}}" + ("}" if "{" in field else "")
            assert compiled_of(p=project("team-a", spec)).declared is None, spec


@pytest.mark.parametrize(
    "spec",
    [
        "{image: " + "x" * 2000 + "}",
        "{image: x, env: {" + ", ".join(f"A{n}: x" for n in range(1001)) + "}}",
        "{image: x, env: {" + "A" * 300 + ": x}}",
        "{image: x, args: [" + "a, " * 10_001 + "]}",
        "{image: x, expose: [" + ", ".join(f"{{port: {n}}}" for n in range(1, 102)) + "]}",
        "{image: x, volumes: [" + ", ".join(f"{{claim: c, mountPath: /m{n}}}" for n in range(101)) + "]}",
        "{image: x, nodePools: [" + ", ".join(f"p{n}" for n in range(101)) + "]}",
        "{image: x, workingDir: /" + "x" * 5000 + "}",
    ],
)
def test_lists_and_texts_are_bounded(spec: str) -> None:
    found = compiled_of(p=project("team-a"), j=job("j", spec))
    assert codes(found) == ["GPU2018"]
    assert len(found.diagnostics[0].message) < 400


@pytest.mark.parametrize(
    "bomb",
    [
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(9)),
        f"a: &a '{'x' * 1_000_000}'\nb: [{', '.join(['*a'] * 9000)}]\n",
        f"a: &a\n  ? {'k' * 1_000_000}\n  : 1\nb: [{', '.join(['*a'] * 4000)}]\n",
        f"a: &a ['{'x' * 100_000}']\nb: &b [{', '.join(['*a'] * 9)}]\nc: [{', '.join(['*b'] * 500)}]\n",
    ],
)
def test_aliases_are_counted_with_the_text_they_stand_for(bomb: str) -> None:
    documents, diagnostics = parse_documents("f.yaml", bomb.encode())
    assert [d.code for d in diagnostics] == ["GPU1009"]
    assert documents == []


def test_of_very_many_mistakes_the_first_of_each_project_are_told() -> None:
    many = "--- {}\n" * (MOST_TOLD + 500)
    files: dict[str, str | bytes] = {
        "c.yaml": CLUSTER, "projects/a/x.yaml": many, "projects/a/y.yaml": many, "projects/b/x.yaml": "--- {}\n",
    }  # fmt: skip
    found = compile_tree(tree_of(files))
    of_a = [d for d in found.diagnostics if d.span.file.startswith("projects/a/")]
    assert len(of_a) == MOST_TOLD + 1
    assert (of_a[-1].code, of_a[-1].severity) == ("GPU1022", Severity.ERROR)
    assert [d.code for d in found.diagnostics if d.span.file.startswith("projects/b/")] == ["GPU2005"]


_MANY = "".join(f"  a{n}: 1\n" for n in range(MAX_MISTAKES))
_WRONG_FIELDS = f"{HEAD}kind: Job\nmetadata: {{name: j, project: a}}\nspec:\n{_MANY}"
_SAME_KEYS = "kind: Job\n" + "a: 1\n" * MAX_MISTAKES
_TYPES = "".join(f"    p{n}: {{type: text}}\n" for n in range(60))
_ENV = "".join(f"        e{n}: {{$parameter: p{n}}}\n" for n in range(60))
_TEMPLATE = (
    f"{HEAD}kind: Template\nmetadata: {{name: t, project: a}}\nspec:\n  parameters:\n{_TYPES}"
    f"  job:\n    image: x\n    gpus: 1\n    env:\n{_ENV}"
)
_GIVEN = ", ".join(f"p{n}: 1" for n in range(60))
_WRONG_ARGUMENTS = job("j", f"{{template: {{name: t, with: {{{_GIVEN}}}}}}}", "a")


@pytest.mark.parametrize("text", [_WRONG_FIELDS, _SAME_KEYS, _WRONG_ARGUMENTS], ids=["fields", "keys", "arguments"])
@pytest.mark.parametrize("files", [1, 60])
def test_once_so_many_are_told_one_mistake_of_each_document_is_looked_for(text: str, files: int) -> None:
    """A megabyte of wrong fields would take minutes, for all projects."""
    each = "---\n".join([text] * (60 // files))
    tree: dict[str, str | bytes] = {f"projects/a/{n:02}.yaml": each for n in range(files)}
    tree |= {"projects/a/template.yaml": _TEMPLATE, "projects/b/x.yaml": text}
    found = collect(tree_of({"c.yaml": CLUSTER, **tree}), ReadCache()).diagnostics
    of_a = [d for d in found if d.span.file.startswith("projects/a/")]
    assert MOST_TOLD <= len(of_a) <= MOST_TOLD + MAX_MISTAKES + 60
    assert len({(d.span.file, d.span.line) for d in of_a}) > 60 - 1
    of_b = [d for d in found if d.span.file.startswith("projects/b/")]
    assert len(of_b) >= MAX_MISTAKES or text == _WRONG_ARGUMENTS


def test_the_jobs_of_a_project_are_bounded() -> None:
    declarations = collect(tree_of({"c.yaml": CLUSTER, "p.yaml": project("team-a"), "j.yaml": job("j")}), ReadCache())
    resolved = resolve(declarations, tree_of({"c.yaml": CLUSTER}))
    resolved.domains = quota_domains(resolved)
    fitted: Memo[Declaration[Any], Fitted] = Memo()
    fit_jobs(declarations, resolved, fitted)
    declarations.jobs *= MOST_JOBS + 500
    jobs, found = fit_jobs(declarations, resolved, fitted)
    assert len(jobs) == MOST_JOBS
    assert [d.code for d in found] == ["GPU3031"]


def test_departments_as_deep_as_they_are_many_are_no_recursion() -> None:
    chain = [f"{HEAD}kind: Department\nmetadata: {{name: d0}}\n"]
    chain += [
        f"{HEAD}kind: Department\nmetadata: {{name: d{n}}}\nspec: {{department: d{n - 1}}}\n" for n in range(1, 900)
    ]
    found = compile_tree(tree_of({"c.yaml": CLUSTER, "d.yaml": "---\n".join(chain)}))
    assert set(codes(found)) == {"GPU3030"}


def test_names_like_unknown_ones_are_looked_for_a_bounded_number_of_times() -> None:
    """Each of n jobs was compared with each of n templates: 800 took 7 s in each compilation, 1,600 four times that."""
    files = {"c.yaml": CLUSTER, "p.yaml": project("team-a")}
    of_project = "metadata: {{name: {name}-{at}, project: team-a}}\n"
    files["t.yaml"] = "---\n".join(
        f"{HEAD}kind: Template\n{of_project.format(name='template', at=at)}spec: {{job: {{image: x}}}}\n"
        for at in range(1500)
    )
    files["j.yaml"] = "---\n".join(
        f"{HEAD}kind: Job\n{of_project.format(name='job', at=at)}spec: {{template: {{name: tmeplate-{at}}}}}\n"
        for at in range(1500)
    )
    files["projects.yaml"] = "---\n".join(
        f"{HEAD}kind: Project\nmetadata: {{name: p{at}}}\nspec: {{quota: 0, department: departmnet-{at}}}\n"
        for at in range(1500)
    )
    files["d.yaml"] = "---\n".join(
        f"{HEAD}kind: Department\nmetadata: {{name: department-{at}}}\nspec: {{}}\n" for at in range(200)
    )
    began = time.process_time()
    found = compile_tree(tree_of(files)).diagnostics
    assert time.process_time() - began < 12
    assert "GPU3080" in {each.code for each in found}
