"""Of more than there is memory for, the project with the most stays as it was: no other team waits for it.

`validate` tells of a change beforehand what will be held back.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from commits import BASE, CLUSTER, Commits, job, project

from gpuctl.app.revisions import OWN, Desired, Revisions
from gpuctl.app.validate import expand, validate, validate_change
from gpuctl.app.validation import Validation
from gpuctl.compile import DeclaredSize
from gpuctl.diag.diagnostic import Severity
from gpuctl.model.ids import ProjectName
from gpuctl.model.source import SourceTree
from gpuctl.model.state import Ledger
from gpuctl.observe import Records
from gpuctl.observe.ledgers import ClusterRecords

A, B = ProjectName("a"), ProjectName("b")
MOST = 50
BESIDE = 1000
"""Documents that may be read beside the jobs."""


def sweep(name: str, owner: str, completions: int) -> str:
    return job(name, owner).replace("gpus: 1", f"gpus: 1, sweep: {{completions: {completions}}}")


def followed(*trees: Mapping[str, str], most_jobs: int | None = MOST) -> Desired:
    commits, desired = Commits(), Desired()
    revisions = Revisions(commits, most_jobs)
    for files in trees:
        head = commits.commit(files)
        desired = revisions.compose(commits.tree(head), Records())
    return desired


def jobs_of(desired: Desired) -> dict[str, int]:
    assert desired.declared is not None
    counts: dict[str, int] = {}
    for each in desired.declared.jobs:
        counts[each.id.project] = counts.get(each.id.project, 0) + 1
    return counts


def errors(desired: Desired) -> dict[str, str]:
    return {found.code: found.span.file for found in desired.diagnostics if found.severity is Severity.ERROR}


@pytest.mark.parametrize("begin", ["---\n", "\r---\n", "\x85---\n", "\u2028---\n", "\u2029--- # another\n"])
def test_of_a_flood_of_documents_nothing_is_read(begin: str) -> None:
    """Wrong ones too: what they say is not looked at, so that they take no memory."""
    flood = {"c/projects/a/flood.yaml": "\n" + f"kind: Job\n{begin}" * (MOST + BESIDE)}
    held = followed(BASE, {**BASE, **flood, "c/projects/b/j3.yaml": job("j3", "b")})
    assert jobs_of(held) == {"a": 1, "b": 2}
    assert set(held.kept_back) == {A}
    assert errors(held) == {"GPU1024": "c/projects/a/project.yaml"}


@pytest.mark.parametrize(
    "text",
    ["#" * 750_000, "[" + "{}," * 9000 + "]", "[" + "1," * 18_000 + "]", "- - - - a\n" * 4000, "a: {b: c}\n" * 5000],
    ids=["bytes", "mappings", "numbers", "lists in lists", "fields"],
)
def test_of_a_flood_of_bytes_or_values_nothing_is_read(text: str) -> None:
    large = {f"c/projects/a/{n}.yaml": text for n in range(3)}
    held = followed(BASE, {**BASE, **large, "c/projects/b/j3.yaml": job("j3", "b")})
    assert jobs_of(held) == {"a": 1, "b": 2}
    assert errors(held) == {"GPU1024": "c/projects/a/project.yaml"}


def test_a_sweep_of_more_than_there_is_memory_for_stays_behind() -> None:
    held = followed(
        BASE, {**BASE, "c/projects/a/s.yaml": sweep("s", "a", MOST), "c/projects/b/j3.yaml": job("j3", "b")}
    )
    assert jobs_of(held) == {"a": 1, "b": 2}
    assert set(held.kept_back) == {A}
    assert errors(held) == {"GPU3035": "c/projects/a/s.yaml"}


LONG = ", ".join(f"V{n}: {'y' * 10_000}" for n in range(15))
MANY = "---\n".join(job(f"k{n}", "a") for n in range(12))


@pytest.mark.parametrize(
    "files",
    [
        {"t": f"apiVersion: gpuctl.dev/v1\nkind: Template\nmetadata: {{name: t, project: a}}\n"
              f"spec: {{job: {{image: x, gpus: 1, env: {{{LONG}}}}}}}\n",
         "k": MANY.replace("image: x, gpus: 1", "template: {name: t}")},
        {"project": project("a").replace("quota: 4", f"quota: 4, defaults: {{all: {{env: {{{LONG}}}}}}}"), "k": MANY},
        {"s": sweep("s", "a", 12).replace("gpus: 1", f"gpus: 1, env: {{{LONG}}}")},
    ],
    ids=["of a template", "of defaults", "of a sweep"],
)  # fmt: skip
def test_text_that_is_written_once_and_is_in_many_jobs_counts_in_each(files: Mapping[str, str]) -> None:
    """150 KB in a file; 2 MB in 12 jobs, and so in the memory of the reconciler and the store of the API server."""
    more = {f"c/projects/a/{name}.yaml": text for name, text in files.items()}
    held = followed(BASE, {**BASE, **more, "c/projects/b/j3.yaml": job("j3", "b")})
    assert jobs_of(held) == {"a": 1, "b": 2}
    assert set(held.kept_back) == {A}
    (told,) = [found for found in held.diagnostics if found.code == "GPU3035"]
    assert "KiB of text in jobs" in told.message
    assert jobs_of(followed(BASE, {**BASE, **more}, most_jobs=1000))["a"] == 13


VOLUMES = ", ".join(f"{{claim: c, mountPath: /m/{n}}}" for n in range(100))


def test_what_is_written_once_and_takes_memory_by_its_number_counts_in_each_job() -> None:
    """2,000 jobs of a template with 60 volumes took 530 MiB, of the 384 that were given for 2,000 jobs."""
    template = "apiVersion: gpuctl.dev/v1\nkind: Template\nmetadata: {name: t, project: a}\n"
    spec = f"spec: {{job: {{image: x, gpus: 1, volumes: [{VOLUMES}]}}}}\n"
    jobs = "---\n".join(job(f"k{n}", "a").replace("image: x, gpus: 1", "template: {name: t}") for n in range(24))
    more = {"c/projects/a/t.yaml": template + spec, "c/projects/a/k.yaml": jobs}
    held = followed(BASE, {**BASE, **more})
    assert (jobs_of(held), set(held.kept_back)) == ({"a": 1, "b": 1}, {A})
    assert "KiB of text in jobs" in next(each for each in held.diagnostics if each.code == "GPU3035").message
    assert jobs_of(followed(BASE, {**BASE, **more}, most_jobs=1000))["a"] == 25


def test_as_many_as_there_is_memory_for_are_enforced_and_then_again() -> None:
    full = {**BASE, "c/projects/a/s.yaml": sweep("s", "a", MOST - 2)}
    more = {**full, "c/projects/b/j3.yaml": job("j3", "b")}
    assert jobs_of(followed(BASE, full)) == {"a": MOST - 1, "b": 1}
    assert jobs_of(followed(BASE, full, more, full)) == {"a": MOST - 1, "b": 1}
    assert jobs_of(followed(BASE, full, more, BASE)) == {"a": 1, "b": 1}
    assert jobs_of(followed(BASE, more, most_jobs=None)) == {"a": MOST - 1, "b": 2}


def test_as_many_projects_stay_behind_as_have_to() -> None:
    names = "abcdef"
    begun = {"c/cluster.yaml": CLUSTER, **{f"c/projects/{p}/project.yaml": project(p, quota=1) for p in names}}
    grown = {f"c/projects/{p}/s.yaml": sweep("s", p, 10 + n) for n, p in enumerate(names)}
    held = followed(begun, {**begun, **grown})
    assert jobs_of(held) == {"a": 10, "b": 11, "c": 12, "d": 13}
    assert set(held.kept_back) == {"e", "f"}


def test_the_clusters_own_files_stay_behind_alone() -> None:
    shared = {"c/shared.yaml": sweep("s", "a", 30) + "---\n" + sweep("s", "b", 30)}
    held = followed(BASE, {**BASE, **shared, "c/projects/b/j3.yaml": job("j3", "b")})
    assert jobs_of(held) == {"a": 1, "b": 2}
    assert set(held.kept_back) == {OWN}
    assert errors(held) == {"GPU3035": "c/shared.yaml"}


def test_a_flood_in_the_clusters_own_files_leaves_out_no_project() -> None:
    held = followed(BASE, {**BASE, "c/shared.yaml": "---\n" * (MOST + BESIDE), "c/projects/b/j3.yaml": job("j3", "b")})
    assert jobs_of(held) == {"a": 1, "b": 2}


def test_a_process_with_less_memory_than_the_one_before_leaves_the_rest_alone() -> None:
    """What fits is enforced. Runs of the others are left as they are, as those of a project that can't be read are."""
    commits = Commits()
    files = {**BASE, "c/projects/a/s.yaml": sweep("s", "a", 30), "c/projects/b/s.yaml": sweep("s", "b", 10)}
    before = Revisions(commits).compose(commits.tree(commits.commit(files)), Records())
    assert before.declared is not None
    contents = before.declared.project_contents
    ledgers = {
        owner: Ledger(project=owner, revision=revision, content=contents[owner])
        for owner, revision in before.declared.project_revisions.items()
    }
    now = Revisions(commits, 20).compose(
        commits.tree(commits.head()), Records(by_cluster={"one": ClusterRecords(ledgers=ledgers)})
    )
    assert jobs_of(now) == {"b": 11}
    assert now.declared is not None
    assert now.declared.pinned == {A}


def test_what_is_enforced_is_measured_as_it_is_counted() -> None:
    text = {"c/projects/a/s.yaml": sweep("s", "a", 12).replace("gpus: 1", f"gpus: 1, env: {{T: {'y' * 1000}}}")}
    held = followed(BASE, {**BASE, **text}, {**BASE, **text, "c/projects/b/s.yaml": sweep("s", "b", MOST)})
    assert held.size.jobs == jobs_of(held) == {"a": 13, "b": 1}
    assert held.size.text_bytes == {"a": 12 * 1001, "b": 0}
    assert (held.size.most_jobs, held.size.most_text_bytes) == (MOST, (8 * MOST + 1024) << 10)
    unbounded = followed(BASE, most_jobs=None).size
    assert (unbounded.jobs, unbounded.most_jobs, unbounded.most_text_bytes) == ({"a": 1, "b": 1}, None, None)


@pytest.mark.parametrize(
    ("jobs", "text", "most_jobs", "what"),
    [
        ({A: 45, B: 46}, {A: 0, B: 0}, 100, "jobs"),
        ({A: 45, B: 45}, {A: 0, B: 0}, 100, None),
        ({A: 1, B: 2}, {A: 800 << 10, B: 900 << 10}, 100, "KiB of text in jobs"),
        ({A: 1, B: 2}, {A: 800 << 10, B: 800 << 10}, 100, None),
        ({A: 1000, B: 2000}, {A: 1 << 30, B: 1 << 31}, None, None),
        ({}, {}, 100, None),
    ],
)
def test_more_than_nine_tenths_of_the_memory_are_told_with_the_project_that_has_the_most(
    jobs: Mapping[ProjectName, int], text: Mapping[ProjectName, int], most_jobs: int | None, what: str | None
) -> None:
    words = DeclaredSize(jobs=jobs, text_bytes=text, most_jobs=most_jobs).nearly_full()
    assert (None if words is None else (words["what"], words["project"])) == (what and (what, "b"))


def tree(files: Mapping[str, str]) -> SourceTree:
    commits = Commits()
    return commits.tree(commits.commit(files))


def checked(before: Mapping[str, str] | None, now: Mapping[str, str], most_jobs: int | None = MOST) -> Validation:
    trees = None if before is None else tree(before), tree(now)
    return validate_change(["c"], lambda _: trees, most_jobs=most_jobs)


def told(found: Validation) -> list[tuple[str, str]]:
    return [(each.code, each.span.file) for each in found.diagnostics]


FULL = {**BASE, "c/projects/a/s.yaml": sweep("s", "a", MOST - 2)}
OVER = {**BASE, "c/projects/a/s.yaml": sweep("s", "a", MOST + 7)}
FLOOD = {"c/projects/a/flood.yaml": "---\n" * (MOST + BESIDE)}
MORE = {"c/projects/b/j3.yaml": job("j3", "b")}


@pytest.mark.parametrize(
    "change",
    [
        MORE,
        {"c/projects/a/s.yaml": sweep("s", "a", MOST - 2)},
        {"c/projects/a/s.yaml": sweep("s", "a", MOST - 1)},
        {"c/projects/a/s.yaml": sweep("s", "a", MOST - 2), **MORE},
        {"c/shared.yaml": sweep("s", "a", 30) + "---\n" + sweep("s", "b", 30)},
        {"c/projects/a/s.yaml": sweep("s", "a", 12).replace("gpus: 1", f"gpus: 1, env: {{{LONG}}}")},
        FLOOD,
        {f"c/projects/a/{n}.yaml": "#" * 750_000 for n in range(3)},
        {f"c/projects/a/{n}.yaml": "[" + "{}," * 9000 + "]" for n in range(3)},
    ],
    ids=["one", "as many as can be", "too many", "too many of two", "shared", "text", "documents", "bytes", "values"],
)
def test_a_change_is_told_a_mistake_exactly_where_a_part_of_it_will_be_held_back(change: Mapping[str, str]) -> None:
    now = {**BASE, **change}
    is_held = bool(followed(BASE, now).kept_back)
    for found in (
        checked(BASE, now),
        checked(None, now),
        validate(["c"], lambda _: tree(now), most_jobs=MOST),
        expand(["c"], lambda _: tree(now), MOST)[0],
    ):
        assert found.valid is not is_held
        assert {code for code, _ in told(found)} <= {"GPU3035", "GPU1024"}
    assert not set(told(checked(BASE, now, None))) & {"GPU3035", "GPU1024"}


def test_of_a_cluster_with_too_many_jobs_none_is_printed() -> None:
    assert len(expand(["c"], lambda _: tree(FULL), MOST)[1]) == 3
    assert expand(["c"], lambda _: tree(OVER), MOST)[1] == []


def test_a_change_that_makes_it_too_much_is_told_at_a_job_of_its_own_where_it_has_one() -> None:
    """Else, of a project that has the most: what the change adds will be held back for it."""
    assert told(checked(FULL, {**FULL, "c/projects/a/a.yaml": job("a", "a")})) == [("GPU3035", "c/projects/a/a.yaml")]
    assert told(checked(FULL, {**FULL, **MORE})) == [("GPU3035", "c/projects/a/s.yaml")]
    assert set(followed(BASE, FULL, {**FULL, **MORE}).kept_back) == {B}


def test_what_was_too_much_before_is_no_fault_of_a_change_elsewhere() -> None:
    found = checked(OVER, {**OVER, **MORE})
    assert (told(found), found.known, found.valid) == ([], 1, True)
    found = checked({**BASE, **FLOOD}, {**BASE, **FLOOD, **MORE})
    assert (told(found), found.known, found.valid) == ([], 1, True)
    more = {"c/projects/a/a.yaml": job("a", "a")}
    assert told(checked(OVER, {**OVER, **more})) == [("GPU3035", "c/projects/a/a.yaml")]
    assert told(checked(OVER, FULL)) == []
    assert told(checked({**BASE, **FLOOD}, BASE)) == []
