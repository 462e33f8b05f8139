"""Repositories whose own settings name commands. Whoever made the repository chose them: none may ever run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gitbombs import CLUSTER, Forge

from gpuctl.adapters.git import GitSource
from gpuctl.adapters.gitcommit import begin_commit
from gpuctl.adapters.githistory import removal_of
from gpuctl.adapters.gitrepository import Repository
from gpuctl.app.ports import SourceUnavailable
from gpuctl.cli.main import gpuctl as main
from gpuctl.model.ids import NO_REVISION, JobId, ProjectName

HOOKS = """
applypatch-msg pre-applypatch post-applypatch pre-commit prepare-commit-msg commit-msg post-commit pre-rebase
post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update reference-transaction
push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman post-index-change post-upload-pack
"""
SETTINGS = """
[core]
    fsmonitor = {command}
    fsmonitorHookVersion = 1
    sshCommand = {command}
    gitProxy = {command}
    askPass = {command}
    editor = {command}
    pager = {command}
    alternateRefsCommand = {command}
    hooksPath = {hooks}
[pager]
    rev-parse = {command}
    log = {command}
    ls-tree = {command}
    cat-file = {command}
[alias]
    rev-parse = !{command}
    ls-tree = !{command}
    cat-file = !{command}
    log = !{command}
    upload-pack = !{command}
[log]
    showSignature = true
[gpg]
    program = {command}
[gpg "ssh"]
    program = {command}
[diff]
    external = {command}
[diff "x"]
    textconv = {command}
    command = {command}
[filter "x"]
    smudge = {command}
    clean = {command}
    process = {command}
    required = true
[merge]
    default = x
[merge "x"]
    driver = {command}
    recursive = x
[credential]
    helper = !{command}
[uploadpack]
    packObjectsHook = {command}
[gc]
    auto = 1
    recentObjectsHook = {command}
[maintenance]
    strategy = incremental
[submodule]
    recurse = true
[fetch]
    recurseSubmodules = true
[trace2]
    normalTarget = {trace}
    eventTarget = {trace}
[protocol]
    allow = always
[protocol "ext"]
    allow = always
[url "ext::{command} "]
    insteadOf = https://
    insteadOf = ssh://
[remote "origin"]
    url = ext::{command}
    uploadpack = {command}
    receivepack = {command}
"""
PROMISED = """
[core]
    repositoryformatversion = 1
[extensions]
    partialClone = evil
[remote "evil"]
    url = {url}
    promisor = true
    uploadpack = {command};
    {more}
"""


class Evil:
    """A repository that has a command to plant: it leaves a mark."""

    def __init__(self, folder: Path) -> None:
        self.forge = Forge.create(folder / "repo")
        self.mark = folder / "mark"
        script = folder / "evil"
        script.write_text(f"#!/bin/sh\necho \"$0 $@\" >> '{self.mark}'\nexit 1\n")
        script.chmod(0o755)
        self.command = str(script)
        self.git = self.forge.folder / ".git"
        attributes = {".gitattributes": self.forge.file(b"* diff=x filter=x merge=x\n")}
        first = self.forge.commit({**attributes, CLUSTER: self.forge.file(b"kind: Project\n")})
        self.forge.commit({**attributes, CLUSTER: self.forge.file(b"kind: Job\n")})
        self.forge.main.with_name("side").write_text(self.forge.main.read_text())
        self.forge.moved(first)
        self.forge.commit(attributes)
        self.head = self.forge.signed()
        self.blob = self.forge.blob(b"kind: Cluster\n")  # of cluster.yaml
        (self.forge.folder / CLUSTER).parent.mkdir(parents=True)
        (self.forge.folder / CLUSTER).write_bytes(b"kind: Cluster\n")

    def settings(self, text: str, **more: str) -> None:
        with (self.git / "config").open("a") as file:
            file.write(text.format(command=self.command, hooks=self.git / "hooks", trace=self.mark, **more))

    def lose(self, *objects: str) -> None:
        for name in objects:
            (self.git / "objects" / name[:2] / name[2:]).unlink()

    def ran(self) -> str:
        return self.mark.read_text() if self.mark.exists() else ""


def every_command(evil: Evil) -> None:
    evil.settings(SETTINGS)


def settings_in_another_file(evil: Evil) -> None:
    more = evil.git / "more"
    more.write_text(SETTINGS.format(command=evil.command, hooks=evil.git / "hooks", trace=evil.mark))
    evil.settings(f'[include]\n    path = more\n[includeIf "gitdir:/**"]\n    path = {more}\n')


def settings_of_the_worktree(evil: Evil) -> None:
    evil.settings("[core]\n    repositoryformatversion = 1\n[extensions]\n    worktreeConfig = true\n")
    (evil.git / "config.worktree").write_text(SETTINGS.format(command=evil.command, hooks="x", trace=evil.mark))


def hooks(evil: Evil) -> None:
    for name in HOOKS.split():
        hook = evil.git / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{evil.command} {name}\n")
        hook.chmod(0o755)


def a_promised_file(evil: Evil) -> None:
    evil.settings(PROMISED, url=str(evil.forge.folder), more="")
    evil.lose(evil.blob)


def a_promised_tree(evil: Evil) -> None:
    evil.settings(PROMISED, url=str(evil.forge.folder), more="")
    evil.lose(evil.forge.run("rev-parse", "HEAD:clusters"))


def a_promised_commit(evil: Evil) -> None:
    evil.settings(PROMISED, url=str(evil.forge.folder), more="")
    evil.lose(evil.head)


def a_promise_over_a_helper(evil: Evil) -> None:
    evil.settings(PROMISED, url=f"ext::{evil.command}", more="vcs = ext")
    evil.settings('[protocol "ext"]\n    allow = always\n')
    evil.lose(evil.blob)


def a_promise_over_ssh(evil: Evil) -> None:
    evil.settings(PROMISED + "[core]\n    sshCommand = {command}\n", url="ssh://127.0.0.1:9/x", more="")
    evil.lose(evil.blob)


PLANTS: tuple[Callable[[Evil], None], ...] = (
    every_command, settings_in_another_file, settings_of_the_worktree, hooks, a_promised_file, a_promised_tree,
    a_promised_commit, a_promise_over_a_helper, a_promise_over_ssh,
)  # fmt: skip


@pytest.fixture(params=PLANTS, ids=lambda plant: plant.__name__)
def evil(request: pytest.FixtureRequest, tmp_path: Path) -> Evil:
    made = Evil(tmp_path)
    request.param(made)
    return made


class Gpuctl:
    """A command of a person, in this process: what it starts is what it would start by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Result:
        with self._monkeypatch.context() as patch:
            if cwd is not None:
                patch.chdir(cwd)
            return CliRunner().invoke(main, list(args), prog_name="gpuctl", env=env)


@pytest.fixture
def gpuctl(monkeypatch: pytest.MonkeyPatch) -> Gpuctl:
    return Gpuctl(monkeypatch)


def test_reading_it_runs_nothing(evil: Evil) -> None:
    try:
        repository, path = Repository.containing(evil.forge.folder / "clusters/one")
        head = repository.resolve("main")
        repository.tree(head, path)
        repository.follows(head, head)
        repository.confirmations(NO_REVISION, head)
        repository.confirmations(head, head)
        removal_of(evil.forge.folder, JobId(ProjectName("x"), "name"))
    except SourceUnavailable as fault:
        assert fault.code in {"GPU8006", "GPU8013"}  # noqa: PT017 - objects are missing, or it is well
    assert evil.ran() == ""


def test_plan_runs_nothing(evil: Evil, gpuctl: Gpuctl) -> None:
    """From inside it, as a person would who looks at somebody's pull request."""
    done = gpuctl("plan", "clusters/one", "--base", "main", cwd=evil.forge.folder)
    assert done.exit_code == 1
    assert "GPU9001" not in done.stderr
    assert evil.ran() == ""


@pytest.mark.parametrize(
    "options", [["--base", "main", "--head", "side"], ["--base", "main"], ["--rollback", "HEAD~1"]]
)
def test_merging_runs_nothing(evil: Evil, options: list[str], gpuctl: Gpuctl) -> None:
    """Both branches change the file that a driver of the repository's own would merge."""
    (evil.git / "HEAD").write_text("ref: refs/heads/side\n")
    (evil.git / "info").mkdir(exist_ok=True)
    (evil.git / "info" / "attributes").write_text("* merge=x filter=x\n")
    (evil.forge.folder / CLUSTER).write_bytes(b"kind: Department\n")
    done = gpuctl("plan", "clusters/one", *options, cwd=evil.forge.folder)
    assert done.exit_code == 1
    assert "GPU9001" not in done.stderr
    assert evil.ran() == ""


def test_committing_and_pushing_runs_nothing(evil: Evil, tmp_path: Path) -> None:
    other, file = Forge.create(tmp_path / "other"), evil.forge.folder / CLUSTER
    evil.settings('[remote "origin"]\n    pushurl = ' + str(other.folder) + "\n")
    subprocess.run(["git", "-C", str(evil.forge.folder), "read-tree", "main"], check=False, capture_output=True)
    evil.mark.unlink(missing_ok=True)
    try:
        draft = begin_commit(file.parent, {str(file): file.read_bytes()}, "more")
        draft.push(draft.commit({str(file): b"kind: Department\n"}, "More"))
        assert other.run("cat-file", "blob", f"more:{CLUSTER}") == "kind: Department"
    except SourceUnavailable as fault:
        assert fault.code in {"GPU6110", "GPU6116", "GPU8013"}  # noqa: PT017 - objects are missing
    assert evil.ran() == ""


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_following_it_runs_nothing(evil: Evil, tmp_path: Path, form: str) -> None:
    source = GitSource(form.format(evil.forge.folder), "clusters/one", "main", tmp_path / "work")
    for _ in range(2):
        try:
            head = source.head()
            source.tree(head)
            source.confirmations(NO_REVISION, head)
        except SourceUnavailable as fault:
            assert fault.code in {"GPU8001", "GPU8002", "GPU8004"}  # noqa: PT017 - it is broken, or it is well
    assert evil.ran() == ""


def test_being_inside_it_decides_nothing_of_another_repository(tmp_path: Path, gpuctl: Gpuctl) -> None:
    """A person's shell is in the hostile one; the address is that of another: no helper, proxy or address of the
    first is used."""
    evil = Evil(tmp_path)
    evil.settings(SETTINGS)
    there = ["--path", "clusters/one", "--embedded", "--once", "--workdir", "work"]
    done = gpuctl("reconcile", "--repo", "https://127.0.0.1:9/x.git", *there, cwd=evil.forge.folder)
    assert done.exit_code == 1
    assert "GPU8001" in done.stderr
    assert evil.ran() == ""


def test_a_repository_inside_the_files_of_another_is_not_believed(tmp_path: Path, gpuctl: Gpuctl) -> None:
    """A bare repository among the files of a commit is there in each clone of it, with its settings."""
    evil = Evil(tmp_path)
    inner = evil.forge.folder / "clusters/inner"
    subprocess.run(["git", "clone", "-q", "--bare", str(evil.forge.folder), str(inner)], check=True)
    with (inner / "config").open("a") as file:
        file.write(SETTINGS.format(command=evil.command, hooks=inner / "hooks", trace=evil.mark))
        file.write(f"[core]\n    bare = false\n    worktree = {evil.forge.folder}\n")
    done = gpuctl("plan", "clusters/inner", "--base", "HEAD", cwd=evil.forge.folder)
    assert "GPU8026" in done.stderr
    assert evil.ran() == ""


@pytest.mark.parametrize(
    "name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"]
)
def test_variables_that_a_hook_of_git_sets_lead_nowhere_else(tmp_path: Path, name: str, gpuctl: Gpuctl) -> None:
    evil, good = Evil(tmp_path), Forge.create(tmp_path / "good")
    evil.settings(SETTINGS)
    good.commit({})
    good.run("checkout", "-q", "-f", "HEAD", "--", CLUSTER)
    done = gpuctl("plan", str(good.folder / "clusters/one"), "--base", "HEAD", env={name: str(evil.git)})
    assert "GPU20" in done.stderr  # it was read: its cluster.yaml has mistakes
    assert evil.ran() == ""


def test_settings_that_never_end_are_given_up(tmp_path: Path, gpuctl: Gpuctl) -> None:
    evil = Evil(tmp_path)
    evil.settings("[include]\n    path = /dev/zero\n")
    done = gpuctl("plan", str(evil.forge.folder / "clusters/one"), "--base", "main")
    assert done.exit_code == 1
    assert done.stderr.startswith("error GPU8")


def test_a_repository_whose_files_are_elsewhere(tmp_path: Path, gpuctl: Gpuctl) -> None:
    evil = Evil(tmp_path)
    evil.settings(f"[core]\n    worktree = {tmp_path}\n")
    done = gpuctl("plan", str(evil.forge.folder / "clusters/one"), "--base", "main")
    assert "GPU9001" not in done.stderr


def test_a_repository_of_another_user_is_not_read(tmp_path: Path, gpuctl: Gpuctl) -> None:
    """As Git has it; and it is told, not called no repository."""
    if os.geteuid():
        pytest.skip("only root can give files away")
    evil = Evil(tmp_path)
    for path in (evil.forge.folder, *evil.forge.folder.rglob("*")):
        os.chown(path, 12345, 12345)
    done = gpuctl("plan", str(evil.forge.folder / "clusters/one"), "--base", "main")
    assert "GPU8005" in done.stderr
    assert "dubious ownership" in done.stderr
    source = GitSource(str(evil.forge.folder), "clusters/one", "main", tmp_path / "work")
    with pytest.raises(SourceUnavailable) as caught:
        source.head()
    assert caught.value.code == "GPU8005"
