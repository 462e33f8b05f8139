"""`--pull-request`: the edit is committed on a branch, pushed, and a request is opened at the code host."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from codehosts import TOKEN, CodeHost, GitHubHost, GitLabHost, served
from commands import Run

from gpuctl.adapters.forge.remote import hosted_at
from gpuctl.adapters.git import WorkingCopy
from gpuctl.app.ports import ForgeFault

SUBMIT = ("submit", "more", "-p", "team-a", "-i", "x", "--branch", "ana/more", "--pull-request", "-m", "More\n\nfor x")


@pytest.fixture(params=["github", "gitlab"])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CodeHost]:
    with served(GitHubHost() if request.param == "github" else GitLabHost()) as running:
        monkeypatch.setenv("GITHUB_API_URL" if request.param == "github" else "CI_API_V4_URL", running.url)
        monkeypatch.setenv("GITHUB_TOKEN" if request.param == "github" else "GITLAB_TOKEN", TOKEN)
        yield running


@pytest.fixture
def folder(repository: WorkingCopy, tmp_path: Path, host: CodeHost, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(repository.folder)
    name = "github" if isinstance(host, GitHubHost) else "gitlab"
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "other.git")], check=True)
    for key, value in (("url", f"https://{name}.com/acme/gpus.git"), ("pushurl", str(tmp_path / "other.git"))):
        subprocess.run(["git", "config", f"remote.origin.{key}", value], check=True)
    return repository.folder


def state(folder: Path) -> str:
    words = ["git", "-C", str(folder), "for-each-ref"], ["git", "-C", str(folder), "status", "--porcelain"]
    return "".join(subprocess.run(each, check=True, capture_output=True, text=True).stdout for each in words)


def test_a_request_is_opened(run: Run, folder: Path, host: CodeHost) -> None:
    del folder
    result = run(*SUBMIT)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[2].startswith("Pushed to origin (https://") is False
    assert lines[3].startswith("Opened http")
    (call,) = [call for call in host.calls if call.method == "POST"]
    assert {"More", "ana/more", "main"} <= set(map(str, call.body.values()))
    assert "for x" in call.body.values()


def test_without_a_token_nothing_is_written(
    run: Run, folder: Path, host: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    before = state(folder)
    result = run(*SUBMIT)
    assert result.stderr.startswith("error GPU6201: ")
    assert (state(folder), host.calls) == (before, [])


def test_the_branch_that_it_would_be_merged_into_has_no_request(run: Run, folder: Path) -> None:
    before = state(folder)
    result = run("suspend", "team-a/a-1-g", "--pull-request")
    assert result.stderr.startswith("error GPU6122: no pull request can be opened: main is the branch that it ")
    assert state(folder) == before


def test_a_refusal_of_the_host_leaves_the_pushed_commit(run: Run, folder: Path, host: CodeHost) -> None:
    del folder
    host.faults.append((401, {}, {"message": "Bad credentials"}))
    result = run(*SUBMIT)
    assert result.exit_code == 1
    assert "Pushed to origin" in result.stdout
    assert TOKEN not in result.output
    assert result.stderr.startswith("error GPU620")


OWN = {"GITHUB_API_URL": "https://github.example.com:8443/api/v3", "CI_API_V4_URL": "https://git.acme.org/api/v4"}


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://github.com/acme/gpus.git", ("github", "acme/gpus")),
        ("git@github.com:acme/gpus", ("github", "acme/gpus")),
        ("ssh://git@git.acme.org:2222/a/b/c.git", ("gitlab", "a/b/c")),
        ("https://x:y@github.example.com:8443/a/b", ("github", "a/b")),
    ],
)
def test_the_host_is_read_off_the_address(url: str, told: tuple[str, str]) -> None:
    found = hosted_at(url, OWN)
    assert (found.host, found.repository) == told


@pytest.mark.parametrize(
    "url",
    ["/tmp/github/a/b", "https://github.evil.org/a/b", "https://github.com.evil.org/a/b", "https://github.com/a",
     "https://github.com/a/b/c", "https://gitlab.com/a/../b", "https://github.com/a/b?x", "http://github.com/a/b",
     "https://github.com/a b/c", "https://github.com@evil.org/a/b", "github.com.evil.org:a/b", ""],
)  # fmt: skip
def test_a_token_is_sent_to_no_other_host(url: str) -> None:
    for environment in (OWN, {}, {"GITHUB_API_URL": "https://[x"}):
        with pytest.raises(ForgeFault) as caught:
            hosted_at(url, environment)
        assert caught.value.code == "GPU6122"
