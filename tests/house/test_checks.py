"""The tools' own verdicts on the tree: format, lint, types, import contracts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

CHECKS = {
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "lint": [str(BIN / "ruff"), "check", "."],
    "types": [str(BIN / "mypy")],
    "imports": [str(BIN / "lint-imports"), "--no-cache"],
}
VENDORED = {
    "github-workflows": [".github/workflows/ci.yml"],
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


def test_github_can_read_the_workflows_of_the_page_on_proposals(tmp_path: Path) -> None:
    from check_jsonschema.cli.main_command import main  # noqa: PLC0415

    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "propose.md").read_text(), flags=re.DOTALL)
    files = [tmp_path / f"{number}.yml" for number in range(len(blocks))]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block)
    done = CliRunner().invoke(main, ["--builtin-schema", "vendor.github-workflows", *map(str, files)])
    assert (len(files), done.exit_code) == (2, 0), done.output
