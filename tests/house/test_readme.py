"""What the README and the pages of docs/ show is what the commands print; `--update-golden` writes it anew.

Every command is in the README, and every link leads somewhere.
"""

import os
import re
import subprocess
from pathlib import Path
from shutil import copytree

import pytest
import warm

from gpuctl.compile import compile_tree
from gpuctl.model.source import SourceFile, SourceTree

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [
    README,
    ROOT / "SECURITY.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CODE_OF_CONDUCT.md",
    ROOT / "gpuctl" / "engine" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]
MISTAKE = """\
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: train, project: team-aa}
spec:
  image: registry.example.com/train:1
  gpuz: 2
"""


def _block(page: Path, name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)```\n<!-- /{name} -->", page.read_text(), flags=re.DOTALL)
    assert found is not None
    return found.group(1)


def _shown(page: Path, name: str, text: str, *, update: bool) -> None:
    whole = page.read_text()
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)```\n<!-- /{name} -->", whole, flags=re.DOTALL)
    assert found is not None
    if update:
        page.write_text(whole[: found.start(1)] + text + whole[found.end(1) :])
        return
    assert found.group(1) == text


def test_the_demo_prints_what_its_page_shows_and_the_readme_in_part(request: pytest.FixtureRequest) -> None:
    done = warm.run("demo", check=True)
    told = done.stdout.lstrip("\n")
    _shown(DOCS / "demo.md", "demo", told, update=request.config.getoption("--update-golden"))
    parts = _block(README, "demo").removesuffix("\n").split("\n\n")
    assert [part[:4] for part in parts] == ["4.9 ", "4.10"]
    assert all(f"{part}\n" in told for part in parts)


def test_mistakes_are_told_as_the_page_shows(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    cluster = (ROOT / "clusters" / "tr4858" / "cluster.yaml").read_text()
    project = (ROOT / "clusters" / "tr4858" / "projects" / "team-a" / "project.yaml").read_text()
    for name, text in {"cluster.yaml": cluster, "project.yaml": project, "train.yaml": MISTAKE}.items():
        (tmp_path / "prod").mkdir(exist_ok=True)
        (tmp_path / "prod" / name).write_text(text)
    done = warm.run("validate", "prod", cwd=tmp_path)
    assert done.returncode == 1
    _shown(DOCS / "declare.md", "mistake", done.stdout, update=request.config.getoption("--update-golden"))


def test_defaults_are_shown_as_on_the_page(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    project = re.search(r"## Defaults.*?```yaml\n(.*?)```", (DOCS / "declare.md").read_text(), flags=re.DOTALL)
    assert project is not None
    job = ROOT / "clusters" / "tr4858" / "projects" / "team-a" / "jobs" / "a-1-g.yaml"
    (tmp_path / "prod").mkdir()
    cluster = (ROOT / "clusters" / "tr4858" / "cluster.yaml").read_text()
    for name, text in {
        "cluster.yaml": cluster,
        "project.yaml": project.group(1),
        "train.yaml": job.read_text(),
    }.items():
        (tmp_path / "prod" / name).write_text(text)
    command = ["validate", "--expanded", "prod/train.yaml"]
    done = warm.run(*command, cwd=tmp_path, check=True)
    shown = f"$ gpuctl {' '.join(command)}\n{done.stdout}"
    _shown(DOCS / "declare.md", "expanded", shown, update=request.config.getoption("--update-golden"))


@pytest.mark.parametrize(
    "section",
    [
        "Several workers",
        "One job after another",
        "Sweeps",
        "Services",
        "Init containers and sidecars",
        "Files of several origins",
    ],
)
def test_the_jobs_on_the_page_are_valid(section: str) -> None:
    text = (DOCS / "declare.md").read_text()
    shown = re.search(rf"## {section}.*?```yaml\n(.*?)```", text, flags=re.DOTALL)
    assert shown is not None
    here = ROOT / "clusters" / "tr4858"
    files = {name: (here / name).read_bytes() for name in ("cluster.yaml", "projects/team-a/project.yaml")}
    files["jobs.yaml"] = shown.group(1).encode()
    tree = SourceTree(cluster_dir=".", files={name: SourceFile(content=content) for name, content in files.items()})
    compiled = compile_tree(tree)
    assert compiled.diagnostics == ()
    assert compiled.declared is not None
    named = set(re.findall(r"`(tune-[0-9a-f]{8})`", text))
    if section == "Init containers and sidecars":
        (worker,) = compiled.declared.jobs
        assert (worker.cpu_milli, worker.mem_bytes) == (16_500, (64 << 30) + (256 << 20))
    assert section != "Sweeps" or named < {job.id.name for job in compiled.declared.jobs}


def test_the_job_with_code_from_git_is_one(tmp_path: Path) -> None:
    found = re.search(r"## Code from Git.*?```yaml\n(.*?)```", (DOCS / "declare.md").read_text(), flags=re.DOTALL)
    assert found is not None
    (tmp_path / "prod").mkdir()
    cluster = (ROOT / "clusters" / "tr4858" / "cluster.yaml").read_text()
    project = (ROOT / "clusters" / "tr4858" / "projects" / "team-a" / "project.yaml").read_text()
    texts = {"cluster.yaml": f"{cluster}  gitSync: {{image: git-sync}}\n", "p.yaml": project, "j.yaml": found.group(1)}
    for name, text in texts.items():
        (tmp_path / "prod" / name).write_text(text)
    done = warm.run("render", "prod", cwd=tmp_path, check=True)
    assert "value: https://git.example.com/team-a/train.git\n" in done.stdout
    assert "- mountPath: /code\n" in done.stdout


def test_a_template_is_shown_as_on_the_page(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    files = re.search(r"## Templates.*?```yaml\n(.*?)```", (DOCS / "declare.md").read_text(), flags=re.DOTALL)
    assert files is not None
    (tmp_path / "prod").mkdir()
    for name in ("cluster", "projects/team-a/project"):
        text = (ROOT / "clusters" / "tr4858" / f"{name}.yaml").read_text()
        (tmp_path / "prod" / f"{name.rpartition('/')[2]}.yaml").write_text(text)
    (tmp_path / "prod" / "sweep.yaml").write_text(files.group(1))
    command = ["validate", "--expanded", "prod/sweep.yaml"]
    done = warm.run(*command, cwd=tmp_path, check=True)
    shown = f"$ gpuctl {' '.join(command)}\n{done.stdout}"
    _shown(DOCS / "declare.md", "template", shown, update=request.config.getoption("--update-golden"))


def test_a_plan_is_told_as_the_page_shows(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    here = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for name in ("clusters/tr4858", "policies"):
        copytree(ROOT / name, tmp_path / name)
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "the report's cluster"]):
        dates = {"GIT_AUTHOR_DATE": "1596000000 +0000", "GIT_COMMITTER_DATE": "1596000000 +0000"}
        subprocess.run([*here, *words], cwd=tmp_path, check=True, env={**os.environ, **dates})
    change, _, planned = _block(README, "plan").partition("\n")
    subprocess.run(["bash", "-c", change.removeprefix("$ ")], cwd=tmp_path, check=True, capture_output=True)
    command = ["plan", "clusters/tr4858", "--base", "main"]
    done = warm.run(*command, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    shown = f"$ gpuctl {' '.join(command)}\n{done.stdout}"
    _shown(DOCS / "cli.md", "plan", shown, update=request.config.getoption("--update-golden"))
    assert shown.startswith(planned)


def test_every_command_is_in_the_readme() -> None:
    done = warm.run("--help", check=True)
    listed = done.stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    missing = [line.split()[0] for line in listed.splitlines() if f"`{line.split()[0]}`" not in README.read_text()
               and f"`gpuctl {line.split()[0]}" not in README.read_text()]  # fmt: skip
    assert missing == []


def test_a_newcomer_reads_a_short_readme() -> None:
    assert README.read_text().count("\n") <= 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            lost.append(target)
    assert lost == []


def _anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
