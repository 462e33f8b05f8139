"""comment: a plan as the comment and the labels of a pull or merge request, on code hosts of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

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
