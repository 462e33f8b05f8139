"""The tools' own verdicts on the tree: format, lint, types, import contracts."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

CHECKS = {
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "lint": [str(BIN / "ruff"), "check", "."],
    "types": [str(BIN / "mypy")],
    "imports": [str(BIN / "lint-imports"), "--no-cache"],
}
FIXTURES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").glob("*/**/conftest.py"))]
CHECKS |= {f"types of {path}": [str(BIN / "mypy"), "tests/controlplane", path] for path in FIXTURES}


@pytest.mark.parametrize("check", CHECKS)
def test_tool_is_content(check: str) -> None:
    done = subprocess.run(CHECKS[check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
