"""Builds Helm and Kustomize, with which the tests read what `gpuctl install` writes, from the Go modules of go.mod.

Run by itself (`python tests/release/tools.py`) it builds into the user's cache, once for each go.mod: some two
minutes and 75 MB.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from controlplane.build import Commands  # noqa: E402 - found once the tests are on the path

_VERSION = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
TOOLS = Commands(
    "release",
    HERE,
    {"helm": "helm.sh/helm/v3/cmd/helm", "kustomize": "sigs.k8s.io/kustomize/kustomize/v5"},
    f"-s -w -X {_VERSION}Major=1 -X {_VERSION}Minor=36",
)
"""Helm takes the version that it was built for where it asks no cluster."""
HOW = "python tests/release/tools.py builds them, once, in some two minutes"

if __name__ == "__main__":
    sys.stderr.write(f"{TOOLS.build()}\n")
