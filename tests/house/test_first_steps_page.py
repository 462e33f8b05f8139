"""The transcript of docs/first-steps.md is run as it stands there; `--update-golden` writes what is printed anew."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest
from codehosts import TOKEN, GitHubHost, served
from transcripts import compare, follow

PAGE = "first-steps.md"
MOST_CPU_S = 60
"""A person needs the rest of five minutes to type."""


def test_the_transcript_is_what_is_printed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = bool(request.config.getoption("--update-golden"))
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "CI_", "GH_"))]:
        monkeypatch.delenv(name)
    there = tmp_path / "there.git"
    subprocess.run(["git", "init", "-q", "--bare", str(there)], check=True)
    pushed = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "remote.origin.pushurl", "GIT_CONFIG_VALUE_0": str(there)}
    before = _cpu_s()
    with served(GitHubHost()) as host:
        account = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": host.url, "GITHUB_REPOSITORY": "acme/gpus"}
        environment = {**pushed, **account, "NO_PROXY": "127.0.0.1"}
        told_as = {str(there): "https://github.com/acme/gpus.git"}
        ends = follow(PAGE, "first-steps", tmp_path, update=update, environment=environment, told_as=told_as)
    assert ends == [0, 0, 0, 0, 0, 0, 0, 2, 0]
    (made,) = host.comments
    compare(PAGE, "comment", made["body"], update=update, form="markdown")
    assert [each["head"] for each in host.requests] == ["train-1"]
    assert _cpu_s() - before < MOST_CPU_S


def _cpu_s() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
