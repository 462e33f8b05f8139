from __future__ import annotations

from collections.abc import Mapping

import pytest
from commits import BASE, CLUSTER, Commits, job, project
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.app.revisions import OWN, Desired, Revisions
from gpuctl.diag.diagnostic import Severity
from gpuctl.model.ids import ProjectName, Revision
from gpuctl.model.state import Ledger
from gpuctl.observe import Records
from gpuctl.observe.ledgers import ClusterRecords

A, B = ProjectName("a"), ProjectName("b")
BROKEN = "apiVersion: gpuctl.dev/v1\nkind: Job\nmetadata: {name: j1, project: a}\nspec: {image: x, gpuss: 1}\n"


def ledgers(revision: Revision, *owners: str) -> dict[ProjectName, Ledger]:
    return {ProjectName(o): Ledger(project=ProjectName(o), revision=revision) for o in owners or ("", "a", "b")}


def recorded(desired: Desired) -> dict[ProjectName, Ledger]:
    """The ledgers as a plan would write them."""
    declared = desired.declared
    assert declared is not None
    return {
        owner: Ledger(project=owner, revision=revision, content=declared.project_contents[owner])
        for owner, revision in declared.project_revisions.items()
    }


def names_of(desired: Desired) -> set[str]:
    assert desired.declared is not None
    return {str(j.id) for j in desired.declared.jobs}


def codes(desired: Desired) -> set[str]:
    return {found.code for found in desired.diagnostics}


def follow(commits: Commits, *trees: Mapping[str, str]) -> tuple[Revisions, Desired]:
    """A process that saw these commits one by one."""
    revisions, desired = Revisions(commits), Desired()
    for files in trees:
        head = commits.commit(files)
        desired = revisions.compose(commits.tree(head), Records())
    return revisions, desired


def of_this(known: Mapping[ProjectName, Ledger]) -> Records:
    return Records(by_cluster={"one": ClusterRecords(ledgers=known)})


def restart(commits: Commits, known: Mapping[ProjectName, Ledger]) -> Desired:
    """A process that starts at the newest commit and remembers nothing."""
    return Revisions(commits).compose(commits.tree(commits.head()), of_this(known))


def test_a_good_commit_is_taken_whole() -> None:
    commits = Commits()
    _, desired = follow(commits, BASE)
    assert names_of(desired) == {"a/j1", "b/j2"}
    assert desired.kept_back == {}
    assert desired.declared is not None
    assert set(desired.declared.project_revisions.values()) == {commits.head()}


def test_a_broken_project_stays_back_and_the_others_move_on() -> None:
    commits = Commits()
    bad = {**BASE, "c/projects/a/j1.yaml": BROKEN, "c/projects/b/j3.yaml": job("j3", "b")}
    first = commits.commit(BASE)
    for desired in (follow(commits, BASE, bad)[1], restart(commits, ledgers(first))):
        assert names_of(desired) == {"a/j1", "b/j2", "b/j3"}
        assert set(desired.kept_back) == {A}
        assert {"GPU8009"} < codes(desired)
        note = next(d for d in desired.diagnostics if d.code == "GPU8009")
        assert (note.severity, note.span.file) == (Severity.WARNING, "c/projects/a/j1.yaml")
        assert desired.declared is not None
        assert desired.declared.project_revisions[A] != commits.head()
        assert desired.declared.project_revisions[B] == commits.head()


def test_each_project_that_stays_back_is_told_at_a_mistake_of_its_own_wherever_its_files_are() -> None:
    flat = {path.replace("projects/", "all/"): text for path, text in BASE.items()}
    wrong = {f"c/all/{name}.yaml": job("wrong", name).replace("gpus", "gpuss") for name in "ab"}
    _, desired = follow(Commits(), flat, {**flat, **wrong})
    told = {d.message.split()[1]: d.span.file for d in desired.diagnostics if d.code == "GPU8009"}
    assert told == {"a": "c/all/a.yaml", "b": "c/all/b.yaml"}


def test_when_it_is_corrected_it_follows_again() -> None:
    commits = Commits()
    fixed = {**BASE, "c/projects/a/j4.yaml": job("j4", "a")}
    _, desired = follow(commits, BASE, {**BASE, "c/projects/a/j1.yaml": BROKEN}, fixed)
    assert names_of(desired) == {"a/j1", "a/j4", "b/j2"}
    assert desired.diagnostics == ()


def test_a_broken_cluster_file_keeps_the_old_one_and_lets_projects_move_on_but_removes_none() -> None:
    commits = Commits()
    first = commits.commit(BASE)
    bad = {
        **BASE,
        "c/cluster.yaml": CLUSTER.replace("gpusPerNode", "gpusPerNod"),
        "c/projects/b/j3.yaml": job("j3", "b"),
    }
    del bad["c/projects/a/project.yaml"], bad["c/projects/a/j1.yaml"]
    for desired in (follow(commits, BASE, bad)[1], restart(commits, ledgers(first))):
        assert names_of(desired) == {"a/j1", "b/j2", "b/j3"}
        assert OWN in desired.kept_back


def test_a_loose_broken_file_belongs_to_the_cluster() -> None:
    commits = Commits()
    _, desired = follow(commits, BASE, {**BASE, "c/extra.yaml": "a: [", "c/projects/b/j3.yaml": job("j3", "b")})
    assert names_of(desired) == {"a/j1", "b/j2", "b/j3"}
    assert set(desired.kept_back) == {OWN}


FLAT = {path.replace("/projects", "").replace("/", "-").replace("-", "/", 1): text for path, text in BASE.items()}


@pytest.mark.parametrize("text", ["a: [", job("j1", "a") + "---\n" + job("j9", "b").replace("gpus", "gpuss")])
def test_a_loose_file_that_breaks_is_still_its_projects(text: str) -> None:
    """Or its job would seem to be removed, and be ended."""
    commits = Commits()
    bad = {**FLAT, "c/a-j1.yaml": text, "c/b-j3.yaml": job("j3", "b")}
    first = commits.commit(FLAT)
    for desired in (follow(commits, FLAT, bad)[1], restart(commits, ledgers(first))):
        assert names_of(desired) == {"a/j1", "b/j2", "b/j3"}
        assert set(desired.kept_back) == {A}
    commits.commit({**bad, "c/a-j1.yaml": job("j1", "a")})
    assert restart(commits, ledgers(first)).kept_back == {}


@pytest.mark.parametrize("moved", [("c/b-j2.yaml",), ("c/b-project.yaml", "c/b-j2.yaml"), ("c/b-project.yaml",)])
def test_a_loose_file_that_breaks_may_have_what_is_gone_elsewhere(moved: tuple[str, ...]) -> None:
    good = {path: text for path, text in FLAT.items() if path != "c/b-j2.yaml" or path in moved}
    bad = {path: text for path, text in good.items() if path not in moved} | {"c/a-j1.yaml": "a: ["}
    before, desired = follow(Commits(), good)[1], follow(Commits(), good, bad)[1]
    assert (names_of(desired), OWN in desired.kept_back) == (names_of(before), False)
    assert desired.declared is not None
    assert {each.name for each in desired.declared.projects} == {A, B}


def test_the_clusters_own_part_moves_on_beside_a_loose_file_that_breaks() -> None:
    cluster = CLUSTER.replace("name: p\n", "name: other\n")
    _, desired = follow(Commits(), FLAT, {**FLAT, "c/a-j1.yaml": "a: [", "c/cluster.yaml": cluster})
    assert desired.declared is not None
    assert [pool.name for pool in desired.declared.cluster.pools] == ["other"]
    assert set(desired.kept_back) == {A}


def test_a_loose_file_that_is_renamed_and_breaks_removes_no_job() -> None:
    commits = Commits()
    bad = {path: text for path, text in FLAT.items() if path != "c/a-j1.yaml"} | {"c/new.yaml": "a: ["}
    _, desired = follow(commits, FLAT, {**bad, "c/b-j3.yaml": job("j3", "b")})
    assert names_of(desired) == {"a/j1", "b/j2", "b/j3"}


def test_a_file_of_two_projects_that_is_split_into_a_broken_one_removes_no_job() -> None:
    commits = Commits()
    shared = {path: text for path, text in FLAT.items() if "-j" not in path}
    shared["c/jobs.yaml"] = f"{job('j1', 'a')}---\n{job('j2', 'b')}"
    split = {path: text for path, text in FLAT.items() if "-j1" not in path} | {"c/projects/a/j1.yaml": "a: ["}
    _, desired = follow(commits, shared, split)
    assert names_of(desired) == {"a/j1", "b/j2"}
    _, desired = follow(commits, shared, split, FLAT)
    assert (names_of(desired), desired.kept_back) == ({"a/j1", "b/j2"}, {})


def test_a_project_broken_from_the_start_is_absent_and_one_that_ran_is_held() -> None:
    commits = Commits()
    commits.commit({**BASE, "c/projects/a/j1.yaml": BROKEN})
    desired = restart(commits, {})
    assert names_of(desired) == {"b/j2"}
    assert desired.declared is not None
    assert desired.declared.pinned == frozenset()
    desired = restart(commits, ledgers(Revision("f" * 40)))
    assert desired.declared is not None
    assert desired.declared.pinned == {A}
    assert "GPU8010" in codes(desired)


def test_a_project_that_is_removed_is_neither_held_nor_kept() -> None:
    commits = Commits()
    first = commits.commit(BASE)
    gone = {path: text for path, text in BASE.items() if "/a/" not in path}
    for desired in (follow(commits, BASE, gone)[1], restart(commits, ledgers(first))):
        assert names_of(desired) == {"b/j2"}
        assert desired.declared is not None
        assert desired.declared.pinned == frozenset()


def test_a_project_removed_in_a_commit_that_breaks_another_is_gone() -> None:
    commits = Commits()
    broken = {path: text for path, text in BASE.items() if "/b/" not in path} | {"c/projects/a/j1.yaml": BROKEN}
    _, desired = follow(commits, BASE, broken)
    assert names_of(desired) == {"a/j1"}


def test_an_error_two_projects_make_together_keeps_back_the_one_that_changed() -> None:
    commits = Commits()
    greedy = {**BASE, "c/projects/a/project.yaml": project("a", quota=13), "c/projects/b/j3.yaml": job("j3", "b")}
    first = commits.commit(BASE)
    for desired in (follow(commits, BASE, greedy)[1], restart(commits, ledgers(first))):
        assert names_of(desired) == {"a/j1", "b/j2", "b/j3"}
        assert desired.declared is not None
        assert desired.declared.project(A).allowances != {}
        assert set(desired.kept_back) == {A}


def test_nothing_good_is_nothing_declared() -> None:
    commits = Commits()
    commits.commit({"c/cluster.yaml": "kind: Clusterr\n"})
    desired = restart(commits, {})
    assert desired.declared is None
    assert desired.diagnostics != ()


def test_when_the_newest_commit_can_not_be_read_the_recorded_one_is_enforced() -> None:
    commits = Commits()
    first = commits.commit(BASE)
    desired = Revisions(commits).compose(None, of_this(ledgers(first)))
    assert names_of(desired) == {"a/j1", "b/j2"}
    assert desired.declared is not None
    assert desired.declared.project_revisions[A] == first
    assert desired.diagnostics == ()


def test_a_commit_that_declares_the_same_is_not_recorded() -> None:
    commits = Commits()
    _, first = follow(commits, BASE)
    moved = {**BASE, "c/projects/a/j1.yaml": "# a comment\n" + BASE["c/projects/a/j1.yaml"]}
    moved["c/projects/b/j2.yaml"] = job("j2", "b", gpus=2)
    commits.commit(moved)
    desired = restart(commits, recorded(first))
    assert desired.declared is not None
    assert desired.declared.project_revisions == {OWN: first.revision, A: first.revision, B: commits.head()}


CHANGES = st.dictionaries(
    st.sampled_from(["c/cluster.yaml", "c/projects/a/j1.yaml", "c/projects/b/j2.yaml", "c/projects/b/project.yaml"]),
    st.sampled_from(["", "a: [", "fine"]),
)


@given(CHANGES)
def test_what_is_good_in_a_commit_is_always_enforced_and_no_project_is_lost(changes: dict[str, str]) -> None:
    commits = Commits()
    newest = {**BASE, **{path: text for path, text in changes.items() if text not in {"", "fine"}}}
    _, desired = follow(commits, BASE, newest)
    assert desired.declared is not None
    assert {p.name for p in desired.declared.projects} == {A, B}
    assert names_of(desired) == {"a/j1", "b/j2"}
    broken = {path for path, text in newest.items() if text == "a: ["}
    wanted = {ProjectName(path.split("/")[2]) if "/projects/" in path else OWN for path in broken}
    assert set(desired.kept_back) == wanted


def test_a_job_that_a_commit_leaves_alone_is_the_very_same_and_says_the_commit_it_was_seen_at() -> None:
    commits = Commits()
    first = commits.commit(BASE)
    revisions = Revisions(commits)
    before = revisions.compose(commits.tree(first), Records()).declared
    second = commits.commit({**BASE, "c/projects/a/j3.yaml": job("j3", "a")})
    after = revisions.compose(commits.tree(second), Records()).declared
    assert before is not None
    assert after is not None
    assert {str(one.id): one.span.revision for one in after.jobs} == {"a/j1": first, "a/j3": second, "b/j2": first}
    assert {id(one) for one in before.jobs} < {id(one) for one in after.jobs}
    assert after.cluster is before.cluster
    assert after.projects is before.projects
    third = commits.commit({**BASE, "c/projects/b/project.yaml": project("b", 1)})
    changed = revisions.compose(commits.tree(third), Records()).declared
    assert changed is not None
    assert changed.cluster is before.cluster
    assert changed.projects != before.projects
    afresh = Revisions(commits).compose(commits.tree(second), Records()).declared
    assert afresh is not None
    assert afresh.project_contents == after.project_contents


SQUATS = {
    "a job of b": job("j2", "b"),
    "the project b": project("b", 100),
    "the cluster": CLUSTER,
    "a department": "apiVersion: gpuctl.dev/v1\nkind: Department\nmetadata: {name: d}\nspec: {quota: 4}\n",
}
"""What a file in the folder of a declares though it is another's."""


@pytest.mark.parametrize("what", SQUATS)
@pytest.mark.parametrize("file", ["0.yaml", "zz.yaml"])
def test_a_team_that_declares_what_another_has_in_its_own_place_stays_back_alone(what: str, file: str) -> None:
    owned = {"zz-cluster.yaml" if path == "c/cluster.yaml" else path: text for path, text in BASE.items()}
    own = {f"c/{path.removeprefix('c/')}": text for path, text in owned.items()}
    own["c/zz-departments.yaml"] = SQUATS["a department"]
    commits = Commits()
    first = commits.commit(own)
    bad = {**own, f"c/projects/a/{file}": SQUATS[what], "c/projects/b/j3.yaml": job("j3", "b")}
    for desired in (follow(commits, own, bad)[1], restart(commits, ledgers(first))):
        assert names_of(desired) == {"a/j1", "b/j2", "b/j3"}
        assert set(desired.kept_back) == {A}
        errors = [d for d in desired.diagnostics if d.severity is Severity.ERROR]
        assert {d.span.file for d in errors} == {f"c/projects/a/{file}"}
    anew = restart(commits, {})
    assert names_of(anew) == {"b/j2", "b/j3"}


def test_a_shared_file_that_declares_what_a_project_has_stays_back() -> None:
    commits = Commits()
    shared = {"c/both.yaml": job("j8", "a") + "---\n" + job("j9", "b")}
    first = commits.commit({**BASE, **shared})
    bad = {**BASE, "c/both.yaml": job("j8", "a") + "---\n" + job("j2", "b", 2), "c/projects/b/j3.yaml": job("j3", "b")}
    for desired in (follow(commits, {**BASE, **shared}, bad)[1], restart(commits, ledgers(first))):
        assert {"a/j1", "a/j8", "b/j2", "b/j3", "b/j9"} == names_of(desired)
        assert set(desired.kept_back) == {OWN}
        errors = [d for d in desired.diagnostics if d.severity is Severity.ERROR]
        assert {d.span.file for d in errors} == {"c/both.yaml"}
