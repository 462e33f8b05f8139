"""Each run of the tests draws the same examples; with `--hypothesis-seed` it draws those of that seed."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST = "tests/unit/k8s/test_timestamps.py"


def drawn(*options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "--hypothesis-verbosity=verbose"]
    done = subprocess.run([*command, *options, TEST], cwd=ROOT, capture_output=True, text=True, check=True)
    examples = re.findall(r"at_ms=([\d_]+)", done.stdout)
    assert examples
    return examples


def test_a_seed_draws_other_examples_and_the_same_ones_again() -> None:
    first = drawn("--hypothesis-seed=1")
    assert drawn("--hypothesis-seed=1") == first
    assert drawn("--hypothesis-seed=2") != first
    assert drawn() != first
