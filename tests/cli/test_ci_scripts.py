"""The scripts of the GitHub action and of the GitLab template, run as the services run them, on a real repository."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from subprocess import run as execute
from typing import Any

import pytest
import warm
import yaml
from codehosts import REPOSITORY, TOKEN, GitHubHost, GitLabHost, served
from commands import AT_MS, ROOT

from gpuctl.adapters.clock import SystemClock
from gpuctl.adapters.embedded import EmbeddedCluster
from gpuctl.adapters.git import WorkingCopy
from gpuctl.k8s.kinds import OBSERVED

JOB = "clusters/tr4858/projects/team-d/jobs/d-2-gg.yaml"
NEW = """\
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: d-2-gg, project: team-d}
spec: {image: x, gpus: 2}
"""
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
TEMPLATE: dict[str, Any] = yaml.safe_load((ROOT / "templates" / "gitlab-ci.yml").read_text())


@pytest.fixture
def change(repository: WorkingCopy, tmp_path: Path) -> Path:
    """A branch with a new job on top of `origin/main`."""
    top = tmp_path / "repository"
    execute(["git", "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=top, check=True)
    repository.write(JOB, NEW.encode())
    repository.commit("a new job", AT_MS)
    return top


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    bin_ = tmp_path / "bin"
    warm.write_command(bin_)
    return {"PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(tmp_path), **more}


def commit(top: Path, path: str, text: str) -> None:
    copy = WorkingCopy(top)
    copy.write(path, text.encode())
    copy.commit("changed", AT_MS)


def head_of(top: Path) -> str:
    """The newest commit, by which a code host names a request's."""
    return execute(["git", "rev-parse", "HEAD"], cwd=top, check=True, capture_output=True, text=True).stdout.strip()


def step(
    name: str, top: Path, tmp_path: Path, inputs: Mapping[str, str], ci: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """A step of the action, with the variables that the service documents and `ci`, in the shell that it uses."""
    (found,) = (one for one in ACTION["runs"]["steps"] if one["name"] == name)
    given = {name: str(entry["default"]) for name, entry in ACTION["inputs"].items()}
    given |= {"comment": "false", "token": TOKEN, "head": head_of(top), **inputs}
    variables = {key: given[text.removeprefix("${{ inputs.").removesuffix(" }}")] for key, text in found["env"].items()}
    github = {"GITHUB_BASE_REF": "main", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    script = tmp_path / "script.sh"
    script.write_text(found["run"])
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    env = environment(tmp_path, **github, **variables, **(ci or {}))
    return execute(command, cwd=top, env=env, check=False, capture_output=True, text=True)


def test_the_action_runs_no_python_of_the_pull_request(change: Path, tmp_path: Path) -> None:
    """The working folder is the pull request's while gpuctl is installed."""
    (change / "venv.py").write_text(f"open({str(tmp_path / 'mine')!r}, 'w')")
    script: str = ACTION["runs"]["steps"][0]["run"]
    (makes,) = (line for line in script.splitlines() if line.startswith("python3 "))
    env = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(tmp_path / "runner")}
    execute(["bash", "-c", f"{makes} --without-pip"], cwd=change, env=env, check=True)
    assert not (tmp_path / "mine").exists()
    assert (tmp_path / "runner" / "gpuctl" / "bin" / "python3").exists()


def test_the_action_marks_mistakes_of_the_change(change: Path, tmp_path: Path) -> None:
    done = step("validate", change, tmp_path, {})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    commit(change, JOB, NEW.replace("gpus: 2", "gpus: many"))
    done = step("validate", change, tmp_path, {"clusters": "clusters/tr4858"})
    assert done.returncode == 1
    assert done.stdout.startswith(f"::error file={JOB},line=4,")


def test_what_there_is_no_memory_for_is_a_mistake_of_the_change(change: Path, tmp_path: Path) -> None:
    """13 jobs before it, 14 with it."""
    assert step("validate", change, tmp_path, {"jobs": "14"}).returncode == 0
    done = step("validate", change, tmp_path, {"jobs": "13"})
    assert (done.returncode, done.stdout.count("GPU3035")) == (1, 1)
    assert gitlab(change, tmp_path, GPUCTL_JOBS="14").returncode == 0
    done = gitlab(change, tmp_path, GPUCTL_JOBS="13")
    assert (done.returncode, done.stdout.count("error GPU3035")) == (1, 1)
    (told,) = json.loads((change / "gpuctl-quality.json").read_text())
    assert told["check_name"] == "GPU3035"


def test_the_action_writes_the_plan_into_the_summary(change: Path, tmp_path: Path) -> None:
    assert step("plan", change, tmp_path, {}).returncode == 0
    assert "d-2-gg" in (tmp_path / "summary.md").read_text()
    assert step("plan", change, tmp_path, {"fail-on": "paused"}).returncode == 3
    assert step("plan", change, tmp_path, {"base": "nowhere"}).returncode == 1


def test_the_action_comments_on_the_pull_request(change: Path, tmp_path: Path) -> None:
    with served(GitHubHost()) as host:
        (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
        ci = {"GITHUB_API_URL": host.url, "GITHUB_REPOSITORY": REPOSITORY, "NO_PROXY": "127.0.0.1"}
        ci |= {"GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
        done = step("plan", change, tmp_path, {"comment": "true"}, ci)
        assert done.returncode == 0, done.stderr
        assert step("plan", change, tmp_path, {"comment": "true", "fail-on": "paused"}, ci).returncode == 3
    (comment,) = host.comments
    assert "d-2-gg" in comment["body"]
    assert f"`origin/main` → `{head_of(change)[:10]}`: 1 to create" in comment["body"]
    assert host.labels == ["gpuctl/pauses", "gpuctl/refused"]
    assert "d-2-gg" in (tmp_path / "summary.md").read_text()
    assert TOKEN not in done.stdout + done.stderr


def test_the_plan_on_a_cluster_has_the_line_that_lifts_a_refusal(
    change: Path, tmp_path: Path, repository: WorkingCopy, embedded: Path
) -> None:
    cluster = EmbeddedCluster.copy_of(str(embedded), SystemClock())
    items = [body for kind in OBSERVED for body in cluster.list(kind).items]
    cluster.close()
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"items": items}))
    for path in sorted((change / "clusters/tr4858/projects/team-b").rglob("*.yaml")):
        repository.remove(path.relative_to(change).as_posix())
    repository.commit("team b leaves", AT_MS)
    assert step("plan", change, tmp_path, {}).returncode == 3
    without_cluster = (tmp_path / "summary.md").read_text()
    assert step("plan", change, tmp_path, {"state": str(state)}).returncode == 3
    on_cluster = (tmp_path / "summary.md").read_text()
    lines = [re.findall("Gpuctl-Confirm: [0-9a-f]{12}", text) for text in (without_cluster, on_cluster)]
    assert (len(lines[0]), lines[1][-1:]) == (1, lines[0])
    done = gitlab(change, tmp_path, GPUCTL_STATE=str(state))
    assert (done.returncode, "Gpuctl-Confirm: " in done.stdout) == (3, True)
    assert step("plan", change, tmp_path, {"context": "nowhere"}).returncode == 1


def test_the_template_plans_the_merge_with_the_target_branch_as_it_is_now(change: Path, tmp_path: Path) -> None:
    """As GitLab checks it out: the newest commit of the source branch, with a remote that has moved on."""
    upstream = tmp_path / "upstream"
    execute(["git", "clone", "-q", "--bare", str(change), str(upstream)], check=True)
    execute(["git", "update-ref", "refs/heads/main", "main~1"], cwd=upstream, check=True)
    execute(["git", "remote", "add", "origin", str(upstream)], cwd=change, check=True)
    target = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
    assert "has gained" not in gitlab(change, tmp_path, **target).stdout
    other = tmp_path / "other"
    execute(["git", "clone", "-q", str(upstream), str(other)], check=True)
    WorkingCopy(other).write("README.md", b"words")
    WorkingCopy(other).commit("words", AT_MS)
    execute(["git", "push", "-q", "origin", "HEAD:main"], cwd=other, check=True)
    done = gitlab(change, tmp_path, **target)
    assert "origin/main has gained 1 commit since" in done.stdout
    assert "d-2-gg  2 GPUs  starts" in done.stdout


def test_the_template_comments_on_the_merge_request(change: Path, tmp_path: Path) -> None:
    with served(GitLabHost()) as host:
        where = {"CI_API_V4_URL": host.url, "CI_PROJECT_ID": REPOSITORY, "CI_MERGE_REQUEST_IID": "7"}
        done = gitlab(change, tmp_path, GITLAB_TOKEN=TOKEN, NO_PROXY="127.0.0.1", **where)
        assert done.returncode == 0, done.stderr
    assert "d-2-gg" in host.comments[0]["body"]
    assert f" → `{head_of(change)[:10]}`: 1 to create" in host.comments[0]["body"]
    assert TOKEN not in done.stdout + done.stderr


TWIN = """\
apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: tr4858}
spec:
  nodePools:
  - {name: p, nodes: [n1], gpusPerNode: 8, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}
"""


def test_a_folder_that_names_the_same_cluster_hides_no_comment_and_no_label(change: Path, tmp_path: Path) -> None:
    """What a hostile request could add, to have the plan of the real cluster overwritten with one of no effect."""
    copy = WorkingCopy(change)
    copy.write("clusters/zz/cluster.yaml", TWIN.encode())
    copy.commit("a twin", AT_MS)
    with served(GitHubHost()) as host:
        (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
        ci = {"GITHUB_API_URL": host.url, "GITHUB_REPOSITORY": REPOSITORY, "NO_PROXY": "127.0.0.1"}
        ci |= {"GITHUB_EVENT_PATH": str(tmp_path / "event.json")}
        assert step("plan", change, tmp_path, {"comment": "true"}, ci).returncode == 0
    assert ["d-2-gg" in each["body"] for each in host.comments] == [True, False]
    assert "**gpuctl plan of tr4858 (clusters/zz)**" in host.comments[1]["body"]
    assert host.labels == ["gpuctl/pauses"]
    with served(GitLabHost(labels=["gpuctl/deletes"])) as other:
        where = {"CI_API_V4_URL": other.url, "CI_PROJECT_ID": REPOSITORY, "CI_MERGE_REQUEST_IID": "7"}
        gate = {"GPUCTL_FAIL_ON": "paused"}
        assert gitlab(change, tmp_path, GITLAB_TOKEN=TOKEN, NO_PROXY="127.0.0.1", **gate, **where).returncode == 3
    assert (len(other.comments), sorted(other.labels)) == (2, ["gpuctl/pauses", "gpuctl/refused"])


def test_a_tag_called_as_the_branch_hides_no_change(change: Path, tmp_path: Path) -> None:
    """Whoever may push a branch may mostly push a tag, and Git takes a tag before a branch of a remote."""
    commit(change, JOB, NEW.replace("gpus: 2", "gpus: many"))
    execute(["git", "tag", "origin/main"], cwd=change, check=True)
    done = step("validate", change, tmp_path, {})
    assert (done.returncode, done.stdout.count("::error")) == (1, 1)
    commit(change, JOB, NEW)
    execute(["git", "tag", "-f", "origin/main"], cwd=change, check=True)
    assert step("plan", change, tmp_path, {}).returncode == 0
    assert "`origin/main` → `" in (summary := (tmp_path / "summary.md").read_text())
    assert "1 job starts" in summary
    upstream = str(tmp_path / "upstream")
    execute(["git", "clone", "-q", "--bare", str(change), upstream], check=True)
    execute(["git", "branch", "-f", "main", "HEAD~3"], cwd=upstream, check=True)
    execute(["git", "remote", "add", "origin", upstream], cwd=change, check=True)
    done = gitlab(change, tmp_path, CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main")
    assert (done.returncode, "1 job starts" in done.stdout) == (0, True)
    done = step("validate", change, tmp_path, {"base": "origin/main"})
    assert (done.returncode, "GPU8025" in done.stderr) == (2, True)


def test_a_cluster_that_the_change_renames_is_planned(change: Path, tmp_path: Path) -> None:
    """Else the controller would find no folder to follow, unseen."""
    execute(["git", "mv", "clusters/tr4858", "clusters/b"], cwd=change, check=True)
    WorkingCopy(change).commit("renamed", AT_MS)
    assert step("plan", change, tmp_path, {}).returncode == 3
    plans = (tmp_path / "summary.md").read_text()
    assert plans.count("<!-- gpuctl plan tr4858") == 2
    assert "> **refused** GPU8003: there is no folder clusters/tr4858" in plans
    done = gitlab(change, tmp_path)
    assert (done.returncode, "refused GPU8003: there is no folder clusters/tr4858" in done.stdout) == (3, True)


def test_a_link_in_the_place_of_a_cluster_is_no_cluster(change: Path, tmp_path: Path) -> None:
    """The reconciler follows none, and would hold back all that comes after."""
    execute(["git", "mv", "clusters/tr4858", "aside"], cwd=change, check=True)
    (change / "clusters").mkdir(exist_ok=True)
    (change / "clusters/tr4858").symlink_to("../aside")
    execute(["git", "add", "."], cwd=change, check=True)
    WorkingCopy(change).commit("linked", AT_MS)
    for check in (step("validate", change, tmp_path, {}), gitlab(change, tmp_path)):
        assert (check.returncode, "error GPU8003" in check.stderr) == (2, True)
    assert step("plan", change, tmp_path, {}).returncode == 3
    assert "> **refused** GPU8003" in (tmp_path / "summary.md").read_text()


def test_what_is_checked_is_what_is_committed(change: Path, tmp_path: Path) -> None:
    """By an attribute, the working folder says something else than the commit that the reconciler reads."""
    commit(change, ".gitattributes", "*.yaml working-tree-encoding=ISO646-DE\n")
    commit(change, JOB, f"{NEW}# a change\n")
    told = execute(["git", "show", f"HEAD:{JOB}"], cwd=change, check=True, capture_output=True, text=True)
    assert "spec: äimage: x, gpus: 2ü" in told.stdout
    for check in (step("validate", change, tmp_path, {}), gitlab(change, tmp_path)):
        assert check.returncode == 1, check.stderr


def test_a_check_that_is_killed_does_not_pass(change: Path, tmp_path: Path) -> None:
    """A change could have it need more memory than there is."""
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "gpuctl").write_text("#!/bin/sh\ncase $1 in validate) exit 0 ;; esac\nkill -9 $$\n")
    (killed / "gpuctl").chmod(0o755)
    path = {"PATH": f"{killed}:{os.environ['PATH']}"}
    assert step("plan", change, tmp_path, {}, path).returncode == 137
    assert step("plan", change, tmp_path, {"comment": "true"}, path).returncode == 137
    assert gitlab(change, tmp_path, **path).returncode == 137


def test_no_input_is_run_by_the_action(change: Path, tmp_path: Path) -> None:
    for given in ("$(touch ran)", "`touch ran`; touch ran", "--help"):
        for name in ("validate", "plan"):
            assert step(name, change, tmp_path, {"clusters": given, "base": given, "jobs": given}).returncode
    assert not (change / "ran").exists()
    assert not any("${{" in one["run"] for one in ACTION["runs"]["steps"])


def gitlab(top: Path, tmp_path: Path, **variables: str) -> CompletedProcess[str]:
    """The job of the template: all parts of its script in one shell, which ends at the first that fails."""
    base = execute(["git", "rev-parse", "origin/main"], cwd=top, check=True, capture_output=True, text=True)
    shas = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base.stdout.strip(), "CI_COMMIT_SHA": head_of(top)}
    given = {**shas, **TEMPLATE["variables"], **variables}
    script = "\n".join(["set -eo pipefail", *TEMPLATE["gpuctl"]["script"]])
    env = environment(tmp_path, **given)
    return execute(["bash", "-c", script], cwd=top, env=env, check=False, capture_output=True, text=True)


def test_the_template_reports_mistakes_and_shows_the_plan(change: Path, tmp_path: Path) -> None:
    done = gitlab(change, tmp_path)
    assert (done.returncode, json.loads((change / "gpuctl-quality.json").read_text())) == (0, [])
    assert "d-2-gg  2 GPUs  starts" in done.stdout
    assert gitlab(change, tmp_path, GPUCTL_FAIL_ON="paused").returncode == 3
    commit(change, JOB, NEW.replace("gpus: 2", "gpus: many"))
    done = gitlab(change, tmp_path, GPUCTL_CLUSTERS="clusters/tr4858")
    assert done.returncode == 1
    (told,) = json.loads((change / TEMPLATE["gpuctl"]["artifacts"]["reports"]["codequality"]).read_text())
    assert told["location"] == {"path": JOB, "lines": {"begin": 4}}
