"""comment: a plan as the comment and the labels of a pull or merge request, on code hosts of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from codehosts import REPOSITORY, TOKEN, CodeHost, GitHubHost, GitLabHost, served
from commands import Run
from planstories import STORIES

from gpuctl.adapters.git import WorkingCopy

CI = ("GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_EVENT_PATH", "GITHUB_TOKEN", "GH_TOKEN", "GITHUB_STEP_SUMMARY",
      "CI_API_V4_URL", "CI_PROJECT_ID", "CI_MERGE_REQUEST_IID", "GITLAB_TOKEN")  # fmt: skip


@pytest.fixture(params=["github", "gitlab"])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CodeHost]:
    for name in CI:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made: CodeHost = GitHubHost() if request.param == "github" else GitLabHost()
    with served(made):
        event = tmp_path / "event.json"
        event.write_text(json.dumps({"pull_request": {"number": 7}}))
        github = {"GITHUB_API_URL": made.url, "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_TOKEN": TOKEN}
        github |= {"GITHUB_EVENT_PATH": str(event), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
        gitlab = {"CI_API_V4_URL": made.url, "CI_PROJECT_ID": REPOSITORY, "GITLAB_TOKEN": TOKEN}
        gitlab |= {"CI_MERGE_REQUEST_IID": "7"}
        for name, value in (github if request.param == "github" else gitlab).items():
            monkeypatch.setenv(name, value)
        yield made


def _command(host: CodeHost, repository: WorkingCopy, story: str) -> list[object]:
    options = STORIES[story](repository)
    flag = "--github" if isinstance(host, GitHubHost) else "--gitlab"
    return ["comment", flag, repository.folder / "clusters" / "tr4858", *options]


def test_the_plan_is_one_comment_with_its_labels(
    run: Run, repository: WorkingCopy, host: CodeHost, tmp_path: Path
) -> None:
    command = _command(host, repository, "claim")
    host.labels.append("urgent")
    result = run(*command)
    assert (result.exit_code, result.stderr) == (0, "")
    plan = run("plan", *command[2:], "-o", "markdown").stdout
    assert run(*command, "--label", "pauses=gpu-pauses").exit_code == 0
    assert [each["body"] for each in host.comments] == [plan]
    assert sorted(host.labels) == ["gpu-pauses", "gpuctl/pauses", "urgent"]
    assert TOKEN not in result.output
    if isinstance(host, GitHubHost):
        assert (tmp_path / "summary.md").read_text() == plan * 2


def test_a_refusal_exits_3_after_the_comment(run: Run, repository: WorkingCopy, host: CodeHost) -> None:
    assert run(*_command(host, repository, "removed_project")).exit_code == 3
    assert sorted(host.labels) == ["gpuctl/deletes", "gpuctl/refused"]
    assert "**refused**" in host.comments[0]["body"]


def test_labels_go_when_the_effect_goes(run: Run, repository: WorkingCopy, host: CodeHost) -> None:
    host.labels += ["gpuctl/pauses", "gpuctl/refused"]
    assert run(*_command(host, repository, "nothing")).exit_code == 0
    assert host.labels == []
    assert "nothing changes" in host.comments[0]["body"]


def test_a_dry_run_sends_nothing(run: Run, repository: WorkingCopy, host: CodeHost, tmp_path: Path) -> None:
    result = run(*_command(host, repository, "claim"), "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.startswith("<!-- gpuctl plan tr4858 -->\n")
    assert result.stdout.endswith("labels: gpuctl/pauses\n")
    assert (host.calls, (tmp_path / "summary.md").exists()) == ([], False)


def test_a_token_that_may_only_read_leaves_the_summary(
    run: Run, repository: WorkingCopy, host: CodeHost, tmp_path: Path
) -> None:
    """As that of a fork's pull request."""
    host.faults += [host.serve, (403, {}, {"message": "Resource not accessible by integration"})]
    result = run(*_command(host, repository, "claim"))
    assert result.exit_code == 1
    assert "GPU6204" in result.stderr
    assert "fork" in result.stderr.lower()
    if isinstance(host, GitHubHost):
        assert "2 jobs start" in (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize("label", ["x=y", "pauses", "pauses=a,b", f"pauses={'x' * 51}"])
def test_a_label_that_is_none_is_a_wrong_command_line(run: Run, label: str) -> None:
    result = run("comment", "--github", ".", "--base", "main", "--label", label)
    assert result.exit_code != 0
    assert "GPU9002" in result.stderr


def test_a_host_has_to_be_named(run: Run, repository: WorkingCopy) -> None:
    assert "GPU9002" in run("comment", repository.folder, "--base", "main").stderr


@pytest.fixture
def plan_file(run: Run, repository: WorkingCopy, tmp_path: Path) -> Path:
    """The plan of a removed project, as a job without a token makes it."""
    options = STORIES["removed_project"](repository)
    result = run("plan", repository.folder / "clusters" / "tr4858", *options, "-o", "json")
    assert result.exit_code == 3
    path = tmp_path / "plan.json"
    path.write_text(result.stdout)
    return path


def _posted(host: CodeHost, *words: object) -> list[object]:
    return ["comment", "--github" if isinstance(host, GitHubHost) else "--gitlab", *words]


def _edited(path: Path, **changed: Any) -> Path:
    """The file with other fields of its comment, and of its merge where they are named `head_commit`."""
    plan = json.loads(path.read_text())
    plan["merge"]["headCommit"] = changed.pop("head_commit", plan["merge"]["headCommit"] or "a" * 40)
    plan["comment"] |= changed
    path.write_text(json.dumps(plan))
    return path


def test_a_plan_of_another_job_is_posted(run: Run, host: CodeHost, plan_file: Path) -> None:
    result = run(*_posted(host, "--plan", _edited(plan_file)))
    assert (result.exit_code, result.stderr) == (3, "")
    (made,) = host.comments
    assert made["body"].startswith("<!-- gpuctl plan tr4858 -->\n")
    assert "made by another job and read from a file, which says that it is of base " in made["body"]
    assert "head aaaaaaaaaa." in made["body"]
    assert sorted(host.labels) == ["gpuctl/deletes", "gpuctl/refused"]


def test_but_for_where_it_comes_from_it_is_the_same_comment(
    run: Run, repository: WorkingCopy, host: CodeHost, plan_file: Path
) -> None:
    posted = run(*_posted(host, "--plan", plan_file, "--dry-run")).stdout
    made = run(*_posted(host, repository.folder / "clusters" / "tr4858", "--base", "main", "--dry-run")).stdout
    lines = [line for line in posted.splitlines() if not line.startswith("This plan was made by another job")]
    assert sorted(lines) == sorted([*made.splitlines(), ""])


@pytest.mark.parametrize("commit", ["c" * 40, None])
def test_a_plan_of_another_commit_is_not_posted(
    run: Run, host: CodeHost, plan_file: Path, commit: str | None, tmp_path: Path
) -> None:
    result = run(*_posted(host, "--plan", _edited(plan_file, head_commit=commit)))
    assert result.exit_code == 1
    assert "GPU6211" in result.stderr
    assert (host.comments, host.labels, (tmp_path / "summary.md").exists()) == ([], [], False)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "EOF while parsing"),
        ("[]", "Input should be an object"),
        ("[" * 100_000, "recursion limit"),
        ('{"apiVersion": "gpuctl.dev/v1", "kind": "PlanReport"}', "merge: Field required"),
        ("x" * ((16 << 20) + 1), "more than 16 MiB"),
    ],
    ids=["empty", "a list", "deep", "a part", "long"],
)
def test_a_file_that_is_no_plan_is_told(run: Run, tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    result = run("comment", "--github", "--plan", tmp_path / "plan.json", "--dry-run")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "GPU6210" in result.stderr
    assert why in result.stderr


@pytest.mark.parametrize(
    "changed",
    [
        {"cluster": "x" * 602}, {"identity": []}, {"labels": ["other"]}, {"more": 1}, {"empty": "no"},
        {"starts": {"total": -1, "shown": []}}, {"starts": {"total": 1, "shown": [["a", "b"]]}},
        {"objects": {"total": 1001, "shown": ["x"] * 1001}}, {"head_commit": "main"},
    ],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_a_plan_out_of_bounds_is_refused(run: Run, plan_file: Path, changed: dict[str, Any]) -> None:
    result = run("comment", "--github", "--plan", _edited(plan_file, **changed), "--dry-run")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "GPU6210" in result.stderr


def test_the_largest_plan_that_may_be_read_is_a_comment(run: Run, plan_file: Path) -> None:
    text, notice = "@" * 601, {"code": "@" * 601, "message": "@" * 601, "help": "@" * 601}
    rows, notices = {"total": 10**30, "shown": [[text] * 3] * 1000}, {"total": 1000, "shown": [notice] * 1000}
    lines = {"total": 1000, "shown": [text] * 1000}
    changed: dict[str, Any] = {"cluster": text, "base": text, "head": text, "counts": text, "verdict": [text] * 2}
    changed |= {"remarks": [text] * 4, "owners": [text] * 1000, "effect": text, "identity": [text] * 2}
    changed |= dict.fromkeys(("refused", "confirmed", "refusedAlready"), notices) | {"losses": rows, "starts": rows}
    changed |= {"failed": [{"gate": text, "names": text}] * 5, "settings": lines, "objects": lines}
    result = run("comment", "--github", "--plan", _edited(plan_file, **changed), "--dry-run")
    assert "gpuctl plan of" in result.stdout
    assert len(result.stdout) < 65_536 + 100


def test_a_read_plan_goes_without_another(run: Run, plan_file: Path) -> None:
    for more in (["clusters/tr4858"], ["--base", "main"], ["--fail-on", "paused"]):
        assert "GPU9002" in run("comment", "--github", "--plan", plan_file, *more, "--dry-run").stderr
