"""Builds Kueue's manager, which the tests of `gpuctl render --target kueue` run, from the Go modules of go.mod.

Run by itself (`python tests/kueue/tools.py`) it builds into the user's cache, once for each go.mod: some six minutes
and 110 MB. No other test needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from controlplane.build import Commands  # noqa: E402 - found once the tests are on the path

KUEUE = Commands("kueue", HERE, {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}, "-s -w")
MODULE = "sigs.k8s.io/kueue"
HOW = "python tests/kueue/tools.py builds it, once, in some six minutes"

if __name__ == "__main__":
    sys.stderr.write(f"{KUEUE.build()}\n")
