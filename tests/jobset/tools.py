"""Builds JobSet's controller, which the tests of jobs with `manifest` run, from the Go modules of go.mod.

Run by itself (`python tests/jobset/tools.py`) it builds into the user's cache, once for each go.mod: some three minutes
and 53 MB. No other test needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from controlplane.build import Commands  # noqa: E402 - found once the tests are on the path

MODULE = "sigs.k8s.io/jobset"
JOBSET = Commands("jobset", HERE, {"jobset": MODULE}, "-s -w")
HOW = "python tests/jobset/tools.py builds it, once, in some three minutes"

if __name__ == "__main__":
    sys.stderr.write(f"{JOBSET.build()}\n")
