"""Freeze windows: what they hold, until when, what lifts them, and what goes on meanwhile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from stage import BASE, CLUSTER, ZERO_MS, Stage, WithoutGit, job, project

from gpuctl.model.ids import JobId, ProjectName

# The stage begins at 05:20 UTC.
NIGHT = "  freeze: [{{cron: '20 5 * * *', duration: {}, forbids: {}, reason: a demo}}]\n"
END = "2020-07-29T05:30:00Z"


def staged(stage: Stage, forbids: str) -> Stage:
    """The cluster is full: two jobs of a run above its quota. A window is open until second 600."""
    more = {f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(2)}
    stage.commit(BASE | more | {"c/cluster.yaml": CLUSTER + NIGHT.format("10m", forbids)})
    stage.play(70)
    stage.lines.clear()
    return stage


def held(stage: Stage) -> list[dict[str, Any]]:
    return [line for line in stage.lines if line["event"] == "held"]


def phase(stage: Stage, name: str) -> str | None:
    return stage.phases().get(name)


def test_a_commit_that_pauses_waits_until_the_window_ends(tmp_path: Path) -> None:
    stage = staged(WithoutGit(tmp_path), "[pause]")
    stage.commit({"c/projects/b/m.yaml": job("m", "b")})
    stage.play(590)
    (line,) = held(stage)
    assert (line["code"], line["level"]) == ("GPU6013", "error")
    assert line["message"].startswith(f"held until {END} (a demo): the commit pauses, moves or ends a/")
    assert phase(stage, "b/m") is None
    stage.play(680)
    assert phase(stage, "b/m") == "Running"


def assert_a_job_that_pauses_another_waits(stage: WithoutGit) -> None:
    stage.commit({"c/projects/b/m.yaml": job("m", "b")})
    stage.play(250)
    assert {line["code"] for line in held(stage)} == {"GPU6013"}
    assert phase(stage, "b/m") is None
    stage.play(680)
    assert phase(stage, "b/m") == "Running"


def test_a_project_whose_removal_is_refused_leaves_no_gpus_that_spare_a_pause(tmp_path: Path) -> None:
    """The commit was taken up in the window, as if it started a job on that project's GPUs; it paused another one."""
    stage = WithoutGit(tmp_path)
    of_c = {"c/projects/c/project.yaml": project("c", 1), "c/projects/c/x.yaml": job("x", "c")}
    more = {f"c/projects/a/k{n}.yaml": job(f"k{n}", "a") for n in range(2)} | of_c
    night = {"c/cluster.yaml": CLUSTER + NIGHT.format("10m", "[pause]"), "c/projects/b/j2.yaml": None}
    stage.commit(BASE | more | night | {"c/projects/b/project.yaml": project("b", 1)})
    stage.play(70)
    stage.commit(dict.fromkeys(of_c))
    stage.play(130)
    assert (stage.codes("refused"), phase(stage, "c/x")) == (["GPU6002"], "Running")
    assert_a_job_that_pauses_another_waits(stage)


def test_a_commit_whose_restarts_are_refused_as_well_waits_until_the_window_ends(tmp_path: Path) -> None:
    """It would be in force when they are confirmed, or are no longer too many."""
    stage = WithoutGit(tmp_path)
    cluster = CLUSTER + NIGHT.format("10m", "[pause]") + "  scheduling: {stopGuard: 10}\n"
    stage.commit(BASE | {"c/cluster.yaml": cluster, "c/projects/a/k.yaml": job("k", "a")})
    stage.play(70)
    stage.commit({f"c/projects/a/{name}.yaml": job(name, "a", 1, ", env: {B: c}") for name in ("j1", "k")})
    stage.play(130)
    assert {line["code"] for line in held(stage)} == {"GPU6013"}
    assert stage.codes("refused") == []
    stage.play(680)
    assert stage.codes("refused") == ["GPU6007"]


def test_jobs_whose_end_is_refused_leave_no_gpus_that_spare_a_pause(tmp_path: Path) -> None:
    """Here the guard of runs that would be stopped at once refuses, and the project stays."""
    stage = WithoutGit(tmp_path)
    of_c = {f"c/projects/c/{name}.yaml": job(name, "c") for name in ("x", "y")}
    quotas = {f"c/projects/{name}/project.yaml": project(name, quota) for name, quota in (("a", 1), ("b", 1), ("c", 2))}
    cluster = CLUSTER + NIGHT.format("10m", "[pause]") + "  scheduling: {stopGuard: 10}\n"
    more = {"c/projects/a/k.yaml": job("k", "a"), "c/projects/b/j2.yaml": None, "c/cluster.yaml": cluster}
    stage.commit(BASE | of_c | quotas | more)
    stage.play(70)
    stage.commit(dict.fromkeys(of_c))
    stage.play(130)
    assert (stage.codes("refused"), phase(stage, "c/x")) == (["GPU6007"], "Running")
    assert_a_job_that_pauses_another_waits(stage)


def test_what_is_not_forbidden_is_done(tmp_path: Path) -> None:
    stage = staged(WithoutGit(tmp_path), "[pause]")
    stage.commit({"c/projects/a/k0.yaml": None})
    stage.play(130)
    assert held(stage) == []
    assert phase(stage, "a/k0") is None


@pytest.mark.parametrize(("forbids", "told"), [("[delete]", "removes a/k0"), ("all", "removes a/k0")])
def test_a_commit_that_deletes_waits(tmp_path: Path, forbids: str, told: str) -> None:
    stage = staged(WithoutGit(tmp_path), forbids)
    stage.commit({"c/projects/a/k0.yaml": None})
    stage.play(130)
    assert [line["message"] for line in held(stage)] == [f"held until {END} (a demo): the commit {told}"]
    assert phase(stage, "a/k0") == "Running"


def test_all_that_a_commit_does_of_what_is_forbidden_is_told(tmp_path: Path) -> None:
    stage = staged(WithoutGit(tmp_path), "all")
    stage.commit({"c/projects/a/j1.yaml": f"{job('j1', 'a')[:-2]}, suspend: true}}\n", "c/projects/a/k0.yaml": None})
    stage.play(130)
    (line,) = held(stage)
    assert line["message"].endswith(": the commit pauses, moves or ends a/j1, and removes a/k0")


def test_all_holds_any_change_and_no_comment(tmp_path: Path) -> None:
    stage = staged(WithoutGit(tmp_path), "all")
    stage.commit({"c/projects/a/j1.yaml": "# a word\n" + job("j1", "a")})
    stage.play(130)
    assert held(stage) == []
    stage.commit({"c/projects/a/project.yaml": project("a", 1)})
    stage.play(190)
    assert [line["message"] for line in held(stage)] == [f"held until {END} (a demo): the commit changes declarations"]


def test_a_confirmed_commit_is_taken_up_in_the_window(tmp_path: Path) -> None:
    stage = staged(Stage(tmp_path), "[pause]")
    stage.commit({"c/projects/b/m.yaml": job("m", "b")})

    def confirmed() -> None:
        trailer = held(stage)[0]["help"].split("`")[1]
        stage.commit({}, f"urgent\n\n{trailer}")

    stage.at(130, confirmed)
    stage.play(190)
    assert phase(stage, "b/m") == "Running"
    assert "resolved" in stage.events()


def test_the_word_counts_for_one_commit_of_what_was_declared_before(tmp_path: Path) -> None:
    stage = staged(Stage(tmp_path), "[pause]")
    change = {"c/projects/b/m.yaml": job("m", "b")}
    stage.commit(change)
    stage.play(100)
    line = held(stage)[0]["help"].split("`")[1]

    def is_held(until_s: int) -> None:
        stage.lines.clear()
        stage.commit(change)
        stage.play(until_s)
        assert [each["help"].split("`")[1] for each in held(stage)] == [line]
        assert phase(stage, "b/m") is None

    stage.commit(dict.fromkeys(change))
    stage.commit({"README.md": "any"}, f"before there is such a change\n\n{line}")
    stage.play(130)
    is_held(160)
    stage.commit({}, f"urgent\n\n{line}")
    stage.play(220)
    assert phase(stage, "b/m") == "Running"
    stage.commit(dict.fromkeys(change))
    stage.play(280)
    is_held(340)


def test_a_commit_does_not_take_itself_out_of_the_window(tmp_path: Path) -> None:
    stage = staged(WithoutGit(tmp_path), "[pause]")
    stage.commit({"c/projects/b/m.yaml": job("m", "b"), "c/cluster.yaml": CLUSTER})
    stage.play(130)
    assert len(held(stage)) == 1
    assert phase(stage, "b/m") is None


def test_a_commit_stays_held_over_a_restart(tmp_path: Path) -> None:
    stage = staged(WithoutGit(tmp_path), "[pause]")
    stage.commit({"c/projects/b/m.yaml": job("m", "b"), "c/cluster.yaml": CLUSTER})
    stage.play(130)
    stage.lines.clear()
    stage.play(190)
    assert len(held(stage)) == 1
    assert phase(stage, "b/m") is None
    assert phase(stage, "a/j1") == "Running"


def test_what_the_engine_decides_by_itself_goes_on(tmp_path: Path) -> None:
    stage = staged(WithoutGit(tmp_path), "[pause]")
    stage.commit({"c/projects/a/k2.yaml": job("k2", "a")})
    stage.play(100)
    assert held(stage) == []
    assert phase(stage, "a/k2") == "Queued"
    stage.commit({"c/projects/b/m.yaml": job("m", "b")})
    stage.at(130, lambda: stage.cluster.finish(JobId(ProjectName("b"), "j2"), 0))
    stage.play(220)
    assert len(held(stage)) == 1
    assert phase(stage, "a/k2") == "Running"
    assert phase(stage, "b/m") is None


def test_the_windows_of_the_operators_guide_hold_a_weekend(tmp_path: Path) -> None:
    """Friday at 18:00 in Berlin until Monday at 8:00, as the page has them."""
    page = (Path(__file__).parents[2] / "docs/operate.md").read_text()
    (windows,) = re.findall(r"^kind: Cluster\nspec:\n(  freeze:\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    friday_s, weekend_s = 211_200, 62 * 3600
    stage = WithoutGit(tmp_path)
    stage.commit(BASE | {"c/cluster.yaml": CLUSTER + windows})
    stage.play(70)
    stage.clock.advance_to(ZERO_MS + friday_s * 1000)
    stage.commit({"c/projects/a/j1.yaml": None})
    stage.play(friday_s + 60)
    (line,) = held(stage)
    assert line["message"] == "held until 2020-08-03T06:00:00Z (weekend): the commit removes a/j1"
    assert phase(stage, "a/j1") == "Running"
    stage.clock.advance_to(ZERO_MS + (friday_s + weekend_s) * 1000)
    stage.play(friday_s + weekend_s + 60)
    assert phase(stage, "a/j1") is None


def confirming(forbids: str, folder: Path) -> tuple[Stage, str]:
    """The removal of a project with a job that runs is refused; then a window opens, from second 300 to 900. With the
    line that confirms it."""
    stage = Stage(folder)
    windows = NIGHT.format("10m", forbids).replace("20 5", "25 5")
    of_c = {"c/projects/c/project.yaml": project("c", 1), "c/projects/c/x.yaml": job("x", "c")}
    more = {"c/projects/b/project.yaml": project("b", 1), "c/cluster.yaml": CLUSTER + windows}
    stage.commit(BASE | of_c | more)
    stage.play(70)
    stage.commit(dict.fromkeys(of_c))
    stage.play(290)
    (line,) = [each for each in stage.lines if each["event"] == "refused"]
    assert (line["code"], phase(stage, "c/x")) == ("GPU6002", "Running")
    stage.lines.clear()
    return stage, line["help"].split("`")[1]


def test_a_held_commit_confirms_nothing(tmp_path: Path) -> None:
    """Its line counted at once: the jobs of a project were ended while the commit itself waited."""
    stage, line = confirming("[delete]", tmp_path)
    stage.at(310, lambda: stage.commit({"c/projects/a/j1.yaml": None}, f"clean up\n\n{line}"))
    stage.play(600)
    assert {each["message"].rpartition(": ")[2] for each in held(stage)} == {
        "the commit removes a/j1, what GPU6002 refuses"
    }
    stage.play(890)
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running", "c/x": "Running"}
    stage.play(980)
    assert stage.phases() == {"b/j2": "Running"}


@pytest.mark.parametrize("forbids", ["[delete]", "all"])
def test_a_commit_that_only_confirms_a_removal_does_what_it_removes(tmp_path: Path, forbids: str) -> None:
    stage, line = confirming(forbids, tmp_path)
    stage.at(310, lambda: stage.commit({}, f"gone for good\n\n{line}"))
    stage.play(600)
    (told,) = held(stage)
    assert (told["code"], told["message"].rpartition(": ")[2]) == (
        "GPU6013", "the commit removes what GPU6002 refuses",
    )  # fmt: skip
    assert phase(stage, "c/x") == "Running"
    stage.lines.clear()
    stage.at(650, lambda: stage.commit({}, f"now\n\n{told['help'].split('`')[1]}"))
    stage.play(640)
    assert (len(held(stage)), phase(stage, "c/x")) == (1, "Running"), "held over a restart too"
    stage.play(720)
    assert stage.phases() == {"a/j1": "Running", "b/j2": "Running"}


def test_what_was_confirmed_before_a_window_goes_on_in_it(tmp_path: Path) -> None:
    stage, line = confirming("all", tmp_path)
    stage.commit({}, f"gone for good\n\n{line}")
    stage.play(299)
    stage.play(400)
    assert held(stage) == []
    assert phase(stage, "c/x") is None


def test_what_no_window_forbids_is_confirmed_at_once(tmp_path: Path) -> None:
    stage, line = confirming("[pause]", tmp_path)
    stage.at(310, lambda: stage.commit({}, f"gone for good\n\n{line}"))
    stage.play(400)
    assert held(stage) == []
    assert phase(stage, "c/x") is None


def test_a_removed_project_that_is_declared_again_is_not_removed_by_a_line_of_before(tmp_path: Path) -> None:
    stage, line = confirming("[delete]", tmp_path)
    of_c = {"c/projects/c/project.yaml": project("c", 1), "c/projects/c/x.yaml": job("x", "c")}
    stage.at(310, lambda: stage.commit({}, f"gone for good\n\n{line}"))
    stage.at(380, lambda: stage.commit(of_c, "no, we need it"))
    stage.play(500)
    assert "resolved" in stage.events()
    assert phase(stage, "c/x") == "Running"
    stage.play(980)
    assert phase(stage, "c/x") == "Running"
