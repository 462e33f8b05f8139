"""Runs a control plane until it receives a signal: `python tests/controlplane/serve.py [FOLDER]`."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from controlplane.build import build
from controlplane.server import remove, start


def main() -> None:
    """Start the control plane, print where its kubeconfig is, wait for a signal, and stop it."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="control-plane-")).resolve()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plane = start(build(), folder)
    sys.stdout.write(f"export KUBECONFIG={plane.kubeconfig}\n")
    sys.stdout.flush()
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        plane.stop()
        remove(folder)


if __name__ == "__main__":
    main()
