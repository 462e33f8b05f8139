"""Installs yaml-language-server, the one that editors use, for the tests that drive it: from package-lock.json.

Run by itself (`python tests/languageserver/build.py`) it installs into the user's cache, once for each lock file: some
seconds and 25 MB. Needs `node` and `npm`. No script of a package is run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
_FILES = ("package.json", "package-lock.json")
_SERVER = "node_modules/yaml-language-server/bin/yaml-language-server"


class NotThere(Exception):
    """The server can't be installed here; the text says why."""


def build() -> Path:
    """The server's script, installed first where need be. Raises NotThere without node or npm, or a network."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotThere("node or npm is not installed")
    content = b"".join((HERE / name).read_bytes() for name in _FILES)
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    target = base / "gpuctl" / "languageserver" / hashlib.sha256(content).hexdigest()[:16]
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for name in _FILES:
                shutil.copy(HERE / name, partial)
            how = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(how, cwd=partial, capture_output=True, text=True, check=False, timeout=300)
            if done.returncode:
                raise NotThere(f"npm could not install it: {done.stderr.strip()[-300:]}")
            partial.rename(target)
    return target / _SERVER


if __name__ == "__main__":
    sys.stderr.write(f"{build()}\n")
