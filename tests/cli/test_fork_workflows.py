"""The two workflows for pull requests of forks, in docs/propose.md: their steps are run as GitHub runs them.

The first has the fork's commits and a token that only reads; the second has a token that writes, and nothing but the
artifact.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from subprocess import run as execute
from typing import Any

import pytest
import warm
import yaml
from codehosts import REPOSITORY, TOKEN, GitHubHost, served
from commands import AT_MS, ROOT

from gpuctl.adapters.git import WorkingCopy

PROJECTS = "clusters/tr4858/projects"
JOB = f"{PROJECTS}/team-d/jobs/d-2-gg.yaml"
NEW = """\
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: d-2-gg, project: team-d}
spec: {image: x, gpus: 2}
"""
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


def workflow(name: str) -> list[dict[str, Any]]:
    """The steps of the one job of a workflow on the page."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "propose.md").read_text(), flags=re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(f"# .github/workflows/{name}.yml"))
    (job,) = yaml.safe_load(found)["jobs"].values()
    return list(job["steps"])


@dataclass
class Runner:
    """A job of GitHub Actions in a folder. `context`: what expressions are replaced by; `store`: has the artifacts."""

    folder: Path
    store: Path
    context: dict[str, str]
    environment: dict[str, str]
    done: list[CompletedProcess[str]] = field(default_factory=list)

    def run(self, steps: list[dict[str, Any]]) -> int:
        """Run the steps, up to the first that fails; the code of the last."""
        for step in steps:
            given = {name: self.replaced(str(value)) for name, value in step.get("with", {}).items()}
            if self.step(step, given):
                break
        return self.done[-1].returncode if self.done else 0

    def step(self, step: Mapping[str, Any], given: Mapping[str, str]) -> int:
        uses = step.get("uses", "")
        if uses.startswith("actions/upload-artifact@"):
            shutil.copytree(self.folder / given["path"], self.store / given["name"])
        elif uses.startswith("actions/download-artifact@"):
            shutil.copytree(self.store / given["name"], self.folder / given["path"], dirs_exist_ok=True)
        elif uses == "ORGANISATION/gpuctl@REVISION":
            return self.action(given)
        elif not uses.startswith("actions/checkout@"):
            return self.script(step["run"], step.get("env", {}), "bash", "-e")
        return 0

    def action(self, given: Mapping[str, str]) -> int:
        """Our action, but for its first step, which installs gpuctl."""
        inputs = {name: str(entry["default"]) for name, entry in ACTION["inputs"].items()} | dict(given)
        assert given.keys() <= ACTION["inputs"].keys()
        for step in ACTION["runs"]["steps"][1:]:
            wanted = re.fullmatch(r"inputs\.(\w+) == 'true'", step["if"])
            assert wanted
            if inputs[wanted[1]] != "true":
                continue
            named = {key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: inputs[m[1]], text)
                     for key, text in step["env"].items()}  # fmt: skip
            if self.script(step["run"], named, "bash", "--noprofile", "--norc", "-eo", "pipefail"):
                return self.done[-1].returncode
        return 0

    def script(self, text: str, variables: Mapping[str, str], *shell: str) -> int:
        assert "${{" not in text, "text that is written into a script could be run by it"
        script = self.store / "script.sh"
        script.write_text(text)
        named = {name: self.replaced(value) for name, value in variables.items()}
        command = [*shell, str(script)]
        env = {**self.environment, **named}
        made = execute(command, cwd=self.folder, env=env, check=False, capture_output=True, text=True)
        self.done.append(made)
        output = Path(self.environment["GITHUB_OUTPUT"])
        for line in output.read_text().splitlines() if output.exists() else ():
            name, _, value = line.partition("=")
            self.context[f"steps.plan.outputs.{name}"] = value
        return made.returncode

    def replaced(self, text: str) -> str:
        """The text with the value of each expression; fails for one that the job does not have."""
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda m: self.context[m[1]], text)


@dataclass
class Fork:
    """A pull request of a fork: what the runner of its first workflow has checked out, and its newest commit."""

    checkout: Path
    head: str
    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        bin_ = self.folder / "bin"
        warm.write_command(bin_)
        github = {"GITHUB_BASE_REF": "main", "GITHUB_OUTPUT": str(self.folder / "output"), "CI": "true"}
        return {"PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(self.folder), **github, **more}

    def plan(self) -> Runner:
        """Run the first workflow."""
        context = {"github.event.pull_request.head.sha": self.head, "github.event.number": "7", "github.token": ""}
        (self.folder / "store").mkdir()
        made = Runner(self.checkout, self.folder / "store", context, self.environment())
        made.run(workflow("plan"))
        return made

    def comment(self, host: GitHubHost) -> Runner:
        """Run the second one, in an empty folder."""
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        where = {"GITHUB_API_URL": host.url, "GITHUB_REPOSITORY": REPOSITORY, "NO_PROXY": "127.0.0.1"}
        context = {"github.token": TOKEN, "github.event.workflow_run.id": "1"}
        context["github.event.workflow_run.head_sha"] = self.head
        made = Runner(empty, self.folder / "store", context, self.environment(**where))
        made.run(workflow("comment"))
        return made

    @contextmanager
    def host(self) -> Iterator[GitHubHost]:
        made = GitHubHost(head=self.head)
        with served(made):
            yield made


def git(folder: Path, *words: str) -> str:
    person = ("-c", "user.name=Eve", "-c", "user.email=eve@x")
    done = execute(["git", "-C", str(folder), *person, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def fork(repository: WorkingCopy, tmp_path: Path) -> Fork:
    return forked(repository, tmp_path, {JOB: NEW})


def forked(repository: WorkingCopy, tmp_path: Path, files: Mapping[str, str | None]) -> Fork:
    """A fork's branch with these files; checked out is GitHub's merge of it, as actions/checkout has it."""
    ours, theirs, checkout = repository.folder, tmp_path / "fork", tmp_path / "checkout"
    execute(["git", "clone", "-q", str(ours), str(theirs)], check=True)
    copy = WorkingCopy(theirs)
    for path, text in files.items():
        if text is None:
            git(theirs, "rm", "-qr", path)
        else:
            copy.write(path, text.encode())
    copy.commit("a change", AT_MS)
    execute(["git", "clone", "-q", str(ours), str(checkout)], check=True)
    git(checkout, "fetch", "-q", str(theirs), "HEAD")
    head = git(checkout, "rev-parse", "FETCH_HEAD")
    git(checkout, "checkout", "-q", "--detach", "origin/main")
    git(checkout, "merge", "-q", "--no-ff", "-m", "merge", head)
    return Fork(checkout, head, tmp_path)


def test_a_forks_plan_becomes_a_comment(fork: Fork) -> None:
    planned = fork.plan()
    assert [done.returncode for done in planned.done] == [0, 0, 0], planned.done
    with fork.host() as host:
        posted = fork.comment(host)
        assert [done.returncode for done in posted.done] == [0], posted.done
    (comment,) = host.comments
    assert "d-2-gg" in comment["body"]
    assert "read from a file" in comment["body"]
    assert host.labels == ["gpuctl/pauses"]


def test_a_refused_change_is_red_and_has_its_comment(repository: WorkingCopy, tmp_path: Path) -> None:
    fork = forked(repository, tmp_path, {f"{PROJECTS}/team-b": None})
    assert [done.returncode for done in fork.plan().done] == [0, 0, 1]
    with fork.host() as host:
        assert [done.returncode for done in fork.comment(host).done] == [0]
    assert "**refused**" in host.comments[0]["body"]
    assert "gpuctl/refused" in host.labels


def test_mistakes_are_marked_and_nothing_is_stored(repository: WorkingCopy, tmp_path: Path) -> None:
    fork = forked(repository, tmp_path, {JOB: NEW.replace("gpus: 2", "gpus: many")})
    (marked,) = fork.plan().done
    assert (marked.returncode, marked.stdout.startswith(f"::error file={JOB},line=4,")) == (1, True)
    assert not (fork.folder / "store" / "plan").exists()


def test_an_artifact_that_names_another_request_is_not_posted(fork: Fork) -> None:
    fork.plan()
    for number in ("8", "--help", "$(touch ran)", "7\n; touch ran", "9" * 100_000, "\x1b[31m"):
        (fork.folder / "store" / "plan" / "number").write_text(number)
        with fork.host() as host:
            (done,) = fork.comment(host).done
        assert (done.returncode != 0, host.comments, host.labels) == (True, [], [])
        assert "\x1b" not in done.stdout + done.stderr
    assert not list(fork.folder.rglob("ran"))


def test_no_plan_is_posted_under_the_request_of_another_person(fork: Fork) -> None:
    """Whoever makes the artifact may name that request, and its newest commit: all can read both."""
    fork.plan()
    file = fork.folder / "store" / "plan" / "plan.json"
    file.write_text(file.read_text().replace(fork.head, "b" * 40))
    with served(host := GitHubHost(head="b" * 40)):
        (done,) = fork.comment(host).done
    assert (done.returncode, "GPU6211" in done.stderr) == (1, True)
    assert (host.comments, host.labels) == ([], [])


def test_what_else_is_in_the_artifact_is_not_run(fork: Fork) -> None:
    """Modules, settings and programs of names that would be found, if they were looked for there."""
    fork.plan()
    (fork.folder / "store" / "plan" / "gpuctl").mkdir()
    for name in ("gpuctl/__init__.py", "json.py", "click.py", "sitecustomize.py"):
        (fork.folder / "store" / "plan" / name).write_text("open('ran', 'w')")
    with fork.host() as host:
        (done,) = fork.comment(host).done
    assert (done.returncode, len(host.comments)) == (0, 1)
    assert not list(fork.folder.rglob("ran"))
