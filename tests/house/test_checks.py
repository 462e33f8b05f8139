"""The tools' own verdicts on the tree: format, lint, types, import contracts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from gpuctl.cli.main import gpuctl

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

CHECKS = {
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "lint": [str(BIN / "ruff"), "check", "."],
    "types": [str(BIN / "mypy")],
    "imports": [str(BIN / "lint-imports"), "--no-cache"],
}
VENDORED = {
    "github-workflows": [".github/workflows/ci.yml", ".github/workflows/nightly.yml"],
    "github-actions": ["action.yml"],
    "github-issue-forms": [f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "decision", "wish")],
    "gitlab-ci": ["templates/gitlab-ci.yml"],
}
"""Files that a code host reads, by the schema that check-jsonschema has of them."""
FIXTURES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").glob("*/**/conftest.py"))]
CHECKS |= {f"types of {path}": [str(BIN / "mypy"), "tests/controlplane", path] for path in FIXTURES}


@pytest.mark.xdist_group("checks")  # mypy looks at everything once, not in several processes at the same time
@pytest.mark.parametrize("check", CHECKS)
def test_tool_is_content(check: str) -> None:
    done = subprocess.run(CHECKS[check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", VENDORED)
def test_a_code_host_can_read_its_files(name: str) -> None:
    # In this process, and only now: the import takes a second, and it has no types.
    from check_jsonschema.cli.main_command import main  # type: ignore[import-untyped] # noqa: PLC0415

    files = [str(ROOT / path) for path in VENDORED[name]]
    done = CliRunner().invoke(main, ["--builtin-schema", f"vendor.{name}", *files])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("ci", "file", "schema"),
    [("github", ".github/workflows/gpuctl.yml", "github-workflows"), ("gitlab", ".gitlab-ci.yml", "gitlab-ci")],
)
def test_a_code_host_can_read_what_init_writes(ci: str, file: str, schema: str, tmp_path: Path) -> None:
    from check_jsonschema.cli.main_command import main  # noqa: PLC0415

    pool = "name=dgx,nodes=dgx1-[1-2],gpus=8,memory=32Gi"
    made = CliRunner().invoke(gpuctl, ["init", str(tmp_path), "--ci", ci, "--cluster", "prod", "--pool", pool])
    assert made.exit_code == 0, made.output
    done = CliRunner().invoke(main, ["--builtin-schema", f"vendor.{schema}", str(tmp_path / file)])
    assert done.exit_code == 0, done.output


def test_the_action_reads_each_of_its_inputs_and_no_others() -> None:
    """To GitHub an input that is misspelt in an expression is empty, and a variable that no step sets is, too."""
    action = YAML(typ="safe").load(ROOT / "action.yml")
    steps = action["runs"]["steps"]
    expressions = re.findall(r"\$\{\{(.*?)\}\}", " ".join(str(step) for step in steps))
    named = set(re.findall(r"inputs\.([\w-]+)", " ".join([*expressions, *(step.get("if", "") for step in steps)])))
    assert named == set(action["inputs"])
    for step in steps:
        script = step["run"]
        known = {*step.get("env", {}), *re.findall(r"\b(\w+)=", script), *re.findall(r"\bfor (\w+) in", script)}
        known |= set(re.findall(r'read -r (?:-a|-d "") (\w+)', script))
        used = set(re.findall(r"\$\{?#?(\w+)", script)) - {"1"}
        assert {name for name in used - known if not name.startswith(("GITHUB_", "RUNNER_"))} == set()
        assert "${{" not in script


def test_github_can_read_the_workflows_of_the_page_on_proposals(tmp_path: Path) -> None:
    from check_jsonschema.cli.main_command import main  # noqa: PLC0415

    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "propose.md").read_text(), flags=re.DOTALL)
    files = [tmp_path / f"{number}.yml" for number in range(len(blocks))]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block)
    done = CliRunner().invoke(main, ["--builtin-schema", "vendor.github-workflows", *map(str, files)])
    assert (len(files), done.exit_code) == (2, 0), done.output
