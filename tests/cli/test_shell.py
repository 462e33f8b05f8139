"""gpuctl in a shell: completion, `kubectl gpuctl`, the pages of the manual."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
import yaml
from commands import Run
from release.krew import FILES, MANIFEST, archive

from gpuctl import __version__
from gpuctl.cli.declared_names import job_names, project_names
from gpuctl.cli.main import COMMANDS

BIN = Path(sys.executable).parent
CALLS: Mapping[str, str] = {
    "bash": 'source "$1"; COMP_WORDS=(gpuctl {}); COMP_CWORD={}; _gpuctl_completion gpuctl; '
    'printf "%s\\n" "${{COMPREPLY[@]}}"',
    "zsh": 'source "$1"; words=(gpuctl {}); (( CURRENT = {} + 1 )); '
    "compdef() {{ : }}; compadd() {{ print -l -- ${{(P)argv[-1]}} }}; _describe() {{ print -l -- ${{(P)3}} }}; "
    "_gpuctl_completion",
    "fish": 'source $argv[1]; complete -C "gpuctl {}"',
}
LINES = {
    "val": "validate", "policy te": "test", "list -o wi": "wide", "completion fi": "fish",
    "logs -p team-a a-1-1": "a-1-1-jupyter", "get team-d/": "team-d/d-1-gggg", "list -p team-c": "team-c",
    "get nobodys": "",
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("shell", CALLS)
def test_a_shell_completes_command_lines(shell: str, line: str, run: Run, tmp_path: Path, cluster: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    script = tmp_path / "script"
    script.write_text(run("completion", shell).stdout)
    call = CALLS[shell].format(line, len(line.split()))
    command = [shell, "-c", call, *([] if shell == "fish" else ["-"]), str(script)]
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=cluster.parents[1])
    wanted = [LINES[line]] if LINES[line] else []
    assert [each.split("\t")[0].split(":")[0] for each in done.stdout.split("\n") if each] == wanted


@pytest.mark.parametrize(
    "text", ["metadata: " + " " * 200_000, "metadata:\n" + " a\n" * 100_000, "kind: Job\n---\n" * 9]
)
def test_names_are_looked_for_fast_in_any_text(text: str, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cluster / "big.yaml").write_text(text)
    monkeypatch.chdir(cluster.parents[1])
    began = time.process_time()
    with click.Context(click.Command("get")) as ctx:
        found = job_names(ctx, click.Argument(["job"]), "team-d/")
        assert project_names(ctx, click.Argument(["job"]), "team-d") == ["team-d"]
    assert (found, time.process_time() - began < 5) == (["team-d/d-1-gggg"], True)


def test_outside_of_a_repository_nothing_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with click.Context(click.Command("get")) as ctx:
        assert job_names(ctx, click.Argument(["job"]), "") == []


def test_completion_is_for_shells_that_are_known(run: Run) -> None:
    refused = run("completion", "csh")
    assert (refused.exit_code, "GPU9002" in refused.stderr) == (2, True)


def test_kubectl_calls_gpuctl_as_its_plugin() -> None:
    done = subprocess.run([BIN / "kubectl-gpuctl", "top", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: kubectl gpuctl top [OPTIONS]")
    if shutil.which("kubectl"):
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        said = subprocess.run(["kubectl", "gpuctl", "version"], capture_output=True, text=True, check=True, env=env)
        assert said.stdout.startswith(f"gpuctl {__version__} ")


def test_what_krew_installs_is_what_its_manifest_says(tmp_path: Path) -> None:
    manifest = yaml.safe_load(MANIFEST.read_text())
    spec = manifest["spec"]
    (platform,) = spec["platforms"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert (manifest["metadata"]["name"], MANIFEST.stem, spec["version"]) == ("gpuctl", "gpuctl", f"v{__version__}")
    assert len(spec["shortDescription"]) <= 50
    assert platform["uri"].endswith(f"/v{__version__}/kubectl-gpuctl.zip")
    assert platform["sha256"] == hashlib.sha256(archive()).hexdigest()
    assert {each["from"] for each in platform["files"]} == FILES.keys()
    (tmp_path / "kubectl-gpuctl.zip").write_bytes(archive())
    shutil.unpack_archive(tmp_path / "kubectl-gpuctl.zip", tmp_path)
    plugin = tmp_path / platform["bin"]
    plugin.chmod(0o755)  # as Krew has it; unpack_archive drops modes
    for path, exit_code, words in ((f"{BIN}:/usr/bin:/bin", 0, f"gpuctl {__version__}"), ("/usr/bin:/bin", 127, "")):
        env = {"PATH": path}
        done = subprocess.run([plugin, "--version"], capture_output=True, text=True, check=False, env=env)
        assert (done.returncode, words in done.stdout) == (exit_code, True), done.stderr


def test_the_manual_has_a_page_for_each_command(run: Run, tmp_path: Path) -> None:
    said = run("man", tmp_path / "man1")
    pages = {path.stem: path.read_text() for path in (tmp_path / "man1").iterdir()}
    assert said.output == f"{len(pages)} pages in {tmp_path / 'man1'}\n"
    assert pages.keys() >= {"gpuctl", "gpuctl-top-node", *(f"gpuctl-{name}" for name in COMMANDS)}
    assert run("man", tmp_path / "again").exit_code == 0
    assert {path.stem: path.read_text() for path in (tmp_path / "again").iterdir()} == pages
    for name, page in pages.items():
        assert re.match(rf'\.TH "{name.upper()}" "1" ', page)
        assert ".SH EXAMPLES" in page
        assert all(
            line[1:3] in {"TH", "SH", "B ", "PP", "TP", "nf", "fi"} for line in page.split("\n") if line[:1] == "."
        )
    assert "\\fB\\-\\-kubeconfig FILE\\fR" in pages["gpuctl-list"]
    if shutil.which("man"):
        shown = subprocess.run(
            ["man", "--warnings", "-l", str(tmp_path / "man1" / "gpuctl-install.1")], capture_output=True, text=True,
            check=True, env={**os.environ, "MANPAGER": "cat", "MANROFFOPT": "", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        assert "gpuctl-install - Print the manifests" in shown.stdout
        assert shown.stderr == ""


def test_pages_that_cannot_be_written_are_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = run("man", tmp_path / "file" / "x")
    assert (refused.exit_code, "GPU9004" in refused.stderr) == (2, True)
