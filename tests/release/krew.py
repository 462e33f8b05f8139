"""The archive that Krew installs: its bytes follow from the files alone. Run by itself, it writes the archive."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from zipfile import ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "deploy" / "krew" / "gpuctl.yaml"
FILES = {"kubectl-gpuctl": ROOT / "deploy" / "krew" / "kubectl-gpuctl", "LICENSE": ROOT / "LICENSE"}


def archive() -> bytes:
    """A zip of the files, not packed, without times."""
    packed = io.BytesIO()
    with ZipFile(packed, "w") as out:
        for name, path in FILES.items():
            about = ZipInfo(name)
            about.create_system = 3  # Unix, whose modes follow
            about.external_attr = (0o755 if name.startswith("kubectl-") else 0o644) << 16
            out.writestr(about, path.read_bytes())
    return packed.getvalue()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(archive())
