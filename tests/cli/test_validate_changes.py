"""validate of files, and of a change: what a hook before a commit and a check of a pull request see."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from subprocess import run as execute
from typing import Any

import pytest
import yaml
from commands import AT_MS, EXAMPLE, ROOT, Run

from gpuctl.adapters.git import WorkingCopy
from gpuctl.cli.validate import FORMS

PROD = "clusters/tr4858"
JOB = f"{PROD}/projects/team-a/jobs/a-1-g.yaml"
OTHER = f"{PROD}/projects/team-b/jobs/b-3-g.yaml"
PROGRAMS = str(Path(sys.executable).parent)


@pytest.fixture
def top(repository: WorkingCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The top of a repository with two clusters, as the working directory; everything is committed."""
    for file in sorted(EXAMPLE.rglob("*.yaml")):
        text = file.read_text().replace("name: tr4858", "name: test")
        repository.write(f"clusters/test/{file.relative_to(EXAMPLE)}", text.encode())
    repository.write("policies/none.yaml", b"")
    repository.write("docs/x.yaml", b"a: 1\n")
    repository.commit("a second cluster", AT_MS)
    monkeypatch.chdir(tmp_path / "repository")
    return tmp_path / "repository"


def breaks(file: str, old: str = "gpus: 1", new: str = "gpus: many") -> None:
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


def told(run: Run, *args: object) -> tuple[int, list[tuple[str, str]]]:
    result = run("validate", *args, "-o", "json")
    found: list[dict[str, Any]] = json.loads(result.stdout)["diagnostics"]
    return result.exit_code, [(one["code"], one["file"]) for one in found]


def test_a_file_is_checked_with_its_whole_cluster(run: Run, top: Path) -> None:
    breaks(OTHER)
    assert told(run, JOB) == (1, [("GPU2011", OTHER)])
    assert told(run, JOB.replace("tr4858", "test")) == (0, [])
    assert run("validate", JOB, OTHER, f"{PROD}/projects").stdout.endswith(f"{PROD}: 1 error\n")
    assert told(run, top / JOB) == (1, [("GPU2011", f"{top}/{OTHER}")])


def test_files_of_several_clusters_and_of_all(run: Run, top: Path) -> None:
    del top
    both = run("validate", JOB, JOB.replace("tr4858", "test"))
    assert both.stdout == run("validate", "policies/none.yaml").stdout == "2 clusters: valid, 26 jobs\n"


def test_a_file_below_the_working_directory(run: Run, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(top / PROD / "projects")
    assert run("validate", "team-a/jobs/a-1-g.yaml").stdout == "..: valid, 13 jobs\n"


def test_a_cluster_that_is_known_by_its_declaration(run: Run, tmp_path: Path, cluster: Path) -> None:
    moved = cluster.rename(tmp_path / "prod")
    assert run("validate", moved / "projects/team-a/jobs/a-1-g.yaml").stdout == f"{moved}: valid, 13 jobs\n"


def test_no_project_hides_its_files_in_a_cluster_of_its_own(run: Run, top: Path) -> None:
    del top
    own = Path(JOB).parent / "clusters/mine"
    own.mkdir(parents=True)
    cluster = next(file for file in Path(PROD).glob("*.yaml") if "kind: Cluster" in file.read_text())
    (own / "cluster.yaml").write_text(cluster.read_text())
    code, found = told(run, own / "cluster.yaml")
    assert (code, found) == (1, [("GPU3029", (own / "cluster.yaml").as_posix())])


def test_a_cluster_at_the_top_takes_in_no_other(run: Run, top: Path) -> None:
    """The folders of projects would be no projects' there, so a file could declare for another one."""
    wrong = Path(JOB.replace("team-a/jobs/a-1-g", "team-b/jobs/forged"))
    wrong.write_text(Path(JOB).read_text().replace("name: a-1-g\n", "name: forged\n"))
    (top / "extra.yaml").write_text('message: "x\nkind: Cluster\ny"\n')
    for argument in ([], [PROD], [JOB]):
        code, found = told(run, *argument)
        assert (code, {each for each, _ in found}) == (1, {"GPU3008"})


def test_a_file_of_no_cluster_is_an_error(run: Run, top: Path) -> None:
    del top
    assert told(run, "docs/x.yaml", JOB) == (1, [("GPU6301", "docs/x.yaml")])


def test_a_change_is_told_what_it_breaks_and_no_more(run: Run, top: Path, repository: WorkingCopy) -> None:
    breaks(OTHER)
    repository.write(OTHER, Path(OTHER).read_bytes())
    base = repository.commit("a mistake that is there before", AT_MS)
    breaks(JOB, "image:", "imag: x\n  image:")
    assert told(run, "--changed-since", base) == (1, [("GPU2004", JOB)])
    said = run("validate", "--changed-since", base).stdout
    assert said.endswith(
        "2 clusters: 1 error; not touched by the change: 1 cluster; known before, in files that did not change: 1\n"
    )
    Path(JOB).unlink()
    assert told(run, "--changed-since", base) == (0, [])
    moved = f"# moved\n{Path(OTHER).read_text()}"
    Path(OTHER).write_text(moved)
    assert told(run, "--changed-since", base) == (1, [("GPU2011", OTHER)]), "a file that changed is told whole"
    assert top.is_dir()


def test_a_change_that_breaks_a_file_it_does_not_touch(run: Run, top: Path) -> None:
    (project,) = (file for file in (top / PROD).rglob("*.yaml") if "kind: Project\nmetadata: {name: team-b" in
                  file.read_text() or (file.name == "project.yaml" and file.parent.name == "team-b"))  # fmt: skip
    project.unlink()
    code, found = told(run, "--changed-since", "HEAD")
    assert code == 1
    assert ("GPU3004", OTHER) in found


def test_a_warning_that_the_change_makes_an_error_is_told(run: Run, top: Path, repository: WorkingCopy) -> None:
    """It is at the same line as before, in a file that the change does not touch, and holds its project back now."""
    policy = yaml.safe_dump({
        "apiVersion": "gpuctl.dev/v1",
        "kind": "Policy",
        "metadata": {"name": "none"},
        "spec": {"match": {"kind": "Job"}, "severity": "warning", "cel": "object.spec.gpus < 1.0", "message": "No."},
    })
    repository.write("policies/none.yaml", policy.encode())
    base = repository.commit("a policy that warns", AT_MS)
    assert told(run, "--changed-since", base, PROD) == (0, [])
    (top / "policies/none.yaml").write_text(policy.replace("severity: warning", "severity: error"))
    code, found = told(run, "--changed-since", base, PROD)
    assert (code, {each for each, _ in found}) == (1, {"GPU4001"})
    (top / "policies/none.yaml").write_text(policy.replace("No.", "Never."))
    assert told(run, "--changed-since", base, PROD) == (0, [])


def test_what_the_base_has_gained_is_no_part_of_the_change(run: Run, top: Path, repository: WorkingCopy) -> None:
    execute(["git", "branch", "feature"], cwd=top, check=True)
    breaks(OTHER)
    repository.write(OTHER, Path(OTHER).read_bytes())
    repository.commit("main moves on", AT_MS)
    branch = execute(["git", "branch", "--show-current"], cwd=top, check=True, capture_output=True, text=True)
    execute(["git", "checkout", "-q", "feature"], cwd=top, check=True)
    said = run("validate", "--changed-since", branch.stdout.strip())
    assert said.stdout == "2 clusters: valid, 0 jobs; not touched by the change: 2 clusters\n"


def test_a_revision_that_is_not_there(run: Run, top: Path) -> None:
    del top
    result = run("validate", "--changed-since", "nowhere")
    assert (result.exit_code, "GPU8006" in result.stderr) == (2, True)


def test_the_hook_checks_the_clusters_of_the_files_that_it_is_given(top: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    breaks(OTHER)
    listed = execute(["git", "ls-files", "-m"], cwd=top, check=True, capture_output=True, text=True).stdout.split()
    files = [file for file in [*listed, "docs/x.yaml", "README.md"] if re.search(hook["files"], file)]
    assert files == [OTHER]
    program, *arguments = shlex.split(hook["entry"])
    done = execute(
        [sys.executable, "-m", program, *arguments, *files], cwd=top, check=False, capture_output=True, text=True
    )
    assert (done.returncode, f"{OTHER}:" in done.stdout) == (1, True)
    assert hook["require_serial"], "several processes at once would each check the same cluster"


def test_what_a_reconciler_has_no_memory_for(run: Run, top: Path, repository: WorkingCopy) -> None:
    """13 jobs in each of two clusters, of which each has a reconciler of its own."""
    assert run("validate", "--jobs", 13).stdout == "2 clusters: valid, 26 jobs\n"
    assert told(run, "--jobs", 12, PROD) == (1, [("GPU3035", f"{PROD}/projects/team-c/jobs/c-5-g.yaml")])
    assert run("validate", "--jobs", 0).exit_code == 2
    sweep = JOB.replace("a-1-g", "sweep")
    job = Path(JOB).read_text().replace("name: a-1-g", "name: sweep")
    Path(sweep).write_text(job.replace("gpus: 1", "gpus: 1\n  sweep: {completions: 3}"))
    assert told(run, "--jobs", 16, "--changed-since", "HEAD") == (0, [])
    assert told(run, "--jobs", 15, "--changed-since", "HEAD") == (1, [("GPU3035", sweep)])
    assert told(run, "--changed-since", "HEAD") == (0, [])
    printed = run("validate", "--expanded", "--jobs", 15, sweep)
    assert (printed.exit_code, printed.stdout, "GPU3035" in printed.stderr) == (1, "", True)
    assert "name: sweep" in run("validate", "--expanded", "--jobs", 16, sweep).stdout
    repository.write(sweep, Path(sweep).read_bytes())
    repository.commit("too many jobs", AT_MS)
    breaks(OTHER, "gpus: 1", "gpus: 2")
    said = run("validate", "--jobs", 15, "--changed-since", "HEAD")
    assert (said.exit_code, said.stdout.endswith("known before, in files that did not change: 1\n")) == (0, True)
    assert top.is_dir()


@pytest.mark.parametrize("args", [(), ("--changed-since", "HEAD")])
def test_a_cache_changes_no_word_in_any_form(
    run: Run, top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    del top
    cache, state = tmp_path / "cache", tmp_path / "state"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    breaks(OTHER)
    fresh = [run("validate", *args, "-o", form).stdout for form in FORMS]
    assert not cache.exists()
    monkeypatch.delenv("GPUCTL_NO_CACHE")
    assert [run("validate", "--no-cache", *args, "-o", form).stdout for form in FORMS] == fresh
    assert not cache.exists()
    for _ in range(2):
        assert [run("validate", *args, "-o", form).stdout for form in FORMS] == fresh
    entries = list((cache / "gpuctl" / "verdicts").iterdir())
    assert len(entries) == (1 if args else 2)
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:-1])
    assert [run("validate", *args, "-o", form).stdout for form in FORMS] == fresh
    known = run("validate", *args, "-o", "json").stdout
    fewer = run("validate", *args, "--jobs", 3, "-o", "json").stdout
    assert ("GPU3035" in known, "GPU3035" in fewer) == (False, not args), "of a change, they are known"
    assert run("validate", *args, "-o", "json").stdout == known
    assert run("validate", *args, "--jobs", 3, "-o", "json").stdout == fewer
    Path(OTHER).write_text(Path(OTHER).read_text().replace("gpus: many", "gpus: more"))
    assert '"more"' in run("validate", *args).stdout


@pytest.mark.skipif(shutil.which("pre-commit", path=PROGRAMS) is None, reason="pre-commit is not installed")
def test_pre_commit_runs_the_hook(top: Path, tmp_path: Path) -> None:
    """As its users do, but that the hook's environment is this one: making one needs a package registry."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["language"] == "python"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / ".pre-commit-hooks.yaml").write_text(yaml.safe_dump([{**hook, "language": "system"}]))
    place = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    environment = {**os.environ, **place, "GIT_AUTHOR_NAME": "Ana", "GIT_AUTHOR_EMAIL": "ana@example.com"}
    environment |= {"GIT_COMMITTER_NAME": "Ana", "GIT_COMMITTER_EMAIL": "ana@example.com"}

    def ran(*words: str, where: Path = top) -> tuple[int, str]:
        done = execute(words, cwd=where, check=False, capture_output=True, text=True, env=environment)
        return done.returncode, done.stdout + done.stderr

    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "hooks")):
        assert ran("git", *words, where=hooks) == (0, "")
    revision = ran("git", "rev-parse", "HEAD", where=hooks)[1].strip()
    config = {"repos": [{"repo": str(hooks), "rev": revision, "hooks": [{"id": hook["id"]}]}]}
    (top / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    ran("git", "add", ".pre-commit-config.yaml")
    code, told = ran("pre-commit", "run", "--all-files", "--color=never")
    assert (code, told.splitlines()[-1].split(".")[-1]) == (0, "Passed"), told
    breaks(OTHER)
    ran("git", "add", OTHER)
    code, told = ran("pre-commit", "run", "--color=never")
    assert (code, f"{OTHER}:" in told, "gpuctl validate" in told) == (1, True, True), told
