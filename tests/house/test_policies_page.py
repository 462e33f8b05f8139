"""docs/policies.md shows what the commands print, and `--update-golden` writes it anew. The library judges rightly."""

import re
from pathlib import Path
from shutil import copytree

import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "policies.md"
JOB = """\
apiVersion: gpuctl.dev/v1
kind: Job
metadata: {name: train, project: team-a}
spec:
  image: registry.example.com/train:1
  gpus: 4
  workers: 4
"""


def _printed(*words: str, cwd: Path = ROOT) -> tuple[int, str]:
    done = warm.run(*words, cwd=cwd)
    assert done.stderr == ""
    return done.returncode, done.stdout


def _shown(name: str, text: str, *, update: bool) -> None:
    whole = PAGE.read_text()
    found = re.search(rf"<!-- {name} -->\n```text\n(.*?)```\n<!-- /{name} -->", whole, flags=re.DOTALL)
    assert found is not None
    if update:
        PAGE.write_text(whole[: found.start(1)] + text + whole[found.end(1) :])
        return
    assert found.group(1) == text


def test_the_breach_is_told_as_the_page_shows(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    policy = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert policy is not None
    copytree(ROOT / "clusters" / "tr4858", tmp_path / "clusters" / "tr4858")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "at-most-eight-gpus.yaml").write_text(policy.group(1))
    (tmp_path / "clusters" / "tr4858" / "projects" / "team-a" / "jobs" / "train.yaml").write_text(JOB)
    code, text = _printed("validate", "clusters/tr4858", cwd=tmp_path)
    assert code == 1
    told = next(each for each in text.split("\n\n") if "GPU4001" in each)
    _shown("breach", told + "\n", update=request.config.getoption("--update-golden"))


def test_the_policies_are_listed_as_the_page_shows(request: pytest.FixtureRequest) -> None:
    code, text = _printed("policy", "list", "clusters/tr4858")
    _shown("list", text, update=request.config.getoption("--update-golden"))
    assert code == 0


def test_policies_that_are_checked_in_git_alone_are_those_of_the_page(request: pytest.FixtureRequest) -> None:
    command = (
        "install",
        "--repo",
        "https://git.example.com/x.git",
        "--path",
        "c",
        "--guard",
        "--policies",
        "policies",
        "--image",
        "x",
    )
    done = warm.run(*command, cwd=ROOT, check=True)
    _shown("alone", done.stderr, update=request.config.getoption("--update-golden"))


def test_each_policy_of_the_library_judges_its_examples_rightly(request: pytest.FixtureRequest) -> None:
    code, text = _printed("policy", "test")
    _shown("test", text, update=request.config.getoption("--update-golden"))
    assert code == 0
    policies = sorted(path.stem for path in (ROOT / "policies").glob("*.yaml"))
    assert [line.partition(":")[0] for line in text.splitlines()] == policies
    assert len(policies) >= 10
    assert all(name in PAGE.read_text() for name in policies)
